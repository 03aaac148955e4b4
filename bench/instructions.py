#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Counts the instructions that each header of colls executes in an all_reduce by ring between two ranks over
TCP, and says how many headers hold 95 % of them. Needs valgrind.

usage: instructions.py SOURCE_DIR BUILD_DIR
"""

import collections
import os
import pathlib
import re
import subprocess
import sys

BYTES, CALLS = 64 * 1024, 2000
PROGRAM = """
#include <colls/run.hpp>
#include <vector>
int main() {
  return colls::run([](colls::world& world) -> colls::task<> {
    std::vector<float> v(%d / sizeof(float), 1.0f);
    for (int i = 0; i < %d; ++i) co_await world.all_reduce(v, {.algorithm = colls::algorithm::ring});
  });
}
""" % (BYTES, CALLS)


def self_costs(profile):
    """The instructions of each source file in a profile of callgrind, without those of the functions it calls."""
    names, costs, file, is_call = {}, collections.Counter(), None, False
    for line in profile.splitlines():
        named = re.match(r"(fl|fi|fe|cfi|cfl)=\((\d+)\)(?: (.*))?", line)
        if named:
            if named[3]:
                names[named[2]] = named[3]
            if named[1] in ("fl", "fi", "fe"):
                file = names[named[2]]
        elif line.startswith("calls="):
            is_call = True  # the next line has the cost of the callee
        elif re.match(r"[+\-*\d]", line):
            if not is_call:
                costs[file] += int(line.split()[1])
            is_call = False
    return costs


def main():
    source, build = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    work = build / "instructions"
    work.mkdir(exist_ok=True)
    for old in work.glob("callgrind.*"):
        old.unlink()
    (work / "ring.cpp").write_text(PROGRAM)
    subprocess.run(["g++", "-std=c++20", "-O2", "-g", f"-I{source}/include", "ring.cpp", "-o", "ring", "-lcrypto", "-pthread"],
                   cwd=work, check=True)
    subprocess.run([build / "tools/colls-run", "-n", "2", "valgrind", "-q", "--tool=callgrind",
                    "--callgrind-out-file=callgrind.%p", "./ring"], cwd=work, check=True,
                   env={**os.environ, "COLLS_TRANSPORT": "tcp"})
    costs = collections.Counter()
    for profile in work.glob("callgrind.*"):
        costs.update(self_costs(profile.read_text(errors="replace")))
    headers = collections.Counter()
    for file, cost in costs.items():
        if "include/colls/" in (file or ""):
            headers[file.split("include/colls/")[-1]] += cost
    total, held, count = sum(headers.values()), 0, 0
    for header, cost in headers.most_common():
        if held >= 0.95 * total:
            break
        held, count = held + cost, count + 1
        print(f"{cost / CALLS / 2:9.0f} instructions a call and rank {100 * held / total:6.1f} %  {header}")
    print(f"{count} headers hold 95 % of colls' own instructions, {total / CALLS / 2:.0f} a call and rank")


main()
