#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Runs bench/compare.py with programs that only say what they were asked: who runs when, what becomes
of what they say, and how it ends when one of them fails."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

# Does what the file named like it says: `wrong`, `fail`, `hang`, or nothing.
PROGRAM = """#!/bin/sh
name=${0##*/}
echo "$name $*" >>"$FOLDER/calls"
registered=false sizes=0
while [ $# -gt 0 ]; do
  case $1 in
    --json) out=$2 ;;
    --sizes) sizes=$2 ;;
    --registered) registered=true ;;
  esac
  shift
done
plan=$(cat "$FOLDER/$name" 2>/dev/null)
case $plan in fail) echo "no luck today"; exit 3 ;; hang) sleep 60 ;; esac
[ "$plan" = wrong ] && wrong=7 || wrong=0
launch=$(grep -c "^$name " "$FOLDER/calls")
IFS=,
for size in $sizes; do
  echo "{\\"library\\": \\"?\\", \\"ranks\\": 2, \\"bytes\\": $size, \\"registered\\": $registered," \\
    "\\"us_min\\": 1, \\"us_median\\": $launch, \\"wrong\\": $wrong}" >>"$out"
done
"""
LAUNCHER = """#!/bin/sh
while [ "${1##*/compare-}" = "$1" ]; do shift; done
exec "$@"
"""


class Run:
    def __init__(self, script, plans, *options):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            bench = folder / "build/bench"
            bench.mkdir(parents=True)
            programs = {bench / file: PROGRAM for file in
                        ("colls-bench", "compare-openmpi", "compare-gloo", "memory-floor", "tcp-floor")}
            programs[folder / "mpirun.openmpi"] = LAUNCHER
            for file, text in programs.items():
                file.write_text(text)
                file.chmod(0o755)
            for file, plan in plans.items():
                (folder / file).write_text(plan)
            environment = os.environ | {"FOLDER": name, "PATH": f"{name}:{os.environ['PATH']}"}
            ended = subprocess.run([sys.executable, script, str(folder / "build"), *options], text=True,
                                   capture_output=True, env=environment, timeout=120)
            self.status, self.said, self.complaints = ended.returncode, ended.stdout, ended.stderr
            self.calls = (folder / "calls").read_text().splitlines()
            lines = folder / "build/compare.jsonl"
            self.lines = [json.loads(line) for line in lines.read_text().splitlines()]
            self.drawn = (folder / "build/compare.svg").exists()


def main():
    script = sys.argv[1]
    failed, count = [], 0

    def check(what, good, run):
        nonlocal count
        count += 1
        if not good:
            failed.append(what)
            print(f"failed: {what}\n{run.status}\n{run.said}\n{run.complaints}\n" + "\n".join(run.calls))

    short = ["--collectives", "all_reduce", "--ranks", "2", "--transports", "shm", "--sizes", "8,4096"]
    run = Run(script, {}, *short, "--launches", "2")
    names = [call.split()[0] for call in run.calls]
    first, second = names[:len(names) // 2], names[len(names) // 2:]
    check("launches take turns, and begin elsewhere each time",
          len(set(first)) == 3 and second == first[1:] + first[:1], run)
    check("status 0 when all is well", run.status == 0 and not run.complaints, run)
    check("each command line is shown", all(f"\n{way}: " in f"\n{run.said}" for way in (
        "colls, shm", "colls registered, shm", "openmpi ob1, shm", "openmpi ucx, shm", "floor add, shm")), run)
    check("a line for each launch and size, with who it is of",
          sum(line["library"] == "openmpi" and line["algorithm"] == "ob1" for line in run.lines) == 4, run)
    check("what is not installed is named", "left out: mpich" in run.said, run)
    check("there is a table and a picture", "**all_reduce over shm, 2 ranks**" in run.said and run.drawn, run)

    run = Run(script, {"colls-bench": "wrong"}, *short, "--launches", "1")
    check("wrong values are told, status 1", run.status == 1 and "7 values are wrong" in run.complaints, run)
    run = Run(script, {"colls-bench": "fail"}, *short, "--launches", "1")
    check("colls fails: told, status 1", run.status == 1 and "no luck today" in run.complaints, run)
    run = Run(script, {"compare-openmpi": "fail"}, *short, "--launches", "1")
    check("a peer fails: named, status 0", run.status == 0 and "left out: openmpi ob1" in run.said, run)
    run = Run(script, {"tcp-floor": "hang"}, "--quick", "--transports", "tcp", "--limit", "1")
    check("who hangs is ended and not asked again", "took longer than 1.0 s" in run.complaints
          and sum(call.startswith("tcp-floor") for call in run.calls) == 2 and run.status == 1, run)
    check("--quick: 7 sizes, 3 launches, 2 ranks, all_reduce", sum(
        call.startswith("colls-bench all_reduce ") and "--ranks 2" in call
        and "--sizes 8,64,4096,32768,262144,2097152,16777216" in call for call in run.calls) == 3, run)
    check("medians over the launches", "| 64 B | 3.00 ob1 | 4.00 ring | 2.00 | 0.67 |" in run.said, run)
    print(f"{count - len(failed)} passed, {len(failed)} failed")
    sys.exit(bool(failed))


main()
