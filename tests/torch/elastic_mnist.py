#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Runs examples/elastic_mnist by colls-run, and kills ranks.

usage: elastic_mnist.py BUILD_DIR
"""

import json
import os
import random
import re
import signal
import time

import jobs
from jobs import line

RANKS = 4
TRAINING = {"limit": 300, "holdout": 50, "batch": 24, "epochs": 2}
OPTIONS = [word for name, value in TRAINING.items() for word in (f"--{name}", str(value))]


def events(folder, rank):
    path = folder / f"log.{rank}"
    return [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []


def train(folder, kills, *arguments, policy="shrink"):
    """Output of a run in which ranks are killed as soon as they have taken so many steps, and later."""
    job = jobs.start(RANKS, "examples/elastic_mnist", *OPTIONS, "--log", folder / "log", *arguments,
                     launcher=["--on-failure", policy])
    for rank, steps in kills:
        deadline = time.monotonic() + 120
        while sum(event["event"] == "take" for event in events(folder, rank)) < steps:
            if job.poll() is not None or time.monotonic() > deadline:
                job.terminate()
                raise AssertionError(f"rank {rank} does not get to step {steps}\n{job.communicate()}")
            time.sleep(0.005)
        time.sleep(random.random() * 0.2)
        os.kill(jobs.process(rank), signal.SIGKILL)
    out, err = job.communicate(timeout=300)
    assert job.returncode == 0, (job.returncode, out, err)
    return out, err


def attempt_of(event):
    """Greater for a later attempt to take the step."""
    return event["generation"], -event["ranks"]


def check_samples(folder, killed):
    """Each sample counts once in each epoch. The ranks that are left have applied each step in one
    attempt. `killed` are the ranks that have no replacement."""
    applied = {}
    for rank in set(range(RANKS)) - killed:
        # A rank that has died may have applied a step alone. Its replacement then takes it again.
        own = {event["step"]: attempt_of(event) for event in events(folder, rank) if event["event"] == "apply"}
        for step, attempt in own.items():
            assert applied.setdefault(step, attempt) == attempt, (step, attempt, applied[step])
    taken = {}
    for rank in range(RANKS):
        for event in events(folder, rank):
            if event["event"] == "take":
                taken.setdefault((event["step"], attempt_of(event)), []).extend(event["samples"])
    steps = -(-TRAINING["limit"] // TRAINING["batch"])
    for epoch in range(TRAINING["epochs"]):
        samples = []
        for step in range(epoch * steps, (epoch + 1) * steps):
            # The ranks that are left may all have got a step from one that died later.
            last = max(attempt for number, attempt in taken if number == step)
            samples += taken[step, applied.get(step, last)]
        assert sorted(samples) == list(range(TRAINING["limit"])), (epoch, len(samples))


def killed(folder):
    """Rank 0 and others are killed at random moments: those that are left train with every sample."""
    seed = random.randrange(1000)
    print(f"seed {seed}")
    random.seed(seed)
    for number, kills in enumerate([[(0, 5)], [(2, 3), (0, 14)], [(1, 2), (3, 7), (0, 16)]]):
        place = folder / str(number)
        place.mkdir()
        out, err = train(place, kills)
        left = RANKS - len(kills)
        line(rf"parameters: the same bits on {left} ranks, hash \w+$", out)
        line(r"accuracy (\S+) %$", out)
        for rank, _ in kills:
            assert re.search(rf"rank {rank}\b.*(SIGKILL|signal 9|killed)", err), err
        check_samples(place, {rank for rank, _ in kills})


def replaced(folder):
    """Replacements of killed ranks train on, with the bits of a run in which no rank dies."""
    alone = folder / "alone"
    alone.mkdir()
    whole, _ = train(alone, [])
    for number, kills in enumerate([[(2, 3), (0, 14)], [(1, 2), (3, 7), (1, 16)]]):
        place = folder / str(number)
        place.mkdir()
        out, err = train(place, kills, policy="replace")
        line(rf"parameters: the same bits on {RANKS} ranks, hash \w+$", out)
        assert line(r"hash \w+", out) == line(r"hash \w+", whole)
        for rank, _ in kills:
            assert re.search(rf"a replacement for rank {rank} starts", err), err
        check_samples(place, set())


def undisturbed(folder):
    """A run is repeatable, and one that goes on from a checkpoint has the same bits, although a rank of the
    world that has written it was replaced."""
    first, _ = train(folder, [])
    check_samples(folder, set())
    state = ["--checkpoint", folder / "state"]
    part = folder / "part"
    part.mkdir()
    _, err = train(part, [(1, 3)], *state, "--epochs", "1", policy="replace")
    assert "a replacement for rank 1 starts" in err, err
    second, _ = train(folder, [], *state)
    assert line(r"hash \w+", first) == line(r"hash \w+", second)


jobs.main([undisturbed, killed, replaced])
