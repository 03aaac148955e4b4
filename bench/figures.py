#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Measures figures of docs/benchmark_notes.md. The candidates run in turn, round after round, and each
row has the medians over the rounds. Prints Markdown.

usage: figures.py SOURCE_DIR BUILD_DIR [--rounds N]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile


def note(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def measured(command):
    """Runs a benchmark and returns its JSON line."""
    with tempfile.NamedTemporaryFile("r") as lines:
        subprocess.run(command + ["--json", lines.name], check=True, stdout=subprocess.DEVNULL)
        return json.loads(lines.read().splitlines()[-1])


def in_turn(commands, rounds):
    """Runs the commands in turn. For each: the medians over the rounds of its median and its minimum."""
    found = {name: [] for name in commands}
    for i in range(rounds):
        for name, command in commands.items():
            note(f"round {i + 1} of {rounds}: {name}")
            found[name].append(measured(command))
    return {
        name: {key: statistics.median(run[key] for run in runs) for key in ("us_median", "us_min")}
        for name, runs in found.items()
    }


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("source")
    arguments.add_argument("build")
    arguments.add_argument("--rounds", type=int, default=5)
    given = arguments.parse_args()
    bench = os.path.join(given.build, "bench/colls-bench")
    floor = os.path.join(given.build, "bench/tcp-floor")

    print("| all_reduce over tcp, 2 ranks (reno) | raw loop, median (best) us | colls, median (best) us "
          "| ratio of medians | of the best |")
    print("|---|---|---|---|---|")
    for size in ("8", "64K", "1M", "16M"):
        sizes = ["-b", size, "-e", size, "--congestion", "reno"]
        rows = in_turn({"raw": [floor, "exchange"] + sizes,
                        "colls": [bench, "all_reduce", "--in-place", "1"] + sizes}, given.rounds)
        raw, ours = rows["raw"], rows["colls"]
        print(f"| {size} B |".replace("K B", " KiB").replace("M B", " MiB") +
              f" {raw['us_median']:.1f} ({raw['us_min']:.1f}) |"
              f" {ours['us_median']:.1f} ({ours['us_min']:.1f}) |"
              f" {ours['us_median'] / raw['us_median']:.2f} | {ours['us_min'] / raw['us_min']:.2f} |")

    print("\n| all_reduce of 16 MiB by ring, 2 ranks | without checksums, us | with, us | ratio |\n"
          "|---|---|---|---|")
    for transport in ("tcp", "shm"):
        alike = [bench, "all_reduce", "--transport", transport, "--algorithm", "ring", "-b", "16M",
                 "-e", "16M", "--in-place", "1"]
        alike += ["--congestion", "reno"] if transport == "tcp" else []
        rows = in_turn({"without": alike, "with": alike + ["--checksum", "1"]}, given.rounds)
        without, checked = rows["without"]["us_median"], rows["with"]["us_median"]
        print(f"| {transport} | {without:.0f} | {checked:.0f} | {checked / without:.2f} |")

    print("\n| all_reduce of 8 B, inproc, all ranks on one thread | us |\n|---|---|")
    alike = [bench, "all_reduce", "--transport", "inproc", "-b", "8", "-e", "8", "--batch", "100"]
    kinds = {f"{ranks} ranks, {how}": alike + ["--ranks", str(ranks), "--algorithm", how]
             for ranks in (1, 2, 8) for how in ("auto", "direct", "recursive_doubling", "linear")}
    for name, row in in_turn(kinds, given.rounds).items():
        print(f"| {name} | {row['us_median']:.2f} |")

    note("sums beside streaming loops")
    print("\n" + subprocess.run([os.path.join(given.build, "bench/kernels")], check=True, text=True,
                                stdout=subprocess.PIPE).stdout, end="")
    note("")


main()
