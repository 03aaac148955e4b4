#!/usr/bin/python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Compares train_mnist with torch.distributed's DistributedDataParallel with gloo: the same network,
start weights and batches. Compares the losses of the first steps, and measures samples/s of both, and
of libtorch and Python's torch alone. Each rank has one thread; the candidates run in turn.

The start weights come from a checkpoint of train_mnist. MNIST's files (t10k-*) are needed. The torch of
the Python that runs this program is measured. With the current versions of both:
build-wheels/torch/bin/python bench/ddp_beside_torch.py MNIST_DIR --build build-current

usage: ddp_beside_torch.py MNIST_DIR [--build DIR] [--ranks 2] [--steps 50] [--rounds 3]
       (the program starts the ranks of the Python side itself, with --worker)
"""

import argparse
import gzip
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

BATCH, HOLDOUT, SEED, LR = 64, 1000, 1, 1e-3
WORD = (1 << 64) - 1


def mix(value, word):
    value = ((value ^ word) + 0x9E3779B97F4A7C15) & WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & WORD
    return value ^ (value >> 31)


def shuffled(n, seed, epoch):
    """The same order as colls::ddp::shuffled."""
    state = mix(mix(0, seed), epoch)
    order = list(range(n))
    for left in range(n, 1, -1):
        while True:
            bits = mix(state, 0)
            state = (state + 1) & WORD
            if bits <= WORD - (1 << 64) % left:
                break
        taken = bits % left
        order[left - 1], order[taken] = order[taken], order[left - 1]
    return order


def part(samples, rank, ranks):
    """The same part as colls::partition."""
    base, longer = divmod(len(samples), ranks)
    first = rank * base + min(rank, longer)
    return samples[first : first + base + (rank < longer)]


def worker(arguments):
    """Runs one rank of DistributedDataParallel, or Python's torch alone if there is only one rank."""
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = torch.nn.Conv2d(1, 32, 3)
            self.conv2 = torch.nn.Conv2d(32, 64, 3)
            self.fc1 = torch.nn.Linear(9216, 128)
            self.fc2 = torch.nn.Linear(128, 10)

        def forward(self, x):
            x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
            return F.log_softmax(self.fc2(F.relu(self.fc1(torch.flatten(x, 1)))), dim=1)

    torch.set_num_threads(1)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    folder = pathlib.Path(arguments.mnist)
    read = lambda name, skip: bytearray(gzip.decompress((folder / name).read_bytes())[skip:])
    images = torch.frombuffer(read("t10k-images-idx3-ubyte.gz", 16), dtype=torch.uint8)
    labels = torch.frombuffer(read("t10k-labels-idx1-ubyte.gz", 8), dtype=torch.uint8).long()
    images = (images.view(-1, 1, 28, 28).float() / 255 - 0.1307) / 0.3081
    training = shuffled(len(labels), SEED, WORD)[HOLDOUT:][: arguments.steps * BATCH]
    order = shuffled(len(training), SEED, 0)

    net = Net()
    warnings.filterwarnings("ignore", "`torch.jit.load` is deprecated")  # libtorch in C++ writes this format
    stored = dict(torch.jit.load(arguments.weights).named_parameters())
    net.load_state_dict({name: stored[name] for name in net.state_dict()})
    model = net
    if ranks > 1:
        dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=LR)
    losses = []
    began = time.monotonic()
    for step in range(arguments.steps):
        batch = order[step * BATCH : (step + 1) * BATCH]
        own = [training[i] for i in part(batch, rank, ranks)]
        optimizer.zero_grad()
        loss = F.nll_loss(model(images[own]), labels[own], reduction="sum")
        # DistributedDataParallel averages over ranks; this makes it the average over samples.
        (loss * ranks / len(batch)).backward()
        optimizer.step()
        total = torch.tensor([loss.item()], dtype=torch.float64)
        if ranks > 1:
            dist.all_reduce(total)
        losses.append(total.item() / len(batch))
    if rank == 0:
        speed = arguments.steps * BATCH / (time.monotonic() - began)
        print(json.dumps({"losses": losses, "samples_per_second": speed, "version": torch.__version__}), flush=True)
    if ranks > 1:
        dist.barrier()
        os._exit(0)  # the destructors of torch 2.15 sometimes end the process by std::terminate


