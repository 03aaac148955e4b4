#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""colls beside Open MPI, MPICH and Gloo, and beside what memory and kernel allow at best: what is
compared runs in turn, launch after launch, and each figure is the median over the launches. Adds
JSON lines to FILE, prints tables, draws PICTURE. `./dev compare` builds what it needs. Ends with
status 1 if values were wrong or colls or a floor failed; a peer that cannot run is named, no more.

With --against OTHER, this build beside another one: the geometric means of the ratios of their
times, and the points above 1.05 in every run, which end it with status 1. A build against itself
shows the noise: the greatest distance of these means from 1.

Everything runs in a network of its own, in which all TCP has the same congestion control.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

import compare_report

COLLECTIVES = ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather",
               "scatter", "all_to_all", "scan", "exscan", "barrier"]
KIB, MIB = 1 << 10, 1 << 20
FEW_SIZES = [8, 64, 4 * KIB, 32 * KIB, 256 * KIB, 2 * MIB, 16 * MIB]
SIZES = [8, 64, 512, 4 * KIB, 32 * KIB, 256 * KIB, 2 * MIB, 16 * MIB, 64 * MIB]
PEERS = compare_report.PEERS
TRANSPORTS = compare_report.TRANSPORTS
AGAINST = [("shm", 2), ("tcp", 2), ("shm", 4), ("tcp", 4), ("inproc", 8)]
PREFIXES = ["scan", "exscan"]
TREES = ["linear", "binomial_tree"]
ALGORITHMS = {  # those of algorithms.hpp
    "all_reduce": ["linear", "ring", "recursive_doubling", "recursive_halving", "double_tree",
                   "circulant", "hierarchical"],
    "reduce_scatter": ["linear", "ring", "recursive_halving", "circulant", "pairwise"],
    "all_gather": ["linear", "ring", "recursive_doubling", "circulant", "bruck",
                   "neighbour_exchange"],
    "broadcast": TREES + ["knomial_tree", "scatter_all_gather", "chain", "double_tree",
                          "circulant"],
    "reduce": TREES + ["knomial_tree", "reduce_scatter_gather", "chain", "double_tree"],
    "gather": TREES,
    "scatter": TREES,
    "all_to_all": ["linear", "pairwise", "bruck"],
    "scan": ["linear", "recursive_doubling", "chain"],
    "exscan": ["linear", "recursive_doubling", "chain"],
    "barrier": ["linear", "dissemination", "binomial_tree"],
}
MPIRUN = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
UCX = ["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"]


class Way:
    """One library, set in one way."""

    def __init__(self, library, algorithm, command, environment=(), registered=False):
        self.library, self.algorithm, self.registered = library, algorithm, registered
        self.command, self.environment = command, dict(environment)
        self.name = " ".join([library] + [algorithm] * (algorithm != "auto")
                             + ["registered"] * registered)

    def __str__(self):
        return shlex.join([f"{k}={v}" for k, v in self.environment.items()] + self.command)


