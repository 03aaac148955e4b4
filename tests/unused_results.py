#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Checks that the result of every function of the system, the C library and OpenSSL is used.

clang-tidy's bugprone-unused-return-value checks all functions of the global namespace, so it includes
functions that are called for the first time. SAYS_NOTHING lists the functions whose result needs no
check, each with the reason; a listed function that is no longer called is a failure. If a result is
dropped on purpose, by (void) or [[maybe_unused]], a comment on that line or above it has to say why.

usage: unused_results.py SOURCE_ROOT CLANG_TIDY | unused_results.py --self-test CLANG_TIDY
"""

import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile

SAYS_NOTHING = {
    # They return one of their arguments, or a length that the caller does not need.
    "memcpy": "its first argument",
    "memmove": "its first argument",
    "memset": "its first argument",
    "strncpy": "its first argument",
    "snprintf": "a text that does not fit is truncated",
    "vsnprintf": "a text that does not fit is truncated",
    "fprintf": "a failed write to stderr cannot be reported anywhere",
    # They fail only for arguments that are always invalid.
    "clock_gettime": "fails only for a clock that does not exist",
    "getrlimit": "fails only for a limit that does not exist",
    "getrusage": "fails only for a wrong argument",
    "munmap": "fails only for an address that is no mapping",
    "sigaction": "fails only for a number that is no signal",
    "sigaddset": "fails only for a number that is no signal",
    "sigemptyset": "cannot fail",
    "sigfillset": "cannot fail",
    "signal": "fails only for a number that is no signal",
    "sigprocmask": "fails only for a wrong argument",
    # They end something, which has ended even if they fail.
    "close": "the descriptor is closed; data that has to be on disk was synced before",
    "closedir": "the directory is closed",
    "execvp": "returns only where it failed",
    # They wait, and the caller checks its condition again.
    "nanosleep": "the caller checks again",
    "sched_yield": "cannot fail",
    "usleep": "the caller checks again",
}

LEFT_OUT = {"torch.hpp", "torch_checkpoint.hpp", "torch_elastic.hpp", "source.hpp"}  # libtorch takes long to compile; source.hpp is not an independent header
OPTIONS = (
    "{CheckOptions: {bugprone-unused-return-value.CheckedFunctions: '^::[A-Za-z_][A-Za-z_0-9]*$',"
    " bugprone-unused-return-value.CheckedReturnTypes: '',"
    " bugprone-unused-return-value.AllowCastToVoid: true}}"
)
WARNING = re.compile(r"^(.+?):(\d+):(\d+): warning: .*\[bugprone-unused-return-value")
CALL = re.compile(r"(?:std)?(?:::)?(\w+)\s*\(")
DROPPED = re.compile(r"\(void\)\s*\(*\s*(?:std)?::(?!move\b)\w+\s*\(|\[\[maybe_unused\]\][^;]*=\s*(?:::|$)")


def called_at(file, line, column):
    """The name of the function whose call begins there."""
    text = pathlib.Path(file).read_text().split("\n")[line - 1][column - 1 :]
    found = CALL.match(text)
    return found[1] if found else text


def tidy(clang_tidy, sources, flags):
    """(place, function) of every unused result, and the errors of files that do not compile."""
    command = [clang_tidy, "--quiet", "--checks=-*,bugprone-unused-return-value", f"--config={OPTIONS}",
               "--header-filter=.*/(colls|tools|planted)[/_.].*", *map(str, sources), "--", "-std=c++20", *flags]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    found = set()
    for line in done.stdout.splitlines():
        if match := WARNING.match(line):
            file, row, column = match[1], int(match[2]), int(match[3])
            found.add((f"{file}:{row}", called_at(file, row, column)))
    errors = [line for line in (done.stdout + done.stderr).splitlines() if " error: " in line]
    if done.returncode and not errors:
        errors = [done.stderr.strip() or f"clang-tidy ended with {done.returncode}"]
    return found, errors


def without_reason(files):
    """Results that are dropped on purpose without a comment that says why."""
    found = []
    for file in files:
        lines = file.read_text().split("\n")
        for i, line in enumerate(lines):
            above = lines[i - 1].strip() if i else ""
            if DROPPED.search(line) and "//" not in line and not above.startswith("//"):
                found.append(f"{file}:{i + 1}: a result is dropped and no comment says why: {line.strip()}")
    return found


def sources_of(root):
    return sorted(file for folder in ("include/colls", "tools") for file in (root / folder).rglob("*")
                  if file.suffix in (".hpp", ".ipp", ".cpp"))


def check(root, clang_tidy):
    with tempfile.TemporaryDirectory() as folder:
        every = pathlib.Path(folder) / "every_header.cpp"
        headers = sorted(file.relative_to(root / "include") for file in (root / "include/colls").rglob("*.hpp"))
        asked = subprocess.run(["pkg-config", "--cflags-only-I", "ompi-c"], text=True, capture_output=True)
        mpi = asked.stdout.replace("-I", "-isystem").split()
        if not mpi:
            print("the headers of MPI are skipped: no libopenmpi-dev")
            headers = [each for each in headers if each.name != "mpi.hpp" and "mpi" not in each.parts]
        every.write_text("".join(f"#include <{each}>\n" for each in headers
                                 if each.name not in LEFT_OUT and each.parts[1] != "source"))
        include = f"-I{root / 'include'}"
        all_calls, errors = tidy(clang_tidy, [every], [include, "-DCOLLS_CUDA_STAND_IN", *mpi])
        tools, more = tidy(clang_tidy, [root / "tools/colls_run.cpp", root / "tools/colls_sim.cpp"],
                           [include, "-DCOLLS_SEPARATE_COMPILATION", "-DBOOST_ASIO_SEPARATE_COMPILATION"])
    all_calls |= tools
    files = sources_of(root)
    failures = errors + more
    failures += [f"{place}: the result of {name} is not used"
                 for place, name in sorted(all_calls) if name not in SAYS_NOTHING]
    dropped = {name for _, name in all_calls}
    failures += [f"SAYS_NOTHING: no result of {name} is dropped" for name in SAYS_NOTHING if name not in dropped]
    failures += without_reason(files)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{len(files)} files; {len(all_calls)} results are not used, of {len(dropped)} functions;"
          f" {usage.ru_utime + usage.ru_stime:.0f} s of CPU")
    return failures


def self_test(clang_tidy):
    planted = """#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstdio>
