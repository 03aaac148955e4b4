#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Measures the backend gloo of torch.distributed as colls-bench measures colls. It starts its own ranks. The times
are those of calls from Python. Reductions are in place, because torch.distributed has no others."""

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)  # as a signed number


def pin(rank, ranks):
    """Pins this process to a core of its own, if there are enough cores."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) >= ranks:
        os.sched_setaffinity(0, {usable[rank]})


def part(rank, i):
    """Element i of this rank's input of a reduction, as in colls-bench."""
    return ((i * 7 + rank * 3) % 13 + 1).float()


def moved(rank, i):
    """Byte i of this rank's input of another collective."""
    import torch

    return ((((i * GOLDEN) >> 56) + rank * 29 + 1) & 255).to(torch.uint8)


class Workload:
    """One collective of one size on one rank: `fill` sets its buffers, `start` is the call, and `wrong` counts
    the elements that are not those of the result."""

    def __init__(self, collective, size, rank, ranks):
        import torch
        import torch.distributed as dist

        one, all_of = size // ranks, torch.arange
        self.reset = []  # (tensor, its value before a call)
        self.result, self.expected = None, None
        empty = lambda count: torch.zeros(count, dtype=torch.uint8)
        if collective in ("all_reduce", "reduce"):
            i = all_of(size // 4)
            data = empty(0).float().resize_(len(i))
            self.reset = [(data, part(rank, i))]
            if collective == "all_reduce" or rank == 0:
                self.result, self.expected = data, sum(part(peer, i) for peer in range(ranks))
            self.start = (lambda: dist.all_reduce(data)) if collective == "all_reduce" else (
                lambda: dist.reduce(data, 0))
        elif collective == "broadcast":
            self.result, self.expected = empty(size), moved(0, all_of(size))
            self.reset = [(self.result, self.expected.clone() if rank == 0 else empty(size))]
            self.start = lambda: dist.broadcast(self.result, 0)
        elif collective in ("all_gather", "gather"):
            own = moved(rank, all_of(one))
            if collective == "all_gather" or rank == 0:
                self.result = empty(one * ranks)
                self.expected = torch.cat([moved(peer, all_of(one)) for peer in range(ranks)])
                self.reset = [(self.result, empty(one * ranks))]
            parts = None if self.result is None else list(self.result.split(max(one, 1)))
            self.start = (lambda: dist.all_gather_into_tensor(self.result, own)) if collective == "all_gather" else (
                lambda: dist.gather(own, parts, 0))
        elif collective == "scatter":
            parts = list(moved(0, all_of(one * ranks)).split(max(one, 1))) if rank == 0 else None
            self.result, self.expected = empty(one), moved(0, all_of(one) + one * rank)
            self.reset = [(self.result, empty(one))]
            self.start = lambda: dist.scatter(self.result, parts, 0)
        elif collective == "all_to_all":
            given = moved(rank, all_of(one * ranks))
            self.result = empty(one * ranks)
            self.expected = torch.cat([moved(peer, all_of(one) + one * rank) for peer in range(ranks)])
            self.reset = [(self.result, empty(one * ranks))]
            self.start = lambda: dist.all_to_all_single(self.result, given)
        elif collective == "barrier":
            self.start = dist.barrier
        else:
            sys.exit(f"torch.distributed is not compared in {collective}")

    def fill(self):
        for tensor, value in self.reset:
            tensor.copy_(value)

    def wrong(self):
        return 0 if self.result is None else int((self.result != self.expected).sum())


def largest(*values):
    """The largest of the values of all ranks."""
    import torch
    import torch.distributed as dist

    found = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return found.tolist()


def early_exits(rank, ranks):
    """How many of some barriers a rank left before all ranks had entered them."""
    import torch.distributed as dist

    early = 0
    for late in range(min(ranks, 8)):
        if rank == late:
            time.sleep(0.001)
        entered = time.monotonic()
        dist.barrier()
        last, first = largest(entered, -time.monotonic())
        early += last > -first
    return early


class Allowance:
    """The number of iterations that fit into a time, as in colls_bench/allowance.hpp."""

    def __init__(self, seconds, most):
        self.left, self.total, self.least, self.most = seconds, seconds, min(5, most), most
        self.due, self.updated = 3, 1

    def is_due(self, calls, last):
        return calls == self.due or (last and calls > 1)

    def iterations(self, done, calls, spent):
        if calls == self.due:
            self.due *= 10
        self.left -= spent
        more = self.left * (calls - self.updated) / spent
        self.updated = calls
        if self.left < self.total / 10 or more < 1:
            return min(max(done, self.least), self.most)
        return int(min(max(done + more, self.least), self.most))


def times(given, work, size):
    """The time of each call in seconds, of the slowest rank."""
    import torch
    import torch.distributed as dist

    iterations = given.iterations or (2000 if size <= 64 * 1024 else 200 if size <= 1 << 20 else 20)
    warmup = (iterations + 9) // 10
    allowed = Allowance(given.seconds, iterations)
    taken, calls, k = [], 0, -warmup
    updated = time.perf_counter()
    while k < iterations:
        work.fill()  # the values of sums in place grow with each call
        before = time.perf_counter()
        dist.barrier()
        began = before if given.turns else time.perf_counter()
        work.start()
        ended = time.perf_counter()
        if k >= 0:
            taken.append(ended - began)
        if given.seconds:
            calls += 1
            if calls == 1:
                updated = ended
            if allowed.is_due(calls, k + 1 == iterations):
                iterations = allowed.iterations(k + 1, calls, largest(ended - updated)[0])
                k = max(k, -((iterations + 9) // 10))
                updated = time.perf_counter()
        k += 1
    slowest = torch.tensor(taken, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return sorted(slowest.tolist())


def run(given):
    """One rank."""
    pin(given.rank, given.ranks)
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{given.store}", rank=given.rank, world_size=given.ranks,
                            timeout=datetime.timedelta(seconds=60))
    began = time.monotonic()
    while largest(time.monotonic() - began)[0] < 0.05:  # until the scheduler has settled
        dist.barrier()
    wrong_in_all = 0
    for size in given.sizes:
        work = Workload(given.collective, size, given.rank, given.ranks)
        taken = times(given, work, size)
        work.fill()
        work.start()
        wrong = torch.tensor([work.wrong()])
        dist.all_reduce(wrong)
        if given.collective == "barrier":
            wrong[0] = early_exits(given.rank, given.ranks)
        wrong_in_all += int(wrong)
        if given.rank == 0:
            us = [1e6 * seconds for seconds in taken]
            line = {"library": "gloo", "ranks": given.ranks, "bytes": size, "registered": False, "us_min": us[0],
                    "us_median": statistics.median_high(us), "us_p99": us[round(0.99 * (len(us) - 1))],
                    "wrong": int(wrong)}
            print(f"{size} B: median {line['us_median']:.2f} us of {len(us)}")
            if given.json:
                with open(given.json, "a") as file:
                    file.write(json.dumps(line) + "\n")
    dist.destroy_process_group()
    sys.exit(f"{wrong_in_all} are wrong" if wrong_in_all else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("collective")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--algorithm", choices=["auto"], help="torch.distributed has no choice")
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")], default=[0])
    parser.add_argument("-n", dest="iterations", type=int, default=0, help="0: by size")
    parser.add_argument("--seconds", type=float, default=0, help="fewer iterations if a size takes longer; 0: no limit")
    parser.add_argument("--turns", action="store_true", help="include the barrier before a call in its time")
    parser.add_argument("--json", help="append one line for each size to this file")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        return run(given)
    with tempfile.TemporaryDirectory() as folder:
        ranks = [subprocess.Popen([sys.executable, *sys.argv, "--rank", str(rank), "--store", f"{folder}/store"],
                                  env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"})
                 for rank in range(given.ranks)]
        sys.exit(max(abs(rank.wait()) for rank in ranks))


main()