def ways(bench, transport, collective, ranks):
    """What is run beside one another; the command lines still lack sizes."""
    def called(program, *options):
        in_place = ["--in-place", "1"] * (collective in PREFIXES)  # they have no other form
        return [f"{bench}/{program}", collective, *options, *in_place]

    over_shm = transport == "shm"
    colls = called("colls-bench", "--transport", transport, "--ranks", str(ranks))
    yield Way("colls", "auto", colls)
    if over_shm and collective != "barrier":
        yield Way("colls", "auto", colls + ["--registered", "1"], registered=True)
    if transport == "inproc":
        return  # no peer passes data between threads
    openmpi, mpich = MPIRUN + ["-n", str(ranks)], ["mpirun.mpich", "-n", str(ranks)]
    if over_shm:
        yield Way("openmpi", "ob1", openmpi + ["--mca", "pml", "ob1", "--mca", "btl", "self,vader"]
                  + called("compare-openmpi"))
        yield Way("openmpi", "ucx", openmpi + UCX + ["-x", "UCX_TLS=self,sm"]
                  + called("compare-openmpi"))
        yield Way("mpich", "auto", mpich + called("compare-mpich"))
    else:
        yield Way("openmpi", "ob1", openmpi + ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp",
                  "--mca", "btl_tcp_if_include", "lo"] + called("compare-openmpi"))
        yield Way("openmpi", "ucx", openmpi + UCX + ["-x", "UCX_TLS=self,tcp", "-x",
                  "UCX_NET_DEVICES=lo"] + called("compare-openmpi"))
        yield Way("mpich", "auto", mpich + called("compare-mpich"),
                  {"MPIR_CVAR_NOLOCAL": 1, "UCX_TLS": "self,tcp", "UCX_NET_DEVICES": "lo"})
        if collective not in ["reduce_scatter"] + PREFIXES:
            kinds = ["ring", "bcube", "halving_doubling"] if collective == "all_reduce" else ["auto"]
            for kind in kinds:
                yield Way("gloo", kind, called("compare-gloo", "--algorithm", kind, "--ranks", str(ranks)))
    if ranks == 2 and collective == "all_reduce":
        for kind in ["exchange", "add"] + ["copy"] * over_shm:
            program = "memory-floor" if over_shm else "tcp-floor"
            yield Way("floor", kind, [f"{bench}/{program}", kind])


def forced_ways(bench, transport, collective, ranks):
    """auto, every algorithm that it could have taken, and auto once more: how far one and the same
    differs from itself."""
    for name in ["auto"] + ALGORITHMS[collective] + ["direct", compare_report.AGAIN]:
        algorithm = "auto" if name == compare_report.AGAIN else name
        in_place = ["--in-place", "1"] * (collective in PREFIXES)
        if algorithm == "neighbour_exchange" and ranks % 2:
            continue
        yield Way("colls", name, [f"{bench}/colls-bench", collective, "--transport", transport,
                                  "--ranks", str(ranks), "--algorithm", algorithm, *in_place])


def builds(folders, transport, collective, ranks):
    """The same call of each build."""
    for name, folder in folders.items():
        yield Way("colls", name, [f"{folder}/bench/colls-bench", collective, "--transport", transport,
                                  "--ranks", str(ranks)])


def sized(way, collective, ranks, sizes):
    """The sizes that this way is asked for, as options."""
    if collective == "barrier":
        return []
    if way.library == "floor" and "memory-floor" in way.command[0] and way.algorithm == "exchange":
        sizes = [size for size in sizes if size <= 64]
    if collective == "reduce_scatter":
        sizes = [max(size, 4 * ranks) for size in sizes]
    return ["--sizes", ",".join(str(size) for size in dict.fromkeys(sizes))] if sizes else None


class Results:
    """Runs the commands, keeps their lines."""

    def __init__(self, file, limit):
        self.file, self.limit = file, limit
        self.lines, self.complaints = [], []

    def launch(self, way, options, collective, ranks, transport, run):
        """Why nothing came, if nothing did."""
        with tempfile.NamedTemporaryFile("r") as found, tempfile.TemporaryFile("w+") as said:
            command = way.command + options + ["--json", found.name]
            try:
                child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                                         env=os.environ | {k: str(v) for k, v in
                                                           way.environment.items()},
                                         start_new_session=True)
            except FileNotFoundError:
                return f"no {command[0]}"
            reason = None
            try:
                if child.wait(self.limit) != 0:
                    said.seek(0)
                    words = [line.strip() for line in said if re.match(r" *[^ #0-9].*[A-Za-z]", line)]
                    reason = words[0] if words else f"status {child.returncode}"
            except subprocess.TimeoutExpired:
                reason = f"took longer than {self.limit} s"
            finally:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
            lines = [json.loads(line) for line in found.read().splitlines()]
        if not reason and not lines:
            reason = "wrote no line"
        for line in lines:
            # What a program does not know: what it stands beside, how its library was set.
            line |= {"library": way.library, "collective": collective, "transport": transport,
                     "algorithm": way.algorithm, "run": run}
            if line["wrong"]:
                self.complaints.append(f"{way.name}, {transport}, {ranks} ranks, {collective} of "
                                       f"{line['bytes']} B: {line['wrong']} values are wrong")
            with self.file.open("a") as out:
                out.write(json.dumps(line) + "\n")
        self.lines += lines
        return reason


