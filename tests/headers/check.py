#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Compiles each public header alone, twice included, and counts it as a test.

A header that a test or another header begins with is compiled alone there, and left out here. Those of the
folders are compiled without the definitions that belong to them, which the headers of users bring in. Besides:
colls.hpp compiles without RTTI, and its preprocessed text comes from no third party.
Works in the current folder, where it leaves its sources.

usage: check.py INCLUDE_DIR TESTS_DIR COMPILER...
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

FLAGS = "-std=c++20 -Wall -Wextra -Wconversion -Wshadow -Werror".split()
THIRD_PARTY = re.compile(r"/(boost|asio|fmt|openssl|cuda[^/]*|nccl[^/]*)[/.]")


def run(command):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def compile_alone(compiler, include, header, *flags):
    """The compiler's output where the header does not compile alone, else None."""
    source = pathlib.Path("headers") / (header.replace("/", "-") + ".cpp")
    source.parent.mkdir(exist_ok=True)
    text = f"#include <colls/{header}>\n" * 2
    if not source.exists() or source.read_text() != text:
        source.write_text(text)
    command = [*compiler, *FLAGS, *flags, "-I", include, "-fsyntax-only", str(source)]
    done = run(command)
    return done.stdout if done.returncode else None


def begun_with(files):
    """The headers that these files begin with."""
    first = [re.search(r"^#(?!pragma once$).*", file.read_text(), flags=re.M) for file in files]
    return {line[0].removeprefix("#include <colls/").removesuffix(">") for line in first if line}


def third_parties(compiler, include, header):
    """Files of third parties that the preprocessed header names."""
    source = pathlib.Path("headers") / "preprocessed.cpp"
    source.write_text(f"#include <colls/{header}>\n")
    done = run([*compiler, *FLAGS, "-I", include, "-E", str(source)])
    if done.returncode:
        return done.stdout
    files = sorted(set(re.findall(r'^# \d+ "([^"]+)"', done.stdout, flags=re.M)))
    assert any(file.endswith(f"colls/{header}") for file in files), "the header itself is not seen"
    return "\n".join(file for file in files if THIRD_PARTY.search(file)) or None


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    include, compiler = os.path.relpath(sys.argv[1]), sys.argv[3:]
    root = pathlib.Path(include) / "colls"
    tests = pathlib.Path(sys.argv[2])
    other = {"cuda", "fail", "fault", "fuzz", "mutants", "sim", "stand_in", "support", "torch"}
    begun = begun_with(
        file for file in tests.rglob("*.cpp") if file.relative_to(tests).parts[0] not in other
    )

    def is_compiled_elsewhere(path):
        text = path.read_text()
        # Tests are compiled with COLLS_SEPARATE_COMPILATION. Headers of libtorch take half a minute
        # each: the tests of the torch suite begin with them.
        return "#include <torch/" in text or (
            path.relative_to(root).as_posix() in begun
            and "\n#pragma once\n" in text
            and "SEPARATE_COMPILATION" not in text
        )

    headers = sorted(
        path.relative_to(root).as_posix()
        for path in root.rglob("*.hpp")
        if not is_compiled_elsewhere(path)
    )
    headers = [header for header in headers if not header.startswith("source/")]  # tools/source compiles these
    begun_here = begun_with(root / header for header in headers if header != "source.hpp")
    alone = [header for header in headers if header not in begun_here]
    without = ["-DCOLLS_SEPARATE_COMPILATION", "-DBOOST_ASIO_SEPARATE_COMPILATION"]
    flags = {header: without for header in headers if "/" in header}
    flags["source.hpp"] = without[:1]
    # With the toolkit's own headers the tests of tests/cuda compile them.
    flags |= {header: [*without, "-DCOLLS_CUDA_STAND_IN"] for header in headers if header.startswith("cuda/")}
    includes = run(["pkg-config", "--cflags-only-I", "ompi-c"])
    mpi = includes.stdout.replace("-I", "-isystem ").split() if includes.returncode == 0 else None
    for header in [header for header in headers if header.startswith("transport/mpi/") or header == "mpi.hpp"]:
        if mpi is None:
            print(f"{header}: skipped, no libopenmpi-dev")
            alone = [each for each in alone if each != header]
        flags[header] = [*flags.get(header, []), *(mpi or [])]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        outputs = pool.map(
            lambda header: compile_alone(compiler, include, header, *flags.get(header, [])), alone
        )
        results = dict(zip(alone, outputs))
    if "colls.hpp" in headers:
        results["colls.hpp, -fno-rtti"] = compile_alone(compiler, include, "colls.hpp", "-fno-rtti")
        results["colls.hpp, no third party"] = third_parties(compiler, include, "colls.hpp")
    failed = {name: output for name, output in results.items() if output}
    for name, output in failed.items():
        print(f"FAILED {name}\n{output}")
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    sys.exit(bool(failed) or not results)


main()
