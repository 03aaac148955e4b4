#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Builds the programs for GPUs, runs them on this machine, and prints their figures, their states and, last,
the goals.

A program that does not compile, fails or hangs is reported and does not stop the others. The exit status is
77 without a GPU or nvcc, and 1 if a program failed.

PACKAGEs are installed through apt if their files are missing, the script runs as root, and the network is
reachable.

usage: gpu.py ROOT BUILD [PACKAGE...] | gpu.py --flags | gpu.py --self-test
"""

import collections
import concurrent.futures
import contextlib
import glob
import io
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

# `sources` are separated by spaces; the libraries in `uses` are linked if they are present, and HAS_... is
# defined then; `runs` are the arguments of each run; `stages`: staging through the host is expected, or
# refusals are planted.
Program = collections.namedtuple("Program", "name sources needs kind uses runs stages",
                                 defaults=((), "test", (), ("",), False))

PROGRAMS = (
    Program("device", "tests/cuda/device.cu"),
    Program("inproc", "tests/cuda/inproc.cu"),
    Program("one_shot", "tests/cuda/one_shot.cu"),
    Program("staged", "tests/cuda/staged.cu", stages=True),
    Program("ipc", "tests/cuda/ipc.cu"),
    Program("processes", "tests/cuda/processes.cu", ("sockets",)),
    Program("nccl", "tests/cuda/nccl.cu", ("nccl",)),
    Program("nccl_processes", "tests/cuda/nccl_processes.cu", ("nccl", "sockets")),
    Program("structs", "examples/09_gpu_structs.cu", ("sockets",), "example"),
    Program("checkpoint", "examples/10_gpu_checkpoint.cu", ("sockets",), "example"),
    Program("figures", "bench/gpu.cu", kind="figures"),
    Program("nccl_figures", "bench/nccl.cu", ("nccl",), "figures"),
    Program("colls-bench", "bench/colls_bench.cu bench/colls_bench.cpp",
            ("sockets", "command_line"), "figures", ("nccl",),
            ("all_reduce --transport cuda_ipc --seconds 2 --sizes 8,512,4K,64K,64M,256M,1G",
             "all_reduce --registered 1 --transport cuda_ipc --seconds 2 --sizes 8,64K,64M,1G",
             "all_reduce --transport nccl --seconds 2 --sizes 8,64K,64M",
             "all_reduce --transport tcp --memory device --seconds 2 --sizes 8,64K,64M")),
)

# Flags for nvcc besides the architecture; ./dev test compiles a program with them, too.
FLAGS = ("-std=c++20", "-O2", "--extended-lambda", "-Xcompiler", "-Wno-subobject-linkage", "-t", "0")

# Compiled and run before anything else, since tests of a GPU pass on machines without one.
PROBE = r"""#include <cstdio>
__global__ void store(int* to) { *to = 42; }
int main() {
  int* at = nullptr;
  int got = 0;
  cudaError_t bad = cudaMalloc(&at, sizeof got);
  if (bad == cudaSuccess) {
    store<<<1, 1>>>(at);
    bad = cudaMemcpy(&got, at, sizeof got, cudaMemcpyDefault);
  }
  std::printf("%s\n", cudaGetErrorString(bad));
  return bad == cudaSuccess && got == 42 ? 0 : 1;
}
"""

# What programs need besides nvcc. Each program is compiled, linked and run, and prints a version.
LIBRARIES = {
    "nccl": """#include <cstdio>
#include <nccl.h>
int main() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess || version < NCCL_VERSION_CODE) return 1;
  std::printf("%d\\n", version);
}
""",
    "command_line": """#include <CLI/Version.hpp>
#include <cstdio>
int main() { std::printf("%d\\n", CLI11_VERSION_MAJOR * 100 + CLI11_VERSION_MINOR); }
""",
    "sockets": """#include <cstdio>
