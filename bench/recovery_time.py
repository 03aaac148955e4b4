#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Measures the time from the death of a rank to the first result of the ranks that are left, and prints
it as a Markdown table: the median and the greatest of the rounds, and the medians of the shares.

usage: recovery_time.py BUILD_DIR [--ranks 2,4,8] [--rounds N]
"""

import argparse
import os
import statistics
import subprocess
import sys


def note(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def measured(build, transport, ranks, victim):
    """Returns the three shares of one run in milliseconds."""
    run = [os.path.join(build, "tools/colls-run"), "--on-failure", "shrink", "--no-prefix", "-n", str(ranks)]
    program = [os.path.join(build, "bench/recovery-time"), str(victim)]
    ended = subprocess.run(run + program, env=dict(os.environ, COLLS_TRANSPORT=transport), timeout=120,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("result ")]
    if ended.returncode or len(lines) != 1:
        sys.exit(f"exit status {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    return [float(word) for word in lines[0].split()[1:]]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("build")
    arguments.add_argument("--ranks", default="2,3,4,5,6,7,8")
    arguments.add_argument("--rounds", type=int, default=20)
    given = arguments.parse_args()
    print("| transport | ranks | kill to first result, median (greatest) ms | known | shrink | all_reduce |")
    print("|---|---|---|---|---|---|")
    for transport in ("shm", "tcp"):
        for ranks in map(int, given.ranks.split(",")):
            rows = []
            for i in range(given.rounds):
                note(f"{transport}, {ranks} ranks, round {i + 1} of {given.rounds}")
                rows.append(measured(given.build, transport, ranks, i % ranks))
            note("")
            sums = [sum(row) for row in rows]
            shares = [statistics.median(column) for column in zip(*rows)]
            print(f"| {transport} | {ranks} | {statistics.median(sums):.1f} ({max(sums):.1f}) | "
                  + " | ".join(f"{share:.1f}" for share in shares) + " |", flush=True)


main()
