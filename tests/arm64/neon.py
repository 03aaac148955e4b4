#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Checks that the loops of sums in a program for arm64 use NEON: for each element type, the functions of
two inputs and of many inputs have the expected instructions on vectors.

usage: neon.py OBJDUMP PROGRAM
"""

import re
import subprocess
import sys

# Of each element type: the type in which it is added up, and instructions of both loops.
ADDS_FLOATS = r"fadd\s+v\d+\.4s"
EXPECTED = {
    "float": ("float", [ADDS_FLOATS]),
    "double": ("double", [r"fadd\s+v\d+\.2d"]),
    "int": ("int", [r"\sadd\s+v\d+\.4s"]),
    "colls::float16": ("float", [r"fcvtl\s+v\d+\.4s, v\d+\.4h", ADDS_FLOATS,
                                 r"fcvtn\s+v\d+\.4h, v\d+\.4s"]),
    "colls::bfloat16": ("float", [r"shl\s+v\d+\.4s, v\d+\.4s, #16", ADDS_FLOATS,
                                   r"(ushr|sri)\s+v\d+\.4s, v\d+\.4s, #16"]),
}
LOOPS = ["combine_loop", "fold_loop"]


def main():
    objdump, program = sys.argv[1:]
    listing = subprocess.run([objdump, "--disassemble", "--demangle", "--no-show-raw-insn", program], check=True,
                             stdout=subprocess.PIPE, text=True).stdout
    functions = {}
    for text in listing.split("\n\n"):
        name, _, body = text.lstrip("\n").partition(">:\n")
        functions[re.sub(r"^[0-9a-f]+ <", "", name)] = body
    passed = failed = 0
    for element, (compute, instructions) in EXPECTED.items():
        for loop in LOOPS:
            start = f"colls::detail::versions<colls::detail::{loop}<{element}, {compute}, colls::plus"
            bodies = [body for name, body in functions.items() if name.startswith(start) and ">::vector(" in name]
            missing = [each for each in instructions if not bodies or not all(re.search(each, body) for body in bodies)]
            passed, failed = passed + (not missing), failed + bool(missing)
            if missing:
                print(f"ERROR: {loop} of {element} ({len(bodies)} functions) has no instruction {', '.join(missing)}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