#include <boost/asio/version.hpp>
#include <openssl/evp.h>
int main() { std::printf("%d\\n", OpenSSL_version_num() != 0 ? BOOST_ASIO_VERSION : 0); }
""",
}
# What cuda/ipc_peers.hpp logs of calls and memory that work, but not in the fastest way.
STAGED = re.compile(r"(staged through the host|not by descriptors): (.*?)(?:\. Hint|$)")
FETCHED = "on a machine that has network: ./dev gpu --fetch"
INSTALLED = ("sockets", "command_line")
ABSENT = {
    "command_line": f"CLI11 ({FETCHED})",
    "nccl": "NCCL's header and a library that is not older, of the toolkit, libnccl-dev or PyTorch",
    "sockets": f"Boost and OpenSSL ({FETCHED})",
}


def out_of(command, most=60):
    """What a command prints, or "" if it fails or does not exist."""
    try:
        return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              stdin=subprocess.DEVNULL, timeout=most, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def run(commands, log, most):
    """Runs commands, each (arguments, environment), at the same time in the folder of the log; returns (what
    went wrong or None, seconds). "77" is returned as what went wrong if no other status was bad. All
    processes that the commands started are killed at the end."""
    began, statuses, wrong = time.monotonic(), [], None
    with open(log, "ab") as file:
        started = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                    cwd=os.path.dirname(log), env={**os.environ, **environment},
                                    start_new_session=True)
                   for command, environment in commands]
        try:
            for process in started:
                statuses.append(process.wait(max(0.1, began + most - time.monotonic())))
        except subprocess.TimeoutExpired:
            wrong = f"took longer than {most:.0f} s"
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for status in statuses:
        if status and wrong in (None, "77"):
            wrong = "77" if status == 77 else f"signal {-status}" if status < 0 else f"exit status {status}"
    return wrong, time.monotonic() - began


def why_not_installed(packages, log, helper, most_of_asking, most):
    """Installs packages through apt; returns the reason if that fails, or None. If the first source of apt does
    not answer, apt is not called."""
    quick = ["-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=5", "-o", "Acquire::https::Timeout=5",
             "-o", "APT::Sandbox::User=root", "-o", "DPkg::Lock::Timeout=20", "-o", "Dpkg::Use-Pty=0"]
    targets = out_of(["apt-get", "indextargets"], most_of_asking)
    source = re.search(r"^URI: (https?://\S+?/dists/[^/\s]+/)", targets, flags=re.M)
    asks = [helper, *quick, "download-file", f"{source[1]}InRelease", f"{log}.InRelease"] if source else []
    apt = ["apt-get", "-q", "-y", *quick]
    install = [*apt, "install", "--no-install-recommends"]
    ends = time.monotonic() + most
    for command, seconds, why in (
            (asks, most_of_asking, f"{source and source[1]} does not answer"),
            ([*apt, "update"], None, "apt-get update"),
            ([*install, "--download-only", *packages], None, "apt-get does not get them"),
            # dpkg must not be killed while it works.
            ([*install, *packages], 600, "apt-get does not install them")):
        if command:
            left = seconds or max(1, ends - time.monotonic())
            wrong = run([(command, {"DEBIAN_FRONTEND": "noninteractive"})], log, left)[0]
            if wrong:
                return f"{why}: {wrong}"
    return None


def lines_of(log):
    return [line[:300] for line in pathlib.Path(log).read_text(errors="replace").splitlines()]


def staged(log):
    """Why a program was staged through the host unexpectedly, according to its log; empty if it was not."""
    found = next(filter(None, map(STAGED.search, lines_of(log))), None)
    return f"but {found[1]}: {found[2]}" if found else ""


def two_ranks(command):
    """The command for two ranks, with the environment of a launcher."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    return [(command, {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}) for rank in ("0", "1")]


