#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Plants each bug of this folder in a copy of the headers and the launcher, and runs the test that
has to see it.

A NAME.patch begins with what is wrong, then `test: FILE` below tests/, `case: CASES` of it and,
where the test starts programs, `starts: PROGRAM...`. It is caught if an assertion of those cases
fails with it, and they pass without; a patch that does not apply, a program that does not compile,
a test that crashes or runs out of time catches nothing.

With --check it plants nothing: each patch has to apply, to change code, and to name a case of its test.

usage: run.py SOURCE_DIR COMPILER... [-- NAME...] | run.py --check SOURCE_DIR | run.py --self-test
"""

import collections
import concurrent.futures
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

FLAGS = ["-std=c++20", "-O1", "-pthread"]
COMPILED_ONCE = ["-DBOOST_ASIO_SEPARATE_COMPILATION", "-DCOLLS_SEPARATE_COMPILATION"]
STAND_IN = ["-DCOLLS_CUDA_STAND_IN"]
FAILED = re.compile(r"ERROR: (?!test case )")  # which has crashed, or thrown what nobody caught
SECONDS = 300  # of a test
COMPILING = 1800


def run(command, seconds=SECONDS, **more):
    """(exit status, output); no status if it took too long."""
    try:
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=seconds, **more)
    except subprocess.TimeoutExpired:
        return None, "out of time"
    return done.returncode, done.stdout


class Tests:
    """Compiles tests against a copy of the headers. All paths are relative to the copy, so that a
    compiler cache knows what no patch has touched."""

    def __init__(self, source, compiler, folder, uses_stand_in):
        self.source, self.compiler, self.folder = source, compiler, folder
        self.building = collections.defaultdict(threading.Lock)  # by folder
        self.sound = self.copy("sound")
        self.main = self.compiled_once("support/main")
        self.stand_in = [self.compiled_once(f"stand_in/{name}", *STAND_IN) for name in ("cuda", "nccl")
                         if uses_stand_in]

    def copy(self, name):
        where = self.folder / name
        for part in ("include", "tools"):
            shutil.copytree(self.source / part, where / part)
        for part in ("tests", "examples"):
            (where / part).symlink_to(self.source / part)
        return where

    def compile(self, where, file, made, *flags):
        """None, or the compiler's words."""
        status, output = run([*self.compiler, *FLAGS, *flags, "-I", "include", "-c", file, "-o", made],
                             COMPILING, cwd=where)
        return None if status == 0 else f"does not compile:\n{output}"

    def link(self, where, made, *parts):
        status, output = run([*self.compiler, *FLAGS, *parts, "-lcrypto", "-lfmt", "-o", made], cwd=where)
        return None if status == 0 else f"does not link:\n{output}"

    def compiled_once(self, name, *flags):
        """The object of a file that no patch changes."""
        made = self.folder / f"{pathlib.Path(name).name}.o"
        problem = self.compile(self.sound, f"tests/{name}.cpp", made, *flags)
        if problem:
            sys.exit(f"{name} {problem}")
        return made

    def beside(self, test):
        """What a test needs: flags to compile it, and what it is linked with."""
        if not is_of_devices(test):
            return [], [self.main]
        return STAND_IN, [self.main, *self.stand_in]

    def build(self, where, test, programs):
        """The test and the programs that it starts, or why there are none."""
        flags, linked = self.beside(test)
        made = re.sub(r"\W", "_", test)
        problem = (self.compile(where, f"tests/{test}", f"{made}.o", *flags) or
                   self.link(where, made, f"{made}.o", *linked))
        if programs:
            problem = problem or self.build_programs(where, programs)
        return where / made, problem and f"{test} {problem}"

    def build_programs(self, where, programs):
        """tools/NAME and examples/NAME, as the build folder has them. Tests that are compiled at once share
        those of their folder."""
        with self.building[where]:
            programs = [each for each in programs if not (where / "bin" / each).exists()]
            return self.compile_programs(where, programs) if programs else None

    def compile_programs(self, where, programs):
        shared = ["tools/asio.cpp", *(str(file.relative_to(where))
                                      for file in sorted((where / "tools/source").glob("*.cpp")))]
        problem = None
        for file in shared:
            problem = problem or self.compile(where, file, f"{file}.o", *COMPILED_ONCE)
        for program in programs:
            folder, name = program.split("/")
            pattern = name.replace("-", "_") if folder == "tools" else f"??_{name}"
            [file] = (where / folder).glob(f"{pattern}.cpp")
            made = where / "bin" / program
            made.parent.mkdir(parents=True, exist_ok=True)
            problem = problem or (
                self.compile(where, file.relative_to(where), f"{name}.o", *COMPILED_ONCE) or
                self.link(where, made, f"{name}.o", *(f"{each}.o" for each in shared)))
        return problem

    def run(self, where, program, cases):
        """As meson does it: in the folder below which the programs lie."""
        folder = where / "bin"
        folder.mkdir(exist_ok=True)
        return run([program, f"-tc={cases}"], cwd=folder)

    def why_unsound(self, wanted):
        """Why a test's cases do not all pass where no bug is planted, or None."""
        test, (cases, programs) = wanted
        program, problem = self.build(self.sound, test, sorted(programs))
        if problem:
            return problem
        for each in sorted(cases):
            status, output = self.run(self.sound, program, each)
            if status != 0 or not re.search(r"test cases: +[1-9]", output):
                return f"{test} '{each}' does not pass without any bug:\n{output}"
        return None


def is_of_devices(test):
    """Whether it links the stand-in for CUDA."""
    return test.startswith(("cuda/", "net/cuda_"))


