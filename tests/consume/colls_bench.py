#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Runs colls-bench and checks that what it prints, writes and returns is what other tools read.

usage: colls_bench.py BUILD_DIR
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

FIELDS = {
    "library": str, "collective": str, "algorithm": str, "transport": str, "ranks": int, "bytes": int,
    "dtype": str, "op": str, "in_place": bool, "registered": bool, "us_min": float, "us_median": float,
    "us_p99": float, "algbw": float, "busbw": float, "wrong": int,
}
COLUMNS = "size count type redop root median min p99 algbw busbw #wrong".split()
UNITS = "(B) (elements) (us) (us) (us) (GB/s) (GB/s)".split()
FEW = ["-b", "8", "-e", "1K", "-n", "3"]
BUS = {"all_reduce": lambda p: 2 * (p - 1) / p, "reduce_scatter": lambda p: (p - 1) / p,
       "all_gather": lambda p: (p - 1) / p, "broadcast": lambda p: 1}


def environment():
    """The environment without the variables of launchers."""
    names = ("COLLS_", "OMPI_", "PMI", "SLURM_", "MASTER_", "RANK", "WORLD_SIZE", "JOB_COMPLETION_INDEX")
    return {name: value for name, value in os.environ.items() if not name.startswith(names)}


def run(*command):
    print("+", *command, flush=True)
    return subprocess.run(command, text=True, capture_output=True, env=environment(), timeout=60)


def whole_numbers_are_floats(pairs):
    for name, value in pairs:
        assert not isinstance(value, float) or FIELDS.get(name) is float, f"{name} is {value}"
    assert [name for name, _ in pairs] == list(FIELDS), f"fields are {[name for name, _ in pairs]}"
    return {name: float(value) if FIELDS[name] is float and type(value) is int else value
            for name, value in pairs}


def near(one, other):
    return abs(one - other) <= 1e-6 * abs(other)


def measured(build, folder, arguments, ranks, launcher=(), sizes=(8, 32, 128, 512), **expected):
    """Checks one run's table and lines of JSON against each other and the definitions."""
    file = folder / "lines.jsonl"
    file.unlink(missing_ok=True)
    ran = run(*launcher, build / "bench/colls-bench", *arguments, *FEW, "--json", file)
    assert ran.returncode == 0, f"status {ran.returncode}\n{ran.stdout}{ran.stderr}"
    table = [line.removeprefix("[0] ") for line in ran.stdout.splitlines()]
    heads = [line.lstrip("#").split() for line in table if line.startswith("#")]
    assert heads[2:] == [COLUMNS, UNITS], ran.stdout
    assert f": {ranks} ranks, " in table[0], table[0]
    rows = [line.split() for line in table if not line.startswith("#")]
    lines = [json.loads(line, object_pairs_hook=whole_numbers_are_floats)
             for line in file.read_text().splitlines()]
    assert [line["bytes"] for line in lines] == list(sizes), lines
    assert len(rows) == len(lines), ran.stdout
    wanted = {"library": "colls", "collective": arguments[0], "algorithm": "auto", "ranks": ranks,
              "dtype": "float", "op": "plus", "in_place": False, "registered": False, "wrong": 0, **expected}
    for row, line in zip(rows, lines):
        for name, kind in FIELDS.items():
            assert type(line[name]) is kind, f"{name} is {line[name]!r}"
        for name, value in wanted.items():
            assert line[name] == value, f"{name} is {line[name]!r}, not {value!r}"
        assert 0 < line["us_min"] <= line["us_median"] <= line["us_p99"], line
        assert near(line["algbw"], line["bytes"] / line["us_median"] / 1000), line
        bus = BUS.get(line["collective"], lambda p: 0)(ranks)
        assert near(line["busbw"], line["algbw"] * bus), line
        assert row[:5] == [str(line["bytes"]), str(line["bytes"] // 4), "float", "plus", "0"], row
        assert abs(float(row[5]) - line["us_median"]) < 0.006 and row[10] == "0", row


def refused(build, status, *arguments):
    """Checks that a command line is refused, with one line that names the error."""
    ran = run(build / "bench/colls-bench", *arguments)
    assert ran.returncode == status, f"status {ran.returncode}\n{ran.stdout}{ran.stderr}"
    assert len(ran.stderr.splitlines()) == 1, ran.stderr


def main():
    build = pathlib.Path(sys.argv[1])
    colls_run = str(build / "tools/colls-run")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check = lambda *arguments, **expected: measured(build, folder, arguments, **expected)
        for transport in ("tcp", "shm"):
            for ranks in (2, 3):
                these = ["--transport", transport, "--ranks", str(ranks)]
                check("all_reduce", *these, ranks=ranks, transport=transport)
        two = {"ranks": 2, "transport": "shm"}
        check("barrier", "--transport", "shm", sizes=[0], **two)
        check("all_gather", "--transport", "shm", **two)
        check("broadcast", "--transport", "shm", "--algorithm", "binomial_tree", algorithm="binomial_tree", **two)
        check("all_reduce", "--transport", "shm", "--registered", "1", registered=True, **two)
        check("all_reduce", "--transport", "shm", "--in-place", "1", in_place=True, **two)
        check("all_reduce", "--transport", "inproc", ranks=2, transport="inproc")
        # Under a launcher its number of ranks counts, even 1, whatever --ranks is.
        for ranks in (1, 2):
            check("all_reduce", "--ranks", "3", ranks=ranks, transport="tcp",
                  launcher=(colls_run, "-n", str(ranks)))
        for wrong in (["all_reduced"], [], ["all_reduce", "--transport", "pigeon"], ["all_reduce", "-n", "many"],
                      ["all_reduce", "--algorithm", "quick"], ["all_reduce", "--congestion", "none-at-all"],
                      ["broadcast", "--in-place", "1"], ["all_reduce", "--root", "2"],
                      ["all_reduce", "--ranks", "0"], ["all_reduce", "--memory", "device"]):
            refused(build, 2, *wrong)
        # Numbers that would measure nothing, or not what they name.
        for wrong in ("-n -5", "-w -7", "-f 0", "-f -3", "-f 1", "-f nan", "--seconds nan", "--seconds -1",
                      "-b 64 -e 8", "-b 64M", "-b 1 -e 3", "--sizes 2", "--sizes 8,2", "--sizes 4 -d double"):
            refused(build, 2, "all_reduce", *wrong.split())
        refused(build, 2, "reduce_scatter", "--sizes", "8", "--ranks", "3")
        refused(build, 2, "all_reduce", "--transport", "inproc", "--sizes", "2")
        # The first size of a range is made a whole number of elements. 0 is a valid size.
        check("reduce_scatter", "--transport", "shm", "--ranks", "3", ranks=3, transport="shm",
              sizes=[24, 120, 504])
        check("all_reduce", "--transport", "shm", "--sizes", "0,6", sizes=[0, 4], **two)
        refused(build, 1, "all_reduce", "--ranks", "1", *FEW, "--json", folder / "none/at/all")
        assert run(build / "bench/colls-bench", "--help").returncode == 0


if __name__ == "__main__":
    main()