def compared(output):
    """(goal, must, aim, got, verdict) of the figures in the output of programs, by their names."""
    # A figure of a line, and its ratio to the reference on the same line.
    figures = {}
    for name in ("figures", "nccl_figures"):
        for line in output.get(name, ()):
            if found := re.match(r"(.{48}) +([\d.]+) \S+ *([\d.]*)$", line):
                figures[found[1].strip()] = float(found[2]), float(found[3] or 0)
    # The time for a size, and the ratio of the floor to it, if there is a floor.
    sizes = {}
    for words in map(str.split, output.get("colls-bench cuda_ipc", ())):
        if len(words) >= 11 and words[0].isdigit():
            sizes[int(words[0])] = float(words[5]), float(words[12]) if len(words) > 12 else 0

    def all_of(pattern):
        matches = [(re.fullmatch(pattern, what), value) for what, value in figures.items()]
        return {found[1]: value for found, value in matches if found}
    alone = all_of("ncclAllReduce alone, [2-9] ranks, (.*)")
    by_nccl = all_of("nccl all_reduce, [2-9] ranks, (.*)")
    threads = all_of("cuda_ipc all_reduce, 2 threads, (.*)")
    # The worst of each: the smallest ratio, the longest time.
    rows = (
        ("reduce kernels of 256 MiB, part of the device's copy", 0.85, 0.93,
         [-part for _, part in all_of("reduce, (.*)").values()]),
        ("cuda_ipc, 2 processes, 64 MiB to 1 GiB, part of the floor", 0.8, 0.9,
         [-part for size, (_, part) in sizes.items() if size >= 64 << 20 and part]),
        ("cuda_ipc, 2 processes, 8 B to 64 KiB, us", 60, 25,
         [time for size, (time, _) in sizes.items() if size <= 64 << 10]),
        ("cuda_ipc, 2 threads, times as fast as ncclAllReduce", 1, 3,
         [-alone[size][0] / threads[size][0] for size in threads if size in alone]),
        ("nccl, 2 ranks, us over 1.01 of ncclAllReduce", 3, 1,
         [time - 1.01 * alone[size][0] for size, (time, _) in by_nccl.items() if size in alone]),
        ("resumed after a kernel's end, us", 10, 3,
         [time for time, _ in all_of("resumed after a kernel of 1 ms, (.*)").values()]),
        ("staged, 64 MiB, part of the slower of copy and host", 0.8, 0.9,
         [-part for _, part in all_of("staged all_reduce(.*)").values()]),
    )
    for what, must, aim, got in rows:
        worst = max(got, default=None)
        sign = 1 if aim < must else -1
        verdict = ("not measured" if worst is None else "aim" if worst <= sign * aim else
                   "must" if worst <= sign * must else "MISSED")
        yield what, must, aim, "" if worst is None else f"{sign * worst:.2f}", verdict


