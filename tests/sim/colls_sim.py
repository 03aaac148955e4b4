#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Runs colls-sim as a user does, and checks what it prints, that equal seeds give equal runs, pictures
and traces, very many ranks, and what it refuses.

usage: colls_sim.py SOURCE_DIR BUILD_DIR
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import xml.dom.minidom

failures = []
passed = 0


def check(what, good):
    global passed
    if good:
        passed += 1
    else:
        failures.append(what)


def run(command):
    done = subprocess.run([program, *command.split()], text=True, capture_output=True)
    return done.returncode, done.stdout, done.stderr


def result(command):
    """The JSON line of a run that succeeds, else None."""
    status, out, err = run(command)
    check(f"{command}: exit status {status}: {err}", status == 0 and err == "" and out.count("\n") == 1)
    return json.loads(out) if status == 0 else None


def pairs():
    """(collective, algorithm) of every row of the table in docs/algorithms.md."""
    found, names = [], []
    for line in (source / "docs/algorithms.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| ") or len(cells) < 5 or cells[0] in ("collective", "all_to_all_v"):
            continue
        names = cells[0].split(", ") if cells[0] else names
        found += [(name, cells[1].split()[0]) for name in names]
    return found


def test_pairs():
    every = pairs()
    check(f"{len(every)} pairs in docs/algorithms.md", len(every) > 20)
    for collective, algorithm in every:
        for ranks in (1, 2, 3, 6, 7):
            if algorithm == "direct" or algorithm == "neighbour_exchange" and ranks % 2:
                status, _, err = run(f"{collective} --algorithm {algorithm} --ranks {ranks} --count 5")
                check(f"{collective} {algorithm}: {status} {err}", status == 2 and err.count("\n") == 1)
                continue
            for count in sorted({0, 1, ranks - 1, ranks + 1, 1000}):
                command = f"{collective} --algorithm {algorithm} --ranks {ranks} --count {count} --seed 4"
                found = result(command)
                check(f"{command}: {found}", found is not None and found["verified"] is True)


def test_times():
    tiny = "--latency-us 1 --overhead-us 0 --bandwidth 1e9"
    for command, time in (("recursive_doubling --ranks 64 --count 1", 6.0), ("ring --ranks 8 --count 8", 14.0)):
        found = result(f"all_reduce --algorithm {command} {tiny}")
        check(f"{command}: {found}", found is not None and abs(found["time_us"] - time) < 1e-3)


def test_long_call():
    """Control messages about messages that wait long do not overtake the messages before them."""
    found = result("reduce --algorithm double_tree --ranks 48 --bytes 268435392 --segment 2M --topology nodes:8"
                   " --latency-us 5 --overhead-us 0.3 --bandwidth 3 --payload phantom")
    check(f"long call: {found}", found is not None and found["time_us"] > 200000)


def test_same_seed():
    """Two runs of one seed are equal, whatever the plan; another seed gives another run."""
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        (where / "plan").write_text("delay 50us\npieces\nfreeze 2 @4 30us\n")
        runs = []
        for name, seed in (("a", 7), ("b", 7), ("c", 8)):
            found = result(f"all_reduce --algorithm ring --ranks 5 --count 1000 --seed {seed}"
                           f" --plan {where}/plan --trace {where}/{name} --draw {where}/{name}.svg")
            kept = {key: value for key, value in found.items() if key not in ("wall_s", "rss_mib")}
            runs.append((kept, (where / name).read_text(), (where / f"{name}.svg").read_text()))
        check("one seed gives two runs", runs[0] == runs[1])
        check("two seeds give one run", runs[0] != runs[2])
        events = json.loads(runs[0][1])["traceEvents"]
        check("the trace shows all messages", sum(e["ph"] == "s" for e in events) == runs[0][0]["messages"])
        arrows = xml.dom.minidom.parseString(runs[0][2]).getElementsByTagName("path")
        check("the picture shows all messages",
              sum(a.hasAttribute("marker-end") for a in arrows) == runs[0][0]["messages"])


def test_many_ranks():
    for algorithm in ("recursive_doubling", "double_tree", "circulant"):
        found = result(f"all_reduce --algorithm {algorithm} --ranks 65536 --bytes 8 --payload phantom")
        check(f"{algorithm}: {found}", found is not None and found["rss_mib"] < 3072 and found["verified"] is None)


def test_refusals():
    good = "all_reduce --ranks 4 --count 8"
    with tempfile.TemporaryDirectory() as folder:
        wrong = pathlib.Path(folder, "plan")
        wrong.write_text("explode 2 @3\n")
        garbage = pathlib.Path(folder, "garbage")
        garbage.write_bytes(bytes(range(256)) * 9)
        for command in (
            "all_produce --ranks 4 --count 8",
            f"{good} --algorithm rong",
            "scan --algorithm ring --ranks 4 --count 8",
            "all_reduce --count 8",
            "all_reduce --ranks 0 --count 8",
            "all_reduce --ranks -1 --count 8",
            "all_reduce --ranks 2000000000 --count 8",
            "all_reduce --ranks 1000000 --bytes 1T",
            "all_reduce --ranks 4",
            "all_reduce --ranks 4 --count 8 --bytes 32",
            "all_reduce --ranks 4 --bytes 9",
            "broadcast --ranks 4 --count 8 --root 4",
            "all_to_all --ranks 4 --count 9 --payload phantom",
            f"{good} --dtype complex",
            f"{good} --payload ghost",
            f"{good} --topology moebius",
            f"{good} --bandwidth 0",
            f"{good} --latency-us -1",
            f"{good} --plan {folder}/none",
            f"{good} --plan {wrong}",
            f"{good} --plan {garbage}",
            f"{good} --plan {folder}",
            f"{good} --seed -1",
            "all_reduce --ranks 4 --count -8",
            "all_reduce --ranks 4 --bytes -8",
            f"{good} --bandwidth nan",
            f"{good} --bandwidth 1e-300",
            f"{good} --trace {folder}/no/such/file",
            "all_reduce --ranks 33 --count 8 --draw x.svg",
            f"{good} --colour red",
        ):
            status, out, err = run(command)
            check(f"{command}: {status} {out}{err}",
                  status == 2 and out == "" and err.startswith("colls-sim: ") and err.count("\n") == 1)


def main():
    for test in (test_pairs, test_times, test_long_call, test_same_seed, test_many_ranks, test_refusals):
        test()
    for failure in failures:
        print(failure)
    print(f"{passed} passed, {len(failures)} failed")
    sys.exit(bool(failures))


if len(sys.argv) != 3:
    sys.exit(__doc__)
source = pathlib.Path(sys.argv[1])
program = str(pathlib.Path(sys.argv[2], "tools/colls-sim").resolve())
main()
