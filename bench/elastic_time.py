#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Measures the time from the death of a rank in elastic training to the next applied step, with
replacements, and prints the median and the greatest of the kills, and the medians of the shares: until
the replacement runs, until all ranks take a step again, until the first rank has applied it.

usage: elastic_time.py BUILD_DIR [--ranks N] [--kills N] [--options for elastic_mnist ...]
"""

import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

MARK = f"ELASTIC_TIME={os.getpid()}"


def note(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def events(log, rank):
    path = pathlib.Path(f"{log}.{rank}")
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def process_of(rank):
    """The process that is this rank now, or None."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if MARK.encode() in environment and f"COLLS_RANK={rank}".encode() in environment:
            return int(folder.name)
    return None


def wait_for(job, condition):
    deadline = time.monotonic() + 120
    while True:
        found = condition()
        if found:
            return found
        if job.poll() is not None or time.monotonic() > deadline:
            job.terminate()
            sys.exit(f"the training does not go on:\n{job.communicate()[0]}")
        time.sleep(0.002)


def measure(job, log, ranks, generation, victim):
    """Kills a rank, and returns the three shares in seconds."""
    def steps_in(rank, name, wanted):
        return [each for each in events(log, rank) if each["event"] == name and each["generation"] == wanted]
    wait_for(job, lambda: all(len(steps_in(rank, "apply", generation)) > 3 for rank in range(ranks)))
    time.sleep(random.random() * 0.1)
    old = process_of(victim)
    death = time.monotonic()
    os.kill(old, signal.SIGKILL)
    wait_for(job, lambda: process_of(victim) not in (None, old))
    start = time.monotonic()
    wait_for(job, lambda: all(steps_in(rank, "take", generation + 1) for rank in range(ranks)))
    applied = wait_for(job, lambda: [steps_in(rank, "apply", generation + 1)[0]["time"] for rank in range(ranks)
                                     if steps_in(rank, "apply", generation + 1)])
    taken = max(steps_in(rank, "take", generation + 1)[0]["time"] for rank in range(ranks))
    return start - death, taken - start, min(applied) - taken


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("build")
    arguments.add_argument("--ranks", type=int, default=4)
    arguments.add_argument("--kills", type=int, default=10)
    arguments.add_argument("--options", nargs=argparse.REMAINDER, default=[])
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log"
        job = subprocess.Popen(
            [os.path.join(given.build, "tools/colls-run"), "-n", str(given.ranks), "-x", MARK, "--on-failure",
             "replace", "--max-restarts", str(given.kills), os.path.join(given.build, "examples/elastic_mnist"),
             "--epochs", "1000", "--log", log, *given.options],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        rows = []
        for kill in range(given.kills):
            note(f"kill {kill + 1} of {given.kills}")
            rows.append(measure(job, log, given.ranks, kill, kill % given.ranks))
        note("")
        job.terminate()
        job.communicate()
    sums = [sum(row) for row in rows]
    shares = [statistics.median(column) for column in zip(*rows)]
    print("| ranks | kill to the next applied step, median (greatest) s | replacement runs | all take a step | applied |")
    print("|---|---|---|---|---|")
    print(f"| {given.ranks} | {statistics.median(sums):.2f} ({max(sums):.2f}) | "
          + " | ".join(f"{share:.2f}" for share in shares) + " |")


main()
