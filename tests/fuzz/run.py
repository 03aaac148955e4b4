#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Fuzzes the inputs that colls takes from strangers, peers and users: each NAME.cpp of this folder is a fuzzer.

A fuzzer begins with lines `covers: FILE` or `covers: FILE: FUNCTION ...`, which name headers below
include/colls or files of tools. A run passes if it finds nothing and executes at least 90 % of the
lines that are named. corpus/NAME contains the inputs with which a run begins, one a line, as Python
writes bytes. Further inputs that a run finds stay in the build folder for the next run.
planted/*.patch are bugs, each with a line `fuzzer: NAME`: that fuzzer must find the bug within 60
seconds, from the corpus alone.

usage: run.py SOURCE_DIR BUILD_DIR COMPILER... -- [SECONDS | --planted | --keep | --build] [NAME...]
  SECONDS    of fuzzing, for each fuzzer (default 60)
  --planted  plants the bugs in a copy of the sources
  --keep     adds those inputs of former runs to the corpora that cover more
  --build    only compiles
  --log FILE writes the results as `meson test` does
"""

import ast
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

# The objects do not contain the path of the sources, so that ccache finds them for a copy of the sources, too.
FLAGS = ["-std=c++20", "-O1", "-g1", "-ffile-compilation-dir=.", "-fno-omit-frame-pointer", "-Wall", "-Wextra", "-Wconversion", "-Wshadow",
         "-Werror", "-DCOLLS_SEPARATE_COMPILATION", "-DBOOST_ASIO_SEPARATE_COMPILATION"]
# The UBSan checks that ASan covers, too, are off.
INSTRUMENTED = ["-fsanitize=fuzzer-no-link,address,undefined",
           "-fno-sanitize=null,vptr,object-size,pointer-overflow", "-fno-sanitize-recover=all",
           "-fprofile-instr-generate", "-fcoverage-mapping"]
LINKED = ["-fsanitize=fuzzer,address,undefined", "-fprofile-instr-generate", "-lfmt", "-lcrypto", "-pthread"]
COVERED = 0.9
PLANTED_SECONDS = 60
LONGEST_INPUT = 600
LONGEST_CORPUS = 6000  # bytes
FOUND = re.compile(r"^(?:==\d+==ERROR: |.*runtime error: |broken: |SUMMARY: ).*$", flags=re.M)
PROGRESS = re.compile(r"^#(\d+)\t\w+\s+cov: (\d+).*?exec/s: (\d+)", flags=re.M)


class Failed(Exception):
    pass


def checked(command, **more):
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, **more)
    if done.returncode != 0:
        raise Failed(done.stdout[-6000:])
    return done.stdout


def in_parallel(work, items):
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(work, items)


class Progress:
    """A line on the terminal with the progress of the running fuzzers."""

    def __init__(self):
        self.lock, self.now, self.is_shown = threading.Lock(), {}, sys.stdout.isatty()

    def tell(self, name, text):
        if not self.is_shown:
            return
        with self.lock:
            self.now[name] = text
            if text is None:
                del self.now[name]
            line = "  ".join(f"{each}: {now}" for each, now in self.now.items())
            print(f"\r\033[K{line[:shutil.get_terminal_size().columns - 1]}", end="", flush=True)

    def say(self, text):
        with self.lock:
            print(f"\r\033[K{text}" if self.is_shown else text, flush=True)


class Fuzzers:
    """The fuzzers compiled from the sources of one folder."""

    def __init__(self, source, folder, compiler):
        self.source, self.folder, self.compiler = source, folder, compiler
        self.folder.mkdir(parents=True, exist_ok=True)

    def compiled(self, name, flags):
        made = self.folder / f"{pathlib.Path(name).stem}.o"
        checked([*self.compiler, *FLAGS, *flags, "-Iinclude", "-Itools", "-c", name, "-o", made], cwd=self.source,
                env={**os.environ, "CCACHE_NOHASHDIR": "1"})
        return made

    def build(self, names):
        parts = [("tools/asio.cpp", ["-w"])] + [(f"tests/fuzz/{name}.cpp", INSTRUMENTED) for name in ["colls", *names]]
        asio, colls, *own = in_parallel(lambda part: self.compiled(*part), parts)
        for name, made in zip(names, own):
            checked([self.compiler[-1], made, colls, asio, *LINKED, "-o", self.folder / name])


def fuzzers_of(source):
    return sorted(path.stem for path in (source / "tests/fuzz").glob("*.cpp")
                  if "LLVMFuzzerTestOneInput" in path.read_text())


def read_corpus(source, name):
    path = source / "tests/fuzz/corpus" / name
    lines = path.read_text().splitlines() if path.exists() else []
    return [ast.literal_eval(line) for line in lines]


def write_corpus(folder, inputs):
    folder.mkdir(parents=True, exist_ok=True)
    for each in inputs:
        (folder / hashlib.sha1(each).hexdigest()).write_bytes(each)
    return folder


def environment(profile):
    return {**os.environ, "COLLS_LOG": "off", "LLVM_PROFILE_FILE": str(profile),
            "ASAN_OPTIONS": "detect_stack_use_after_return=0",
            "LSAN_OPTIONS": "use_poisoned=1",  # coroutine frames that are cached for the next call are poisoned
            "UBSAN_OPTIONS": "print_stacktrace=1", "ASAN_SYMBOLIZER_PATH": "/usr/bin/llvm-symbolizer-19"}


def fuzz(program, corpora, seconds, progress, seed=0):
    """Runs a fuzzer. Returns (exit status, output, duration in seconds)."""
    name = program.name
    began = time.monotonic()
    running = subprocess.Popen(
        [program, f"-max_total_time={seconds}", f"-max_len={LONGEST_INPUT}", f"-seed={seed}", "-timeout=10",
         "-rss_limit_mb=2048", "-malloc_limit_mb=512", "-use_value_profile=1", "-print_final_stats=1",
         f"-artifact_prefix={program}-finding-", *corpora],
        env=environment(f"{program}.profraw"), text=True, errors="replace", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    kept = []
    for line in running.stderr:
        kept.append(line)
        if found := PROGRESS.match(line):
            progress.tell(name, f"{int(time.monotonic() - began)}/{seconds} s, {found[3]}/s")
            kept.pop()
    progress.tell(name, "ended")
    progress.tell(name, None)
    return running.wait(), "".join(kept), time.monotonic() - began


def covered(source, program):
    """Returns (number of executed lines, number of lines, places of missed lines) of the code that the fuzzer names."""
    wanted = re.findall(r"^// covers: (\S+?)(?::(.*))?$", (source / f"tests/fuzz/{program.name}.cpp").read_text(), re.M)
    wanted = [(file if file.startswith("tools/") else f"include/colls/{file}", (functions or "").split())
              for file, functions in wanted]
    profile = f"{program}.profdata"
    checked(["llvm-profdata-19", "merge", "-sparse", f"{program}.profraw", "-o", profile])
    export = ["llvm-cov-19", "export", program, f"-instr-profile={profile}", *sorted({file for file, _ in wanted})]
    counts = {}
    for file, record in re.findall(r"^SF:(.*)\n((?:.*\n)*?)end_of_record$", checked([*export, "-format=lcov"], cwd=source), re.M):
        counts[file] = {int(line): int(count) for line, count in re.findall(r"^DA:(\d+),(\d+)", record, re.M)}
    known = json.loads(checked([*export, "-format=text", "-skip-expansions"], cwd=source))["data"][0]["functions"]
    run = total = 0
    missed = []
    for file, functions in wanted:
        lines = counts.get(file, {})
        if functions:
            inside = set()
            for function in functions:
                ranges = [(each["regions"][0][0], each["regions"][0][2]) for each in known
                          if f"{len(function)}{function}" in each["name"] and each["filenames"][0] == file]
                if not ranges:
                    raise Failed(f"{program.name} covers {function} of {file}, which does not exist")
                inside |= {line for first, last in ranges for line in range(first, last + 1)}
            lines = {line: count for line, count in lines.items() if line in inside}
        if not lines:
            raise Failed(f"{program.name} covers {file}, which does not exist")
        run += sum(count > 0 for count in lines.values())
        total += len(lines)
        missed += [f"{file}:{line}" for line, count in lines.items() if count == 0]
    return run, total, missed


def findings(output):
    told = FOUND.findall(output)
    stack = re.findall(r"^ +#\d+ .*$", output, re.M)[:12]
    return "\n".join([*told[:3], *stack]) or output[-2000:]


def test(fuzzers, name, seconds, progress):
    """Returns (whether the fuzzer passed, text to print)."""
    program = fuzzers.folder / name
    seeds = write_corpus(fuzzers.folder / "seeds" / name, read_corpus(fuzzers.source, name))
    found = fuzzers.folder / "found" / name
    found.mkdir(parents=True, exist_ok=True)
    status, output, took = fuzz(program, [found, seeds], seconds, progress)
    if status != 0:
        kept = re.findall(r"Test unit written to (\S+)", output)
        return False, f"{name}: a finding after {took:.0f} s, kept in {' '.join(kept)}\n{findings(output)}"
    runs = int(re.search(r"stat::number_of_executed_units: (\d+)", output)[1])
    run, total, missed = covered(fuzzers.source, program)
    is_enough = run >= COVERED * total
    text = (f"{name}: {runs} runs in {took:.0f} s, {runs / took:.0f}/s, no finding; "
            f"{run} of {total} lines covered, {100 * run / total:.1f} %")
    if not is_enough:
        text += f", too few; not covered: {' '.join(missed)}"
    return is_enough, text


def plant(fuzzers, patch, progress):
    """Returns (whether the bug was found, text to print)."""
    name = re.search(r"^fuzzer: (\w+)$", patch.read_text(), re.M)[1]
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        for part in ("include", "tools", "tests/fuzz"):
            shutil.copytree(fuzzers.source / part, where / part)
        progress.tell(patch.stem, "compiles")
        try:
            checked(["git", "apply", "-C1", patch], cwd=where,
                    env={**os.environ, "GIT_CEILING_DIRECTORIES": folder})
            Fuzzers(where, where / "built", fuzzers.compiler).build([name])
        except Failed as why:
            return False, f"{patch.stem}: NOT found, {why}"
        finally:
            progress.tell(patch.stem, None)
        corpus = write_corpus(where / "seeds", read_corpus(fuzzers.source, name))
        status, output, took = fuzz(where / "built" / name, [corpus], PLANTED_SECONDS, progress, 1)
        if status == 0:
            return False, f"{patch.stem}: NOT found by {name} within {PLANTED_SECONDS} s"
        return True, f"{patch.stem}: found by {name} after {took:.0f} s: {findings(output).splitlines()[0]}"


def keep(fuzzers, name):
    """Writes the smallest corpus that covers all code that former runs have covered."""
    program = fuzzers.folder / name
    seeds = write_corpus(fuzzers.folder / "seeds" / name, read_corpus(fuzzers.source, name))
    with tempfile.TemporaryDirectory() as folder:
        checked([program, "-set_cover_merge=1", folder, seeds, fuzzers.folder / "found" / name],
                env=environment("/dev/null"))
        inputs = sorted((path.read_bytes() for path in pathlib.Path(folder).iterdir()), key=lambda each: (len(each), each))
    kept = []
    for each in inputs:
        if sum(map(len, kept)) + len(each) > LONGEST_CORPUS:
            break
        kept.append(each)
    (fuzzers.source / "tests/fuzz/corpus" / name).write_text("".join(f"{each!r}\n" for each in kept))
    return True, f"{name}: {len(kept)} inputs of {len(inputs)}, {sum(map(len, kept))} bytes"


def write_log(log, results):
    if log:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("".join(json.dumps(each) + "\n" for each in results))


def main():
    arguments = sys.argv[1:]
    if "--" not in arguments[3:]:
        sys.exit(__doc__)
    at = arguments.index("--", 3)
    source, folder, compiler = pathlib.Path(arguments[0]).resolve(), pathlib.Path(arguments[1]).resolve(), arguments[2:at]
    rest = arguments[at + 1:]
    log = None
    if "--log" in rest:
        where = rest.index("--log")
        log = pathlib.Path(rest[where + 1])
        del rest[where:where + 2]
    what = rest.pop(0) if rest and (rest[0].startswith("--") or rest[0].isdigit()) else "60"
    names = fuzzers_of(source)
    if not (what.isdigit() and int(what) > 0 or what in ("--planted", "--keep", "--build")) or not set(rest) <= set(names):
        sys.exit(f"{__doc__}\nfuzzers: {' '.join(names)}")
    names = rest or names
    progress = Progress()
    fuzzers = Fuzzers(source, folder, compiler)
    missing = [tool for tool in (compiler[-1], "llvm-cov-19", "llvm-profdata-19") if not shutil.which(tool)]
    if missing:
        told = f"skipped: no {' '.join(missing)}"
        print(told)
        write_log(log, [{"name": "fuzz", "result": "SKIP", "returncode": 77, "stdout": told}])
        sys.exit(77)
    if what == "--planted":
        patches = sorted((source / "tests/fuzz/planted").glob("*.patch"))
        items = [patch for patch in patches if re.search(r"^fuzzer: (\w+)$", patch.read_text(), re.M)[1] in names]
        work = lambda patch: plant(fuzzers, patch, progress)
    else:
        progress.say(f"compiles {len(names)} fuzzers")
        try:
            fuzzers.build(names)
        except Failed as why:
            sys.exit(str(why))
        if what == "--build":
            return
        items = names
        work = (lambda name: keep(fuzzers, name)) if what == "--keep" else (
            lambda name: test(fuzzers, name, int(what), progress))
    results = []
    def guarded(item):
        try:
            return work(item)
        except Failed as why:
            return False, str(why)
    for item, (is_good, text) in zip(items, in_parallel(guarded, items)):
        progress.say(text)
        results.append({"name": f"fuzz/{item}", "result": "OK" if is_good else "FAIL", "returncode": int(not is_good),
                        "stdout": text})
    good = sum(each["result"] == "OK" for each in results)
    progress.say(f"{good} of {len(results)} " + ("found" if what == "--planted" else "good"))
    write_log(log, results)
    sys.exit(good != len(results) or not results)


main()
