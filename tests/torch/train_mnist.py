#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Runs examples/train_mnist by colls-run: few steps on drawn digits, and on MNIST's if COLLS_MNIST
names the folder that holds them.

usage: train_mnist.py BUILD_DIR
"""

import gzip
import json
import os
import pathlib
import re
import signal
import time

import jobs
from jobs import line

SMALL = "--holdout 40 --batch 24 --epochs 1".split()
FILES = {"images": "t10k-images-idx3-ubyte.gz", "labels": "t10k-labels-idx1-ubyte.gz"}


def start(ranks, *arguments):
    return jobs.start(ranks, "examples/train_mnist", *arguments)


def run(ranks, *arguments, good=True):
    return jobs.run(ranks, "examples/train_mnist", *arguments, good=good)


def losses(log):
    found = [json.loads(line) for line in log.read_text().splitlines()]
    assert [one["step"] for one in found] == list(range(1, len(found) + 1)), found
    return [one["loss"] for one in found]


def close(some, others, relative):
    assert len(some) == len(others) > 0, (some, others)
    for one, other in zip(some, others):
        assert abs(one - other) <= relative * abs(other), (one, other, some, others)


def output(folder):
    """Each rank's first line, rank 0's table, the last line."""
    out, _ = run(3, *SMALL, "--limit", "72")
    for rank in range(3):
        own = [text for text in out.splitlines() if text.startswith(f"[{rank}] ")]
        assert own[0] == f"[{rank}] GLOBAL_RANK: {rank}, MEMBER: {rank + 1}/3", out
    line(r"^\[0\] processes: 3$", out)
    line(r"^\[0\] backend: hybrid$", out)
    counts = re.findall(r"^\[0\]  \d \| (\w+) +\| (\w+) +\| (.+)$", out, flags=re.M)
    assert counts == [
        ("conv1", "Conv2d", "320"),
        ("conv2", "Conv2d", "18.5 K"),
        ("dropout1", "Dropout", "0"),
        ("dropout2", "Dropout", "0"),
        ("fc1", "Linear", "1.2 M"),
        ("fc2", "Linear", "1.3 K"),
    ], counts
    line(r"^\[0\] 4\.800 +MB$", out)
    line(r"drawn by this program", out)
    line(r"the same bits on all ranks", out)
    assert re.search(r"^\[0\] accuracy \d+\.\d\d % \(\d+ of 40\)\n\Z", out, flags=re.M), out


def same_losses(folder):
    """Equal for any number of ranks and pieces and each driver, also in a short last batch."""
    want = [*SMALL, "--dropout", "0", "--limit", "193"]  # the ninth batch is a single sample
    log = folder / "log"
    run(1, *want, "--plain", "--log", log)
    plain = losses(log)
    assert len(plain) == 9 and plain[7] < plain[0], plain
    for ranks, more in [
        (1, []),
        (2, []),
        (3, []),
        (4, ["--hooks"]),
        (2, ["--accumulate", "5"]),
    ]:
        run(ranks, *want, *more, "--log", log)
        close(losses(log), plain, 1e-4)


def dropout(folder):
    """Each rank has its own random stream: a run is repeatable, and two ranks drop different elements."""
    log = folder / "log"
    seen = []
    for ranks in (2, 2, 1):
        run(ranks, *SMALL, "--limit", "72", "--log", log)
        seen.append(losses(log))
    assert seen[0] == seen[1] != seen[2], seen


def resume(folder):
    """Stopped after an epoch with 2 ranks and resumed with 3: the losses of a run in one go."""
    want = ["--holdout", "40", "--batch", "24", "--limit", "100", "--dropout", "0"]
    whole, parts = folder / "whole", folder / "parts"
    checkpoint = ["--checkpoint", folder / "state"]
    run(2, *want, "--epochs", "3", "--log", whole)
    run(2, *want, "--epochs", "1", "--log", parts, *checkpoint)
    out, _ = run(3, *want, "--epochs", "3", "--log", parts, *checkpoint, "--resume")
    line(r"resumed from .*: epoch 2, step 0$", out)
    close(losses(parts), losses(whole), 1e-3)
    # All epochs are done: the program trains no more.
    before = (folder / "state").read_bytes()
    out, _ = run(1, *want, "--epochs", "3", *checkpoint, "--resume")
    line(r"accuracy", out)
    assert (folder / "state").read_bytes() == before


def resume_bits(folder):
    """With the same number of ranks, and dropout, even the bits are those of a run in one go."""
    want = [*SMALL[:-1], "2", "--limit", "72"]
    whole, parts = folder / "whole", folder / "parts"
    first, _ = run(2, *want, "--log", whole)
    run(2, *want, "--epochs", "1", "--log", parts, "--checkpoint", folder / "state")
    second, _ = run(2, *want, "--log", parts, "--checkpoint", folder / "state", "--resume")
    assert whole.read_text() == parts.read_text()
    assert line(r"hash \w+", first) == line(r"hash \w+", second)


def killed(folder):
    """A rank is killed in the middle of an epoch: the others name it, and --resume goes on."""
    want = ["--holdout", "40", "--batch", "24", "--limit", "600"]
    log, state = folder / "log", folder / "state"
    job = start(3, *want, "--epochs", "100", "--log", log, "--checkpoint", state)
    deadline = time.monotonic() + 300
    while not (log.exists() and len(log.read_text().splitlines()) > 30):
        if job.poll() is not None or time.monotonic() > deadline:
            job.terminate()
            raise AssertionError(f"it does not get to step 30\n{job.communicate()}")
        time.sleep(0.05)
    victim = jobs.process(1)
    os.kill(victim, signal.SIGKILL)
    began = time.monotonic()
    out, err = job.communicate(timeout=60)
    print(f"ended {time.monotonic() - began:.2f} s after rank 1")
    assert job.returncode == 128 + signal.SIGKILL, (job.returncode, err)
    for rank in (0, 2):
        line(rf"^\[{rank}\] colls: rank {rank}: .*peer_failed: rank 1 ", err)
    out, _ = run(2, *want, "--epochs", "2", "--checkpoint", state, "--resume")
    line(r"resumed from .*: epoch 2, step 0$", out)


def put_idx(path, sizes, data):
    head = bytes([0, 0, 8, len(sizes)]) + b"".join(size.to_bytes(4, "big") for size in sizes)
    path.write_bytes(head + data)
    return path


def bad_input(folder):
    """One line that names what is wrong, whichever rank sees it; nothing is overwritten."""
    images = put_idx(folder / "images", [50, 28, 28], bytes(50 * 784))
    labels = put_idx(folder / "labels", [50], bytes(50))
    few = put_idx(folder / "few", [49], bytes(49))
    cut = folder / "cut.gz"
    cut.write_bytes(gzip.compress(images.read_bytes())[:-20])
    state = folder / "state"
    run(2, *SMALL, "--limit", "24", "--checkpoint", state)
    whole = state.read_bytes()
    half = folder / "half"
    half.write_bytes(whole[: len(whole) // 2])
    log = folder / "log"
    cases = [
        (["--images", labels, "--labels", labels], f"{labels}: is no IDX file"),
        (["--images", images, "--labels", few], f"{few}: has 49 labels for the 50 pictures of {images}"),
        (["--images", cut, "--labels", labels], f"{cut}: unexpected end of file"),
        (["--images", images], "--images requires --labels"),
        (["--data", folder / "nowhere"], f"{folder}/nowhere: no train-images-idx3-ubyte"),
        (["--batch", "1"], "--batch 1 is smaller than the 2 ranks"),
        (["--batch", "-3"], "--batch"),
        (["--epochs", "many"], "--epochs"),
        (["--log", folder], f"{folder}: cannot be written"),
        (["--checkpoint", folder / "no/state"], f"{folder}/no/state: No such file or directory"),
        (["--checkpoint", folder / "no", "--resume"], f"{folder}/no: No such file or directory"),
        (["--checkpoint", half, "--resume"], f"{half}: is no checkpoint"),
        (["--checkpoint", images, "--resume"], f"{images}: is no checkpoint"),
        (["--checkpoint", state, "--resume", "--seed", "7"], "is of a training with 24 samples"),
        (["--plain"], "--plain is for one process, not 2"),
    ]
    for arguments, words in cases:
        out, err = run(2, *SMALL, "--limit", "24", *arguments, good=False)
        assert words in line(r"^\[\d\] (?:train_mnist|colls): .*$", err), err
        assert "accuracy" not in out, out
    assert state.read_bytes() == whole and half.read_bytes() == whole[: len(whole) // 2]


def real_digits(folder):
    """On MNIST's own files, as --data and by name."""
    where = pathlib.Path(os.environ["COLLS_MNIST"])
    log = folder / "log"
    named = [word for key, name in FILES.items() for word in (f"--{key}", where / name)]
    want = ["--limit", "1600", "--epochs", "1", "--batch", "32", "--holdout", "500", "--log", log]
    out, _ = run(2, *want, "--data", where)
    assert sum(losses(log)[-10:]) < 0.5 * sum(losses(log)[:10]), losses(log)
    assert float(line(r"accuracy (\d+\.\d+) %", out)) > 75, out
    if all((where / name).exists() for name in FILES.values()):
        run(2, *want[:-2], "--limit", "64", *named)


def main():
    tests = [output, same_losses, dropout, resume, resume_bits, killed, bad_input]
    if "COLLS_MNIST" in os.environ:
        tests.append(real_digits)
    else:
        print("skipped: COLLS_MNIST does not name the folder of MNIST's digits")
    jobs.main(tests, skipped=real_digits not in tests)


main()