class Gpu:
    def __init__(self, root, build, nvcc, apt, most, most_of_compiling, most_in_all):
        self.apt = apt
        self.root, self.build, self.nvcc = pathlib.Path(root), pathlib.Path(build).resolve(), nvcc
        self.most, self.most_of_compiling = most, most_of_compiling
        self.ends = time.monotonic() + most_in_all
        self.rows, self.figures = [], []
        shutil.rmtree(self.build, ignore_errors=True)
        self.build.mkdir(parents=True)

    def left(self, most=None):
        return min(most or self.most, self.ends - time.monotonic())

    def row(self, name, wrong, seconds=0.0, log=None, why=None, most_lines=20, mark=""):
        """Records how a program ended; `why` is the reason if it was skipped, `mark` a further remark."""
        state = "failed" if wrong else "skipped" if why is not None else "passed"
        words = "; ".join(filter(None, (wrong or why, mark)))
        self.rows.append((name, state, seconds, words))
        print(f"{state:8}{name:24}{seconds:4.0f} s  {words}", flush=True)
        if wrong and log:
            lines = lines_of(log)
            lines = lines[:most_lines] if wrong.startswith("does not compile") else lines[-most_lines:]
            for line in lines:
                print(f"    {line}", flush=True)

    def compiled(self, sources, name, flags=()):
        """Why it does not compile, or None. BUILD/NAME is the program, BUILD/NAME.log the output of nvcc."""
        command = [self.nvcc, *FLAGS, "-arch=native",
                   "-I", str(self.root / "include"), *map(str, sources), *flags, "-o", str(self.build / name)]
        most = max(1, self.left(self.most_of_compiling))
        wrong = run([(command, {})], self.build / f"{name}.log", most)[0]
        return wrong and "does not compile" + ("" if wrong.startswith("exit status") else f": it {wrong}")

    def written(self, name, text):
        source = self.build / name
        source.write_text(text)
        return source

    def version(self, library, place, flags):
        """The version of the library in this place; 0 if it cannot be used."""
        name = re.sub(r"\W", "-", f"{library}-{place}")
        source = self.written(f"{name}.cpp", LIBRARIES[library])
        if self.compiled([source], name, flags):
            return 0
        return int(out_of([str(self.build / name)]) or 0)

    def libraries(self):
        """The flags of each library that is present; of several versions those of the newest."""
        fetched = self.root / "build-fetched" / "packages.tar.gz"
        places = [("sockets", "system", ["-lcrypto"]), ("command_line", "system", [])]
        if fetched.is_file():
            subprocess.run(["tar", "-xzf", str(fetched), "-C", str(self.build)], check=False)
            tree = self.build / "usr"
            found = ["-I", str(tree / "include")]
            for folder in glob.glob(f"{tree}/include/*-linux-gnu"):
                found += ["-I", folder]
            for folder in glob.glob(f"{tree}/lib/*-linux-gnu"):
                found += ["-L", folder, *self.found_at_run_time(folder)]
            places = [("sockets", "fetched", [*found, "-lcrypto"]), ("command_line", "fetched", found)]
        places.append(("nccl", "system", ["-lnccl"]))
        toolkit = pathlib.Path(self.nvcc).resolve().parent.parent / "lib64"
        if glob.glob(f"{toolkit}/libnccl.so*"):  # linked here; without an rpath another one might be loaded
            places.append(("nccl", "toolkit", ["-lnccl", *self.found_at_run_time(str(toolkit))]))
        for folder in self.wheels():
            library = next(iter(sorted(glob.glob(f"{folder}/lib/libnccl.so*"))), "none")
            # A linker may omit a library that no object has needed so far.
            linked = ["-Xlinker", "--no-as-needed", "-Xlinker", library]
            places.append(("nccl", folder, ["-I", f"{folder}/include", *linked,
                                            *self.found_at_run_time(f"{folder}/lib")]))
        found = self.usable(places)
        absent = [place for place in places if place[1] == "system" and place[0] in INSTALLED and
                  place[0] not in found]
        return {**found, **self.installed(absent)} if absent else found

    def usable(self, places):
        """The flags of the libraries that can be used."""
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            versions = list(pool.map(lambda place: self.version(*place), places))
        found = {}
        for version, (library, place, flags) in sorted(zip(versions, places), key=lambda x: x[0]):
            if version:
                found[library] = flags
                print(f"{library}: {version}, {place}")
        return found

    def installed(self, places):
        """The flags of libraries that apt installs first."""
        if not self.apt or not shutil.which("apt-get"):
            return {}
        packages, helper, most_of_asking = self.apt
        print(f"installing through apt: {' '.join(packages)}", flush=True)
        why = why_not_installed(packages, str(self.build / "apt.log"), helper, most_of_asking, self.left(150))
        if why:
            print(f"not installed: {why}", flush=True)
            return {}
        return self.usable(places)

    @staticmethod
    def found_at_run_time(folder):
        """RPATH and not RUNPATH, since a library that the environment names instead may be older."""
        return ["-Xlinker", "-rpath", "-Xlinker", folder, "-Xlinker", "--disable-new-dtags"]

    @staticmethod
    def wheels():
        """Folders of the NCCL that comes with PyTorch."""
        outputs = [out_of([python, "-c", "import sys; print('\\n'.join(sys.path))"])
                   for python in ("python3", "python", "/opt/conda/bin/python3")]
        folders = sorted({os.path.realpath(path) for text in outputs for path in text.splitlines() if path})
        return [f"{folder}/nvidia/nccl" for folder in folders
                if os.path.exists(f"{folder}/nvidia/nccl/include/nccl.h")]

    def sanitizer(self):
        """The command, and the reason if it cannot be used."""
        name = "compute-sanitizer"
        path = shutil.which(name) or os.path.join(os.path.dirname(self.nvcc), name)
        # colls handles CUDA calls that fail, and tests make some fail.
        command = [path, "--report-api-errors", "no", "--error-exitcode", "9"]
        if not os.path.exists(path):
            return command, f"no {name}"
        log = self.build / f"{name}-probe.log"
        wrong = run([([*command, str(self.build / "probe")], {})], log, max(1, min(60, self.left())))[0]
        return command, wrong and f"it cannot run a trivial program: {(lines_of(log) or [wrong])[-1]}"

    def build_and_test(self, found):
        """Runs tests and examples as soon as they are built; returns the programs that can be run."""
        wanted = []
        for program in PROGRAMS:
            absent = [ABSENT[need] for need in program.needs if need not in found]
            if absent:
                self.row(program.name, None, why=f"needs {absent[0]}")
            else:
                wanted.append(program)

        def compiled(program):
            began = time.monotonic()
            flags = [flag for library in (*program.needs, *program.uses) for flag in found.get(library, ())]
            flags += [f"-DHAS_{library.upper()}" for library in program.uses if library in found]
            sources = [self.root / source for source in program.sources.split()]
            return self.compiled(sources, program.name, flags), time.monotonic() - began

        built, began = set(), time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            # The last programs take longest.
            jobs = {pool.submit(compiled, program): program for program in reversed(wanted)}
            for job in concurrent.futures.as_completed(jobs):
                program, (wrong, seconds) = jobs[job], job.result()
                if wrong:
                    self.row(program.name, wrong, seconds, self.build / f"{program.name}.log")
                    continue
                built.add(program)
                if program.kind != "figures":
                    self.run_program(program)
        print(f"built and tested in {time.monotonic() - began:.0f} s", flush=True)
        return [program for program in wanted if program in built]

    def start(self, name, commands, log=None, stages=False):
        """Runs commands, records how they ended, and returns whether they passed. `stages`: as in Program."""
        log = log or self.build / f"{name}.out"
        if self.left() < 1:
            self.row(name, "not run: the time is over")
            return False
        wrong, seconds = run(commands, log, self.left())
        last = (lines_of(log) or [""])[-1]
        why = re.sub(r"^skipped: ", "", last) if wrong == "77" else None
        self.row(name, None if wrong == "77" else wrong, seconds, log, why, mark="" if stages else staged(log))
        return wrong is None

    def run_program(self, program):
        for words in program.runs:
            command = [str(self.build / program.name), *words.split()]
            commands = two_ranks(command) if program.kind == "example" else [(command, {})]
            kind = re.search(r"registered|cuda_ipc|nccl|tcp", words)
            name = f"{program.name} {kind[0]}" if kind else program.name
            log = self.build / f"{name.replace(' ', '-')}.out"
            if self.start(name, commands, log, program.stages) and program.kind == "figures":
                self.figures.append((name, log))

    def run_alone(self, built):
        """Runs programs for figures, while nothing is compiled, and kernels under compute-sanitizer."""
        for program in built:
            if program.kind == "figures":
                self.run_program(program)
        kernels = [program.name for program in built if program.name in ("device", "one_shot")]
        command, why = self.sanitizer() if kernels else ([], None)
        for name in kernels:
            if why:
                self.row(f"sanitized {name}", None, why=why)
            else:
                self.start(f"sanitized {name}", [([*command, str(self.build / name), "quick"], {})])

    def everything(self):
        probe = self.written("probe.cu", PROBE)
        wrong = self.compiled([probe], "probe")
        if wrong:
            self.row("probe", wrong, log=self.build / "probe.log")
        elif self.start("probe", [([str(self.build / "probe")], {})]):
            self.run_alone(self.build_and_test(self.libraries()))
        return self.tables()

    def tables(self):
        for name, log in self.figures:
            print(f"\n== {name}\n" + "\n".join(lines_of(log)))
        print(f"\n{'program':24}{'state':8}{'s':>5}")
        for name, state, seconds, why in self.rows:
            print(f"{name:24}{state:8}{seconds:5.0f}  {why}")
        count = collections.Counter(state for _, state, _, _ in self.rows)
        print(", ".join(f"{count[state]} {state}" for state in ("passed", "failed", "skipped")))
        gpus = len(out_of(["nvidia-smi", "-L"]).splitlines())
        goal = f"goal ({gpus} GPUs)" if gpus > 1 else "goal (ranks share one GPU)"
        print(f"\n{goal:64}{'must':>6}{'aim':>6}{'got':>9}")
        for what, must, aim, got, verdict in compared({name: lines_of(log) for name, log in self.figures}):
            print(f"{what:64}{must:6}{aim:6}{got:>9}  {verdict}")
        return 1 if count["failed"] else 0