#include <cstring>
namespace planted {
int own() { return 1; }
template <class Type>
void in_a_template(Type) {
  ::fsync(3);
}
inline void never_called(int socket, unsigned char* into, char* text) {
  ::EVP_Digest(into, 1, into, nullptr, ::EVP_sha256(), nullptr);
  ::fchmod(socket, 0600);
  std::rename("a", "b");
  std::memcpy(text, into, 1);
  own();
  if (::fdatasync(socket) != 0) return;
  (void)::unlink("a");  // it may be gone
  // The error cannot be reported.
  (void)::unlink("b");
  (void)::unlink("c");
  [[maybe_unused]] const auto ignored = ::write(socket, text, 1);
}
}
"""
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "planted.hpp"
        file.write_text("#pragma once\n" + planted)
        source = pathlib.Path(folder) / "planted.cpp"
        source.write_text('#include "planted.hpp"\n')
        found, errors = tidy(clang_tidy, [source], [])
        failures += errors
        names = sorted(name for _, name in found)
        if names != ["EVP_Digest", "fchmod", "fsync", "memcpy", "rename"]:
            failures.append(f"of the planted calls these were found: {names}")
        reasons = [line.split(": ")[-1] for line in without_reason([file])]
        if len(reasons) != 2 or '"c"' not in reasons[0] or "::write" not in reasons[1]:
            failures.append(f"results that are dropped without a reason: {reasons}")
        source.write_text("#include <no/such/header>\n")
        if not tidy(clang_tidy, [source], [])[1]:
            failures.append("a file that does not compile is taken for a good one")
    return failures


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    clang_tidy = shutil.which(sys.argv[2])
    if clang_tidy is None:
        print(f"skipped: no {sys.argv[2]}")
        sys.exit(77)
    if sys.argv[1] == "--self-test":
        failures = self_test(clang_tidy)
    else:
        failures = check(pathlib.Path(sys.argv[1]).resolve(), clang_tidy)
    for failure in failures:
        print(failure)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
