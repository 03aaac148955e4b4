#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Checks that files do not compile, for the reason that each states, and that their controls do.

A file has the line `// build error: REGEX` and contains `#ifdef MUST_NOT_COMPILE` ... `#else` ... `#endif`.
With the macro the compiler has to fail, and the regex has to match its first error, which is what a
user reads; without it the file has to compile, so that a typo cannot pass. If there are many files,
the header that nearly all include is precompiled. The definitions of calls are not compiled.

With --no-controls only what must not compile is compiled, for a second compiler.

usage: check.py [--no-controls] FILE... INCLUDE_DIR COMPILER... | check.py --self-test COMPILER...
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def precompiled(include, compiler, folder):
    """Flags that include colls.hpp, precompiled in the folder."""
    header = pathlib.Path(folder) / "first.hpp"
    header.write_text("#include <colls/colls.hpp>\n")
    made = f"{header}.pch" if "clang" in compiler[-1] else f"{header}.gch"
    subprocess.run(
        [*compiler, "-std=c++20", SEPARATE, "-I", include, "-x", "c++-header", header, "-o", made], check=True
    )
    return ["-include", str(header)]


# The files only make calls; their definitions are compiled elsewhere, which is faster.
SEPARATE = "-DCOLLS_SEPARATE_COMPILATION="


def run(compiler, include, file, *flags):
    # nvcc has no -fsyntax-only. Here it compiles only the device code, which these tests are about.
    only = ["-ptx", "-o", os.devnull] if file.endswith(".cu") else ["-fsyntax-only"]
    command = [*compiler, "-std=c++20", SEPARATE, *only, "-I", include, *flags, file]
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def problem_of(file, include, compiler, flags=(), controlled=True):
    """What is wrong with the file as a test, or None."""
    text = pathlib.Path(file).read_text()
    reason = re.search(r"^// build error: (.+)$", text, flags=re.M)
    if not reason:
        return "no line '// build error: REGEX'"
    if not re.search(r"^#ifdef MUST_NOT_COMPILE$.*^#else.*^#endif", text, flags=re.M | re.S):
        return "no '#ifdef MUST_NOT_COMPILE', '#else', '#endif'"
    if controlled:
        control = run(compiler, include, file, *flags)
        if control.returncode:
            return f"the control does not compile:\n{control.stdout}"
    wrong = run(compiler, include, file, *flags, "-DMUST_NOT_COMPILE")
    if wrong.returncode == 0:
        return "compiles, but must not"
    first = re.search(r"^[^\s|].*?: (?:fatal )?error: +(.*)$", wrong.stdout, flags=re.M)
    if not first or not re.search(reason[1], first[1]):
        return f"fails, but its first error is not /{reason[1]}/:\n{wrong.stdout}"
    return None


def self_test(compiler):
    """(name, problem) of each file whose verdict is not the expected one."""
    frame = "// build error: {}\n#ifdef MUST_NOT_COMPILE\n{}\n#else\n{}\n#endif\n"
    wrong = 'static_assert(sizeof(int) == 0, "an int is not empty");  // reason beside the error'
    cases = {
        "sound": (frame.format("an int is not empty", wrong, "int i;"), None),
        "compiles": (frame.format("an int is not empty", "int i;", "int i;"), "must not"),
        "control": (frame.format("an int is not empty", wrong, "int i"), "control"),
        "reason": (frame.format("an int is empty", wrong, "int i;"), "first error"),
        "echo": (frame.format("reason beside", wrong, "int i;"), "first error"),
        "second": (frame.format("an int is not empty", "int j = k;\n" + wrong, "int i;"), "first error"),
        "no reason": (frame.replace("build error", "").format("", wrong, "int i;"), "no line"),
        "no control": (f"// build error: an int\n#ifdef MUST_NOT_COMPILE\n{wrong}\n#endif\n", "#else"),
    }
    for name, (text, expected) in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "case.cpp"
            file.write_text(text)
            got = problem_of(str(file), folder, compiler)
        if (got is None) != (expected is None) or (expected and expected not in got):
            yield f"{name}: expected {expected}, got {got}"


def problems_of(files, include, compiler, controlled):
    """What is wrong with each file that is not sound."""
    with (
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        flags = precompiled(include, compiler, folder) if len(files) > 1 else []
        found = pool.map(lambda file: problem_of(file, include, compiler, flags, controlled), files)
        return [f"{file}: {problem}" for file, problem in zip(files, found) if problem]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    if sys.argv[1] == "--self-test":
        problems = list(self_test(sys.argv[2:]))
        print(*problems, sep="\n")
    else:
        controlled = sys.argv[1] != "--no-controls"
        words = sys.argv[1:] if controlled else sys.argv[2:]
        folder = next((i for i, name in enumerate(words) if os.path.isdir(name)), 0)
        files, rest = words[:folder], words[folder:]
        if not files or len(rest) < 2:
            sys.exit(__doc__)
        problems = problems_of(files, rest[0], rest[1:], controlled)
        print(*problems, sep="\n")
        print(f"{len(files) - len(problems)} passed, {len(problems)} failed")
    sys.exit(bool(problems))


main()
