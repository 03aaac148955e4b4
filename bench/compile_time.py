#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Measures how long files that use colls take to compile, in seconds of user CPU time, and prints a table in
Markdown. Each file does more than the one before it, so the differences tell where the time goes. "compiled
library" is with COLLS_SEPARATE_COMPILATION, which programs that link the library get; "parsed" is without
generating code. The files are compiled in turn, round after round, without ccache; each cell is a median.

With --against, the same files are also compiled with the headers of another revision, in the same rounds. The
ratio is the time of SOURCE_DIR divided by that of the revision.

usage: compile_time.py SOURCE_DIR [--against REV] [--rounds N] [--compiled-only]
"""

import argparse
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile

STANDARD = "".join(f"#include <{name}>\n" for name in (
    "algorithm array atomic coroutine cstdio exception map memory new optional span string string_view system_error"
    " tuple utility variant vector").split())
MAIN = """#include <colls/run.hpp>
#include <vector>
int main() {
  return colls::run([](colls::world& world) -> colls::task<> {
    std::vector<float> v(1000, 1.0f);
    std::vector<float> all(v.size() * static_cast<std::size_t>(world.size()));
%s  });
}
"""
ONE = "    co_await world.all_reduce(v);\n"
SEVERAL = ONE + """    std::vector<float> other(all.size());
    co_await world.barrier();
    co_await world.broadcast(v, 0);
    co_await world.reduce(v, 0, colls::maximum{});
    co_await world.all_gather(v, all);
    co_await world.gather(v, all, 0);
    co_await world.all_to_all(all, other);
"""
OBJECTS = """    std::string text = co_await colls::broadcast(world, std::string("text"), 0);
"""
FILES = {  # what the file does: its text
    "the standard headers that colls needs": STANDARD,
    "`colls/world.hpp`": "#include <colls/world.hpp>\n",
    "`colls/run.hpp`": "#include <colls/run.hpp>\n",
    "one all_reduce of a world": MAIN % ONE,
    "seven collectives": MAIN % SEVERAL,
    "`colls/objects.hpp`, a broadcast of a string": "#include <colls/objects.hpp>\n#include <string>\n" + MAIN % OBJECTS,
}
WAYS = {  # the column: the options of the compiler
    "compiled library": ["-DCOLLS_SEPARATE_COMPILATION"],
    "compiled library, parsed": ["-DCOLLS_SEPARATE_COMPILATION", "-fsyntax-only"],
    "header-only": [],
    "header-only, parsed": ["-fsyntax-only"],
}


def seconds(command):
    """The user CPU seconds of a command, or None if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run(command, env={**os.environ, "CCACHE_DISABLE": "1"}, stderr=subprocess.DEVNULL)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before if done.returncode == 0 else None


def headers_of(source, revision, folder):
    """The folder include/ of a revision, below `folder`."""
    archive = subprocess.run(["git", "-C", source, "archive", revision, "include"], check=True, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", folder], check=True, input=archive.stdout)
    return os.path.join(folder, "include")


def cell(times):
    return f"{statistics.median(times):.2f}" if None not in times else "-"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("source")
    arguments.add_argument("--against", metavar="REV")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--compiled-only", action="store_true", help="omits header-only files, which take long")
    given = arguments.parse_args()
    compiler = shlex.split(os.environ.get("CXX", "g++"))
    ways = [way for way in WAYS if not (given.compiled_only and way.startswith("header-only"))]
    with tempfile.TemporaryDirectory() as folder:
        includes = [os.path.join(given.source, "include")]
        if given.against:
            includes.append(headers_of(given.source, given.against, folder))
        file, made = os.path.join(folder, "one.cpp"), os.path.join(folder, "one.o")
        took = {(what, way, include): [] for what in FILES for way in ways for include in includes}
        for i in range(given.rounds):
            for what, way, include in took:
                if sys.stderr.isatty():
                    print(f"\r\033[Kround {i + 1} of {given.rounds}: {way}, {what}", end="", file=sys.stderr, flush=True)
                with open(file, "w") as text:
                    text.write(FILES[what])
                took[what, way, include].append(
                    seconds([*compiler, "-std=c++20", "-O2", *WAYS[way], f"-I{include}", "-c", file, "-o", made]))
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    columns = [name for way in ways for name in ([way, given.against, "ratio"] if given.against else [way])]
    print("| ".join(["", "the file ", *(f"{name} " for name in columns)]) + "|\n|" + "---|" * (len(columns) + 1))
    for what in FILES:
        row = [what]
        for way in ways:
            times = [took[what, way, include] for include in includes]
            row += map(cell, times)
            if given.against:
                row.append(f"{statistics.median(times[0]) / statistics.median(times[1]):.2f}"
                           if "-" not in map(cell, times) else "-")
        print("| " + " | ".join(row) + " |")


main()