def python_side(arguments, weights, ranks):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, __file__, arguments.mnist, "--worker", "--weights", str(weights),
               "--steps", str(arguments.steps)]
    shared = {"WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
    started = [
        subprocess.Popen(command, text=True, stdout=subprocess.PIPE,
                         env={**os.environ, **{k: str(v) for k, v in shared.items()}, "RANK": str(rank)})
        for rank in range(ranks)
    ]
    outputs = [process.communicate(timeout=600)[0] for process in started]
    assert all(process.returncode == 0 for process in started)
    result = json.loads(outputs[0].splitlines()[-1])
    arguments.version = result["version"]
    return result["losses"], result["samples_per_second"]


def colls_side(arguments, ranks, *more):
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log"
        out = train(arguments, ranks, "--epochs", "1", "--log", log, *more)
        losses = [json.loads(line)["loss"] for line in log.read_text().splitlines()]
    return losses, float(re.search(r"mean loss .* (\d+) samples/s", out)[1])


def train(arguments, ranks, *more):
    build = pathlib.Path(arguments.build)
    command = [build / "tools/colls-run", "-n", str(ranks), "-x", "OMP_NUM_THREADS=1", build / "examples/train_mnist",
               "--data", arguments.mnist, "--holdout", str(HOLDOUT), "--batch", str(BATCH), "--lr", str(LR),
               "--seed", str(SEED), "--dropout", "0", "--limit", str(arguments.steps * BATCH), *more]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, check=True)
    return done.stdout


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("mnist")
    parser.add_argument("--build", default="build")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--weights")
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(arguments)

    with tempfile.TemporaryDirectory() as folder:
        weights = pathlib.Path(folder) / "start"
        train(arguments, 1, "--epochs", "0", "--checkpoint", weights)
        many = f"{arguments.ranks} ranks"
        alone, python_alone = "libtorch alone", "Python's torch alone"
        candidates = {
            alone: lambda: colls_side(arguments, 1, "--plain"),
            "colls, 1 rank": lambda: colls_side(arguments, 1),
            f"colls, {many}": lambda: colls_side(arguments, arguments.ranks),
            f"colls, {many}, --hooks": lambda: colls_side(arguments, arguments.ranks, "--hooks"),
            python_alone: lambda: python_side(arguments, weights, 1),
            f"torch.distributed, gloo, {many}": lambda: python_side(arguments, weights, arguments.ranks),
        }
        losses, speeds = {}, {name: [] for name in candidates}
        for _ in range(arguments.rounds):
            for name, run in candidates.items():
                losses[name], speed = run()
                speeds[name].append(speed)

    reference = losses[f"torch.distributed, gloo, {many}"]
    differences = {
        name: max(abs(loss - right) / abs(right) for loss, right in zip(some, reference))
        for name, some in losses.items()
    }
    print(f"Python's torch is {arguments.version}; medians of {arguments.rounds} rounds\n")
    print("| | samples/s (least to most) | beside its library alone | losses apart from torch.distributed's |\n"
          "|---|---|---|---|")
    for name, all_speeds in speeds.items():
        own = speeds[python_alone if "torch" in name and "lib" not in name else alone]
        ratio = statistics.median(speed / single for speed, single in zip(all_speeds, own))
        print(f"| {name} | {statistics.median(all_speeds):.0f} ({min(all_speeds):.0f} to {max(all_speeds):.0f}) "
              f"| {ratio:.3f} | {differences[name]:.1e} |")
    print("\n| step | " + " | ".join(losses) + " |\n|---|" + "---|" * len(losses))
    for step in sorted({0, 1, 2, arguments.steps // 2, arguments.steps - 1} & set(range(arguments.steps))):
        print(f"| {step + 1} | " + " | ".join(f"{some[step]:.6f}" for some in losses.values()) + " |")
    assert all(len(some) == arguments.steps for some in losses.values())
    sys.exit(max(differences.values()) > 1e-4)


main()
