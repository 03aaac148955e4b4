#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Starts the program of tests/extend/socketpair.cpp, whose processes have a transport of their own.

usage: socketpair.py COLLS_RUN PROGRAM
"""

import os
import subprocess
import sys
import time

failures = []
checks = 0


def start(ranks, *arguments, **variables):
    """Returns the exit status, all output, and the seconds that it took."""
    began = time.monotonic()
    ended = subprocess.run([sys.argv[1], "-n", str(ranks), sys.argv[2], *arguments], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, timeout=60, env={**os.environ, **variables})
    return ended.returncode, ended.stdout, time.monotonic() - began


def check(right, what, output):
    global checks
    checks += 1
    if not right:
        failures.append(what)
        print(f"FAILED: {what}\n{output}")


for ranks in (1, 2, 3, 5):
    for variables in ({}, {"COLLS_CHECKSUM": "1"}):
        status, output, _ = start(ranks, **variables)
        check(status == 0 and f"right of {ranks} ranks" in output, f"{ranks} ranks {variables}", output)

status, output, _ = start(3, "kill")
told = [line for line in output.splitlines() if "peer_failed" in line or "has failed" in line]
check(status != 0 and "rank 2" in output and told, "a rank that ends while the others wait", output)

for broken in (0, 1, 2):
    status, output, seconds = start(3, "broken", str(broken))
    for rank in (0, 1, 2):
        lines = [line for line in output.splitlines() if line.startswith(f"[{rank}]")]
        check(any("its card is not plugged in" in line and f"rank {broken}" in line for line in lines),
              f"rank {rank} is told why rank {broken} has no transport", output)
    check(status != 0 and seconds < 10, "ranks that cannot make their transport end soon", f"{seconds} s\n{output}")

print(f"{checks - len(failures)} passed, {len(failures)} failed")
sys.exit(bool(failures))