def gpu(root, build, packages=(), toolkit=os.environ.get("CUDA_HOME", "/usr/local/cuda"),
        nodes="/dev/nvidia[0-9]*", is_root=os.geteuid() == 0, helper="/usr/lib/apt/apt-helper", most_of_asking=8,
        most=150, most_of_compiling=300, most_in_all=470):
    """Runs everything and returns the exit status."""
    nvcc = shutil.which("nvcc") or shutil.which(f"{toolkit}/bin/nvcc")
    missing = [] if nvcc else ["nvcc, of the CUDA toolkit"]
    if not glob.glob(nodes) and not out_of(["nvidia-smi", "-L"]):
        missing.append("a GPU with its driver: neither /dev/nvidia0 nor nvidia-smi")
    if missing:
        print("no CUDA device")
        print("\n".join(f"missing: {what}" for what in missing))
        return 77
    print(out_of(["nvidia-smi", "--query-gpu=name,driver_version,compute_cap,memory.total",
                  "--format=csv,noheader"]))
    print(f"{nvcc}: {(out_of([nvcc, '--version']).splitlines() or ['?'])[-1]}", flush=True)
    apt = (packages, helper, most_of_asking) if packages and is_root else None
    return Gpu(os.path.abspath(root), build, nvcc, apt, most, most_of_compiling, most_in_all).everything()


