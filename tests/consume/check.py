#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Builds and runs main.cpp the way a user's project does.

plain       one command, the checkout's include folder and the libraries that docs/building.md names
subproject  a Meson project that has the checkout as a subproject
pkg-config  against what `meson install` installed
cmake       against what `meson install` installed, by find_package

usage: check.py plain|subproject|pkg-config|cmake SOURCE_DIR COMPILER...
"""

import filecmp
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def run(*command, env=None):
    print("+", *command, flush=True)
    subprocess.run(command, check=True, env={**os.environ, **(env or {})})


def output(*command, env=None):
    return subprocess.run(
        command, check=True, text=True, stdout=subprocess.PIPE, env={**os.environ, **(env or {})}
    ).stdout


def same_files(left, right):
    compared = filecmp.dircmp(left, right)
    return not (compared.left_only or compared.right_only or compared.diff_files) and all(
        same_files(os.path.join(left, sub), os.path.join(right, sub)) for sub in compared.common_dirs
    )


def install(source, folder, compiler):
    """Installs everything by the commands of a user. Returns the prefix."""
    run("meson", "setup", folder / "b", source, env={"CXX": " ".join(compiler)})
    steps = output("ninja", "-C", folder / "b", "-n")
    assert "no work to do" in steps, f"installing headers compiles something:\n{steps}"
    run("meson", "install", "-C", folder / "b", "--quiet", "--destdir", folder / "root")
    found = list((folder / "root").rglob("include/colls/version.hpp"))
    assert len(found) == 1, f"installed version.hpp: {found}"
    assert same_files(source / "include/colls", found[0].parent), "not all headers are installed"
    return found[0].parents[2]


def plain(source, folder, compiler):
    flags = ["-std=c++20", "-I", source / "include", "-pthread"]
    run(*compiler, *flags, HERE / "main.cpp", "-o", folder / "main", "-lcrypto")
    run(folder / "main")


def subproject(source, folder, compiler):
    for name in ("main.cpp", "meson.build"):
        shutil.copy(HERE / name, folder)
    (folder / "subprojects").mkdir()
    (folder / "subprojects/colls").symlink_to(source)
    run("meson", "setup", folder / "build", folder, env={"CXX": " ".join(compiler)})
    run("ninja", "-C", folder / "build")
    run(folder / "build/main")


def pkg_config(source, folder, compiler):
    prefix = install(source, folder, compiler)
    env = {"PKG_CONFIG_PATH": f"{prefix}/share/pkgconfig"}
    flags = output("pkg-config", "--cflags", "--libs", "colls", env=env).split()
    run(*compiler, "-std=c++20", HERE / "main.cpp", "-o", folder / "main", *flags)
    run(folder / "main")


def cmake(source, folder, compiler):
    prefix = install(source, folder, compiler)
    for name in ("main.cpp", "CMakeLists.txt"):
        shutil.copy(HERE / name, folder)
    launcher = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={word}" for word in compiler[:-1]]
    options = [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={compiler[-1]}", *launcher]
    run("cmake", "-G", "Ninja", "-S", folder, "-B", folder / "build", *options)
    run("cmake", "--build", folder / "build")
    run(folder / "build/main")


def main():
    ways = {"plain": plain, "subproject": subproject, "pkg-config": pkg_config, "cmake": cmake}
    if len(sys.argv) < 4 or sys.argv[1] not in ways:
        sys.exit(__doc__)
    source = pathlib.Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        ways[sys.argv[1]](source, pathlib.Path(folder), sys.argv[3:])


main()
