#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Elastic training in which ranks die at given moments of a step, and are replaced. The ranks are the
skipped case of elastic.cpp.

usage: elastic_deaths.py BUILD_DIR
"""

import os

import jobs

RANKS = 4
DEATHS = 20


def train(folder, deaths):
    """The bits of the parameters, and what the launcher has said."""
    folder.mkdir()
    job = jobs.start(RANKS, "tests/test_torch_training", "--no-skip", "--minimal",
                     "--test-case=a rank of elastic_deaths.py",
                     launcher=["--on-failure", "replace", "--max-restarts", str(DEATHS), "-x",
                               f"ELASTIC_DEATHS={deaths}", "-x", f"ELASTIC_RESULT={folder / 'bits'}", "-x",
                               f"ELASTIC_CHECKPOINT={folder / 'state'}"])
    out, err = job.communicate(timeout=280)
    assert job.returncode == 0, (job.returncode, out, err)
    return (folder / "bits").read_bytes(), err


def twenty_deaths(folder):
    """Each rank dies at each moment: before forward, in the first and in the last bucket, between the
    buckets and the optimizer's step, and in the checkpoint. The parameters end with the bits of a run
    without deaths."""
    deaths = DEATHS if os.environ.get("COLLS_TEST_FULL") == "1" else 5
    alone, _ = train(folder / "alone", 0)
    bits, err = train(folder / "deaths", deaths)
    assert err.count("a replacement for rank") == deaths, err
    assert err.count("failed: killed by SIGKILL") == deaths, err
    assert bits == alone


jobs.main([twenty_deaths])