def read(patch):
    """(test, cases, programs)."""
    found = dict(re.findall(r"^(test|case|starts): (.+)$", patch.read_text(), flags=re.M))
    return found["test"], found["case"], tuple(found.get("starts", "").split())


def verdict(patch, tests):
    """Why the bug was not caught, or None."""
    test, cases, programs = read(patch)
    where = tests.copy(patch.stem)
    alone = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tests.folder)}
    status, output = run(["git", "apply", "-C1", patch], cwd=where, env=alone)
    if status != 0:
        return f"does not apply:\n{output}"
    program, problem = tests.build(where, test, programs)
    if problem:
        return problem
    status, output = tests.run(where, program, cases)
    shutil.rmtree(where)
    if status == 1 and FAILED.search(output):
        return None
    return f"{test} '{cases}' ends with {status}, and no assertion fails:\n{output[-2000:]}"


CASE = re.compile(r'TEST_CASE(?:_TEMPLATE)?(?:_DEFINE)?\(\s*((?:"(?:\\.|[^"\\])*"\s*)+)')
INCLUDED = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def cases_of(test):
    """The names of the cases in a test and in the files beside it that it includes."""
    text = test.read_text()
    parts = [test.parent / name for name in INCLUDED.findall(text)]
    text += "".join(part.read_text() for part in parts if part.is_file())
    return ["".join(re.findall(r'"((?:\\.|[^"\\])*)"', literals)).replace('\\"', '"')
            for literals in CASE.findall(text)]


def fault_of(source, patch):
    """Why a patch could not be planted and caught as it stands, or None."""
    test, cases, _ = read(patch)
    status, output = run(["git", "apply", "--check", "-C1", patch], cwd=source)
    if status != 0:
        return f"does not apply:\n{output}"
    hunks = re.findall(r"^([-+ ])(?![-+]{2} [ab]/)(.*)$", patch.read_text().partition("\n@@")[2], re.MULTILINE)
    before, after = ("".join(re.sub(r"//.*|\s", "", line) for mark, line in hunks if mark in (" ", side))
                     for side in "-+")
    if before == after:
        return "changes no code"
    if not (source / "tests" / test).is_file():
        return f"there is no tests/{test}"
    names = [name.lower() for name in cases_of(source / "tests" / test)]
    for case in cases.split(","):  # as doctest does
        pattern = case.strip().lower().replace("[", "[[]")
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            return f"tests/{test} has no case '{case}'"
    return None


def check(source):
    patches = sorted((source / "tests/mutants").glob("*.patch"))
    faults = [(patch, fault) for patch in patches if (fault := fault_of(source, patch))]
    for patch, fault in faults:
        print(f"{patch.stem}: {fault}")
    print(f"{len(patches) - len(faults)} passed, {len(faults)} failed")
    return len(faults) if patches else 1


def self_test():
    """Plants each fault in a small tree."""
    good = ("A sentence.\ntest: one.cpp\ncase: a case*, another\n\n--- a/include/one.hpp\n+++ b/include/one.hpp\n"
            "@@ -1,3 +1,3 @@\n int a;\n-int b;\n+int c;\n int d;\n")
    for what, old, new, expected in (("nothing", "", "", None),
                                     ("another line", "-int b;", "-int x;", "does not apply"),
                                     ("a comment alone", "+int c;", "+int b;  // c", "changes no code"),
                                     ("another case", "another", "a third", "has no case ' a third'"),
                                     ("another test", "one.cpp", "two.cpp", "there is no tests/two.cpp")):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for file, text in (("include/one.hpp", "int a;\nint b;\nint d;\n"),
                               ("tests/one.cpp", 'TEST_CASE("a case of "\n          "two lines") {}\nTEST_CASE("another")'),
                               ("tests/mutants/one.patch", good.replace(old, new) if old else good)):
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_text(text)
            fault = fault_of(folder, folder / "tests/mutants/one.patch")
        if bool(fault) != bool(expected) or (expected and expected not in fault):
            sys.exit(f"{what}: expected {expected!r}, got {fault!r}")
    print("5 passed, 0 failed")


def main():
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        return self_test()
    if arguments[:1] == ["--check"] and len(arguments) == 2:
        sys.exit(bool(check(pathlib.Path(arguments[1]).resolve())))
    names = []
    if "--" in arguments:
        names = arguments[arguments.index("--") + 1:]
        arguments = arguments[:arguments.index("--")]
    if len(arguments) < 2:
        sys.exit(__doc__)
    source, compiler = pathlib.Path(arguments[0]).resolve(), arguments[1:]
    patches = sorted((source / "tests/mutants").glob("*.patch"))
    patches = [patch for patch in patches if not names or patch.stem in names]
    caught = 0
    with tempfile.TemporaryDirectory() as folder:
        wanted = {}
        for patch in patches:
            test, cases, programs = read(patch)
            all_cases, all_programs = wanted.setdefault(test, (set(), set()))
            all_cases.add(cases)
            all_programs.update(programs)
        tests = Tests(source, compiler, pathlib.Path(folder), any(map(is_of_devices, wanted)))
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            for why in filter(None, pool.map(tests.why_unsound, sorted(wanted.items()))):
                sys.exit(why)
            verdicts = pool.map(lambda patch: verdict(patch, tests), patches)
            for patch, why in zip(patches, verdicts):
                caught += why is None
                print(f"{patch.stem}: {'caught' if why is None else 'NOT caught: ' + why}", flush=True)
    print(f"caught {caught} of {len(patches)}")
    sys.exit(caught != len(patches) or not patches)


main()
