#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Plants each bug of this folder in a copy of the headers and runs the test that has to see it.

A NAME.patch begins with what is wrong, then `test: FILE` below tests/ and `case: CASES` of it. It
is caught if an assertion of those cases fails with it, and they pass without; a patch that does not
apply, a test that does not compile, crashes or runs out of time catches nothing.

usage: run.py SOURCE_DIR COMPILER... [-- NAME...]
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FLAGS = ["-std=c++20", "-O1", "-pthread"]
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
    """Compiles tests against headers, and keeps what does not change."""

    def __init__(self, source, compiler, folder):
        self.source, self.compiler, self.folder = source, compiler, folder
        self.main = self.compiled("main")
        self.stand_in = None

    def compiled(self, name, *flags):
        """The object of a source of the tests."""
        made = self.folder / f"{pathlib.Path(name).name}.o"
        status, output = run([*self.compiler, *FLAGS, *flags, "-c", self.source / f"tests/{name}.cpp",
                              "-o", made], COMPILING)
        if status != 0:
            sys.exit(output)
        return made

    def beside(self, test):
        """What a test needs: flags to compile it, and what it is linked with."""
        if "cuda_" not in test:
            return [], [self.main, "-lcrypto"]
        flags = ["-DCOLLS_CUDA_STAND_IN"]
        if not self.stand_in:
            own = [*flags, "-I", self.source / "include"]
            self.stand_in = [self.compiled(f"stand_in/{name}", *own) for name in ("cuda", "nccl")]
        return flags, [self.main, *self.stand_in, "-lcrypto"]

    def build(self, test, include, where):
        """The program, or the compiler's words."""
        where.mkdir(exist_ok=True)
        flags, linked = self.beside(test)
        status, output = run([*self.compiler, *FLAGS, *flags, "-I", include, "-c", self.source / "tests" / test,
                              "-o", where / "test.o"], COMPILING)
        if status != 0:
            return None, f"does not compile:\n{output}"
        status, output = run([*self.compiler, *FLAGS, where / "test.o", *linked, "-o", where / "test"])
        return (where / "test", None) if status == 0 else (None, f"does not link:\n{output}")

    def check_sound(self, wanted):
        """All (test, cases) pass where no bug is planted."""
        programs = {}
        for test, cases in sorted(wanted):
            if test not in programs:
                where = self.folder / re.sub(r"\W", "_", test)
                programs[test], problem = self.build(test, self.source / "include", where)
                if problem:
                    sys.exit(f"{test} {problem}")
            status, output = run([programs[test], f"-tc={cases}"])
            if status != 0 or not re.search(r"test cases: +[1-9]", output):
                sys.exit(f"{test} '{cases}' does not pass without any bug:\n{output}")


def read(patch):
    text = patch.read_text()
    test, cases = (re.search(rf"^{key}: (.+)$", text, flags=re.M)[1] for key in ("test", "case"))
    return test, cases


def verdict(patch, tests):
    """Why the bug was not caught, or None."""
    test, cases = read(patch)
    where = tests.folder / patch.stem
    shutil.copytree(tests.source / "include", where / "include")
    alone = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tests.folder)}
    status, output = run(["git", "apply", "-C1", patch], cwd=where, env=alone)
    if status != 0:
        return f"does not apply:\n{output}"
    program, problem = tests.build(test, where / "include", where)
    if problem:
        return problem
    status, output = run([program, f"-tc={cases}"])
    if status == 1 and FAILED.search(output):
        return None
    return f"{test} '{cases}' ends with {status}, and no assertion fails:\n{output[-2000:]}"


def main():
    arguments = sys.argv[1:]
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
        tests = Tests(source, compiler, pathlib.Path(folder))
        tests.check_sound({read(patch) for patch in patches})
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            verdicts = pool.map(lambda patch: verdict(patch, tests), patches)
            for patch, why in zip(patches, verdicts):
                caught += why is None
                print(f"{patch.stem}: {'caught' if why is None else 'NOT caught: ' + why}", flush=True)
    print(f"caught {caught} of {len(patches)}")
    sys.exit(caught != len(patches) or not patches)


main()