def in_own_network(congestion):
    """Starts this program again where TCP is ours to set; goes on where that cannot be."""
    if os.environ.pop("COMPARE_NETWORK", None):
        return
    inner = 'ip link set lo up && echo "$0" >/proc/sys/net/ipv4/tcp_congestion_control && exec "$@"'
    alone = ["unshare"] + ["-r"] * (os.geteuid() != 0) + ["-n", "sh", "-c", inner, congestion]
    try:
        if subprocess.run(alone + ["true"], stderr=subprocess.DEVNULL).returncode == 0:
            os.environ["COMPARE_NETWORK"] = "1"
            os.execvp(alone[0], alone + [sys.executable] + sys.argv)
    except FileNotFoundError:
        pass
    print("no network of our own here: all TCP has the host's congestion control, "
          + pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip())


class Progress:
    def __init__(self, turns):
        self.turns, self.done, self.began = turns, 0, time.monotonic()

    def __call__(self, words):
        if sys.stderr.isatty():
            left = ""
            if self.done:
                left = (time.monotonic() - self.began) / self.done * (self.turns - self.done) / 60
                left = f", about {left:.0f} min to go"
            print(f"\r\033[K{self.done} of {self.turns}{left}: {words}", end="", file=sys.stderr,
                  flush=True)
        self.done += 1

    @staticmethod
    def say(words):
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        print(words, flush=True)


def measure(given, results):
    bench = given.build / "bench"
    here = {library for library in PEERS if (bench / f"compare-{library}").is_file()}
    for library in PEERS:
        if library not in here and not given.forced and not given.against:
            print(f"left out: {library}: its library is not installed (./dev setup --compare)")
    groups = [(t, p, c) for t, p in given.places for c in given.collectives]

    def made(*place):
        if given.against:
            return builds({"this": given.build, "other": given.against}, *place)
        return forced_ways(bench, *place) if given.forced else ways(bench, *place)
    beside = {(t, p, c): [way for way in made(t, c, p) if way.library not in PEERS
                          or way.library in here] for t, p, c in groups}
    progress = Progress(sum(map(len, beside.values())) * given.launches * given.runs)
    good, useless = set(), set()
    for run in range(given.runs):
        measure_once(given, results, beside, progress, run, good, useless)
    progress("done")
    progress.say("")


def measure_once(given, results, beside, progress, run, good, useless):
    for (transport, ranks, collective), turns in beside.items():
        options = {}
        progress.say(f"{collective} over {transport}, {ranks} ranks:")
        for way in turns:
            key = (way.name, transport)
            sizes = sized(way, collective, ranks, given.sizes)
            if sizes is None or key in useless:
                continue
            common = ["--seconds", str(given.seconds)] * (way.library != "floor")
            common += ["--turns"] * (given.turns and way.library != "floor")
            options[way] = sizes + common + ["-n", str(given.iterations)] * bool(given.iterations)
            progress.say(f"  {way.name}: {way} {shlex.join(options[way])}")
        for launch in range(given.launches):
            for way in turns[launch % len(turns):] + turns[:launch % len(turns)]:
                progress(f"{transport}, {ranks} ranks, {collective}, launch {launch + 1}: {way.name}")
                if way not in options:
                    continue
                why = results.launch(way, options[way], collective, ranks, transport, run)
                key = (way.name, transport)
                if why is None:
                    good.add(key)
                    continue
                place = f"{transport}, {ranks} ranks, {collective}"
                where = place if key in good else transport
                progress.say(f"left out: {way.name}, {where}: {why}")
                if way.library not in PEERS and not (given.forced and "not_applicable" in why):
                    results.complaints.append(f"{way.name}, {place}: {why}")
                del options[way]
                if key not in good:
                    useless.add(key)