# --- the test of this script --------------------------------------------------------------------

# A stand-in for nvcc: it "compiles" a source to the script that is planned for the source's name.
FAKE_NVCC = """#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in
    -o) out=$2; shift ;;
    --version) echo "no nvcc, a stand-in"; exit ;;
    *.cu | *.cpp) source=${1##*/} ;;
  esac
  shift
done
plan=$(dirname "$0")/$source
[ -f "$plan" ] || plan=$(dirname "$0")/else
if grep -q '^error' "$plan"; then cat "$plan"; exit 1; fi
if grep -q '^slow' "$plan"; then sleep 60; fi
cp "$plan" "$out"; chmod +x "$out"
"""
GOOD = {"else": "#!/bin/sh\necho 1\n", "gpu.cu": "#!/bin/sh\necho a figure\n"}
FIGURES = {
    "gpu.cu": """reduce, 2 x 256 MiB float                           4100.00 GB/s  0.94
reduce, 4 x 256 MiB bfloat16                        3900.00 GB/s  0.86
co_await of an idle stream                             4.00 us
resumed after a kernel of 1 ms, inproc                 2.50 us
resumed after a kernel of 1 ms, threads                2.75 us
staged all_reduce between 2 threads, 64 MiB            9.00 ms    0.79
cuda_ipc all_reduce, 2 threads, 64 KiB                20.00 us
cuda_ipc all_reduce, 2 threads, 65536 KiB            100.00 us    0.90
""",
    "nccl.cu": """ncclAllReduce alone, 1 rank, no goal, 64 KiB           1.00 us
nccl all_reduce, 1 rank, no goal, 64 KiB               9.00 us    0.11
ncclAllReduce alone, 2 ranks, 64 KiB                  30.00 us
nccl all_reduce, 2 ranks, 64 KiB                      32.50 us    0.92
ncclAllReduce alone, 2 ranks, 65536 KiB              400.00 us
nccl all_reduce, 2 ranks, 65536 KiB                  405.00 us    0.98
""",
    "colls_bench.cpp": """#  size count type redop root median min p99 algbw busbw #wrong floor of it
          8     2 float plus 0  20.00 19.00  30.00   0.00   0.00 0  0.00 0.00
      65536 16384 float plus 0  61.00 19.00  90.00   1.00   1.00 0  0.00 0.00
   67108864 16777216 float plus 0 100.00 90.00 110.00 670.00 670.00 0 85.00 0.85
""",
}
FIGURES = {name: f"#!/bin/sh\ncat <<'END'\n{text}END\n" for name, text in FIGURES.items()}
LESS = """#!/bin/sh
echo "colls: warning: rank 0 cannot work in device memory of rank 1, so all_reduce #3 on communicator 1f and \
calls like it are staged through the host: mapping failed (of no use). Hint: look at nvidia-smi" >&2
echo "ok"
"""
BY_HANDLES = """#!/bin/sh
echo "colls: warning: rank 1 shares what it allocates by handles of CUDA's IPC, not by descriptors: not supported" >&2
"""
BAD = {
    "staged.cu": "error: planted",
    "inproc.cu": "slow",
    "ipc.cu": "#!/bin/sh\necho WRONG element; exit 3\n",
    "processes.cu": "#!/bin/sh\nsleep 60 & wait\n",
    "nccl.cu": "#!/bin/sh\necho skipped: for a reason; exit 77\n",
    "09_gpu_structs.cu": "#!/bin/sh\nexit $((RANK * 5))\n",
    "10_gpu_checkpoint.cu": "#!/bin/sh\nkill -9 $$\n",
}


