# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""What the tests of training programs share. Their only argument is the build folder."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import traceback

BUILD = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) == 2 else sys.exit("usage: TEST.py BUILD_DIR")
MARK = f"TRAINING_TEST={os.getpid()}"


def start(ranks, program, *arguments, launcher=()):
    command = [BUILD / "tools/colls-run", "-n", str(ranks), "-x", MARK, *launcher, BUILD / program, *arguments]
    print("+", *map(str, command), flush=True)
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def run(ranks, program, *arguments, good=True):
    """(standard output, standard error) of a run that has to end well, or not."""
    job = start(ranks, program, *arguments)
    try:
        out, err = job.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        job.terminate()
        raise
    assert (job.returncode == 0) == good, f"exit status {job.returncode}\n{out}\n{err}"
    return out, err


def line(pattern, text):
    found = re.findall(pattern, text, flags=re.M)
    assert len(found) == 1, f"{len(found)} lines like {pattern} in\n{text}"
    return found[0]


def process(rank):
    """The process of this rank of a job that runs."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if MARK.encode() in environment and f"COLLS_RANK={rank}".encode() in environment:
            found.append(int(folder.name))
    assert len(found) == 1, found
    return found[0]


def main(tests, skipped=0):
    """Runs each test with an empty folder, and ends this process."""
    failed = 0
    for test in tests:
        print(f"== {test.__name__}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            try:
                test(pathlib.Path(folder))
            except Exception:
                failed += 1
                traceback.print_exc()
    print(f"{len(tests) + skipped - failed} passed, {failed} failed")
    sys.exit(failed > 0)