def main():
    whole = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    def several(known, kind=str):
        def parse(text):
            found = [kind(word) for word in text.split(",")]
            if known and not set(found) <= set(known):
                raise argparse.ArgumentTypeError(f"{text}: not all of these are in {known}")
            return found
        return parse

    whole.add_argument("build", type=pathlib.Path, help="where ./dev builds")
    whole.add_argument("--quick", action="store_true",
                       help="2 ranks, all_reduce, 7 sizes: some minutes (else hours)")
    whole.add_argument("--collectives", type=several(COLLECTIVES), metavar="A,B")
    whole.add_argument("--ranks", type=several(None, int), metavar="2,4,8")
    whole.add_argument("--transports", type=several(TRANSPORTS), metavar=",".join(TRANSPORTS))
    whole.add_argument("--sizes", type=several(None, int), metavar="BYTES,BYTES")
    whole.add_argument("--launches", type=int, default=3)
    whole.add_argument("--iterations", type=int, default=0, help="0: by size")
    whole.add_argument("--seconds", type=float, default=1,
                       help="fewer iterations where one size takes longer")
    whole.add_argument("--turns", action="store_true", help="each call with the barrier before it")
    whole.add_argument("--limit", type=float, default=120, help="seconds for one launch")
    whole.add_argument("--congestion", default="reno", help="for all TCP")
    whole.add_argument("--file", type=pathlib.Path, help="the lines; default BUILD/compare.jsonl")
    whole.add_argument("--picture", type=pathlib.Path, help="default: beside the lines, .svg")
    whole.add_argument("--draw", action="store_true", help="measure nothing, show what FILE has")
    whole.add_argument("--forced", action="store_true",
                       help="no peers: colls' choice beside each algorithm that it has")
    whole.add_argument("--against", type=pathlib.Path, metavar="OTHER",
                       help="no peers: this build beside the one in OTHER")
    whole.add_argument("--runs", type=int, default=1, help="all of it so many times")
    whole.add_argument("--best", action="store_true",
                       help="show the best times instead of medians: for a machine that is busy")
    given = whole.parse_args()
    given.collectives = given.collectives or (COLLECTIVES[:1] if given.quick else COLLECTIVES)
    given.places = AGAINST
    if not given.against or given.ranks or given.transports:
        given.places = [(transport, ranks)
                        for ranks in given.ranks or ([2] if given.quick else [2, 4, 8])
                        for transport in given.transports or ["shm", "tcp"]]
    given.sizes = given.sizes or (FEW_SIZES if given.quick or given.against else SIZES)
    given.file = given.file or given.build / "compare.jsonl"
    given.picture = given.picture or given.file.with_suffix(".svg")

    complaints = []
    if given.draw:
        lines = [json.loads(line) for line in given.file.read_text().splitlines()]
    else:
        in_own_network(given.congestion)
        given.file.write_text("")
        results = Results(given.file, given.limit)
        try:
            measure(given, results)
        except KeyboardInterrupt:
            print("\nbroken off; this is what there is so far", file=sys.stderr)
        lines, complaints = results.lines, results.complaints
    if given.against:
        report, slower = compare_report.against(lines, given.best)
        print("\n".join(report))
        complaints += slower
    elif given.forced:
        print("\n".join(compare_report.choices(lines)))
    else:
        print("\n".join(compare_report.tables(lines, given.best)))
        given.picture.write_text(compare_report.picture(lines, given.best))
        print(f"lines: {given.file}; picture: {given.picture}")
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    sys.exit(bool(complaints))


main()