def self_test():
    """(passed, what is wrong) for machines that scripts simulate."""
    both = {"nvcc": FAKE_NVCC, "nvidia-smi": "#!/bin/sh\necho a GPU that is none\n"}
    # Fails unless it is told not to report failed CUDA calls.
    sanitizer = {"compute-sanitizer": """#!/bin/sh
case $* in *'--report-api-errors no '*) shift 4; exec "$@" ;; *) exit 9 ;; esac
"""}
    # Has one source, and installs the files that let the probe of a library compile.
    apt = {"sockets-system.cpp": "error", "command_line-system.cpp": "error", "apt-get": """#!/bin/sh
case $* in
  indextargets) echo 'URI: http://mirror.invalid/debian/dists/some/main/Packages' ;;
  *--download-only*) ;;
  *' boost cli') for library in sockets command_line; do cp "${0%/*}/else" "${0%/*}/$library-system.cpp"; done ;;
esac
"""}
    broken = {"compute-sanitizer": "#!/bin/sh\necho no counters here\nexit 1\n"}
    cases = {
        "no nvcc": ({"nvidia-smi": both["nvidia-smi"]}, 77, [r"\Ano CUDA device\nmissing: nvcc.*\n\Z"]),
        "no GPU": ({"nvcc": FAKE_NVCC}, 77, [r"\Ano CUDA device\nmissing: a GPU .*\n\Z"]),
        "a GPU that does not work": (
            {**both, **GOOD, "probe.cu": "#!/bin/sh\necho driver is too old; exit 1\n"}, 1,
            [r"^    driver is too old$", r"\nprobe +failed +\d+  exit status 1\n0 passed, 1 failed, 0 skipped\n\n"
             r"goal .*\n(.*  not measured\n){7}\Z"]),
        "all passes": ({**both, **GOOD, **sanitizer, "../lib64/libnccl.so": ""}, 0, [
            r"^nccl: 1, toolkit$", r"^device +passed",
            r"^inproc +passed", r"^sanitized device +passed", r"^sanitized one_shot +passed",
            r"^19 passed, 0 failed, 0 skipped$", r"^colls-bench registered +passed",
            r"^colls-bench nccl +passed", r"== figures\na figure\n",
            r"== figures\n(.*\n)*program +state(.*\n)*19 passed, .*\n\n"
            r"goal \(ranks share one GPU\) +must +aim +got\n(.*  not measured\n){7}\Z"]),
        "figures": ({**both, **GOOD, **sanitizer, **FIGURES}, 0, [
            r"^reduce kernels .* 0.85 +0.93 +0.86  must$", r"^cuda_ipc, 2 processes, 64 MiB .* 0.85  must$",
            r"^cuda_ipc, 2 processes, 8 B .* 60 +25 +61.00  MISSED$",
            r"^cuda_ipc, 2 threads, .* 1 +3 +1.50  must$", r"^nccl, 2 ranks, .* 3 +1 +2.20  must$",
            r"^resumed .* 10 +3 +2.75  aim$", r"^staged, .* 0.8 +0.9 +0.79  MISSED\n\Z"]),
        "some are staged": ({**both, **GOOD, **sanitizer, "ipc.cu": LESS, "staged.cu": LESS, "processes.cu": BY_HANDLES,
                             "09_gpu_structs.cu": LESS + "exit 5"}, 1, [
            r"^ipc +passed +\d+  but staged through the host: mapping failed \(of no use\)$",
            r"^processes +passed +\d+  but not by descriptors: not supported$",
            r"^structs +failed +\d+  exit status 5; but staged through the host: mapping failed",
            r"^staged +passed +\d+  $", r"^18 passed, 1 failed, 0 skipped$"]),
        "no libraries": ({**both, **GOOD, "sockets-system.cpp": "error", "nccl-system.cpp": "error",
                          "command_line-system.cpp": "error"}, 0, [
            r"^processes +skipped +0  needs Boost", r"^nccl +skipped +0  needs NCCL",
            r"^sanitized device +skipped +0  no compute-sanitizer$", r"^7 passed, 0 failed, 9 skipped$"]),
        "libraries by apt": ({**both, **GOOD, **sanitizer, **apt, "apt-helper": "#!/bin/sh\n"}, 0, [
            r"^installing through apt: boost cli$", r"^sockets: 1, system$", r"^19 passed, 0 failed, 0 skipped$"]),
        "no network": ({**both, **GOOD, **sanitizer, **apt, "apt-helper": "#!/bin/sh\nsleep 60\n"}, 0, [
            r"^not installed: http://mirror.invalid/debian/dists/some/ does not answer: took longer than 1 s$",
            r"^processes +skipped +0  needs Boost", r"^colls-bench +skipped +0  needs Boost"]),
        "some fail": ({**both, **GOOD, **BAD, **broken}, 1, [
            r"^    error: planted$", r"^staged +failed +\d+  does not compile$",
            r"^inproc +failed +[23]  does not compile: it took longer than 2 s$",
            r"^    WRONG element$", r"^ipc +failed +\d+  exit status 3$",
            r"^processes +failed +[12]  took longer than 1 s$", r"^nccl +skipped +0  for a reason$",
            r"^structs +failed +0  exit status 5$", r"^checkpoint +failed +0  signal 9$",
            r"^sanitized one_shot +skipped +0  it cannot run a trivial program: no counters here$",
            r"^device +passed", r"^nccl_processes +passed", r"^9 passed, 6 failed, 4 skipped$",
            r"== figures\na figure\n"]),
    }
    passed, failed = 0, []
    path = os.environ["PATH"]
    for name, (files, status, expected) in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            tools = pathlib.Path(folder) / "tools"
            tools.mkdir()
            for file, text in files.items():
                (tools / file).parent.mkdir(exist_ok=True)
                (tools / file).write_text(text)
                (tools / file).chmod(0o755)
            for tool in ("sh", "grep", "cat", "cp", "chmod", "sleep", "dirname"):
                (tools / tool).symlink_to(shutil.which(tool, path=path))
            os.environ["PATH"] = str(tools)
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                got = gpu(folder, pathlib.Path(folder) / "build", ("boost", "cli"), toolkit="/nothing",
                          nodes="/nothing", is_root=True, helper=f"{tools}/apt-helper", most_of_asking=1,
                          **({"most": 1, "most_of_compiling": 2} if name == "some fail" else {"most": 20}))
            os.environ["PATH"] = path
            text = output.getvalue()
            lost = [what for what in expected if not re.search(what, text, flags=re.M)]
            if got != status or lost:
                failed.append(f"{name}: status {got}, not there: {lost}, but this:\n{text}")
            else:
                passed += 1
    return passed, failed


def main():
    if sys.argv[1:] == ["--self-test"]:
        passed, failed = self_test()
        for problem in failed:
            print(problem)
        print(f"{passed} passed, {len(failed)} failed")
        sys.exit(bool(failed))
    if sys.argv[1:] == ["--flags"]:
        sys.exit(print(*FLAGS))
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(gpu(*sys.argv[1:3], sys.argv[3:]))


main()
