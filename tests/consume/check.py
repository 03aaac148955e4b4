#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Builds the program in the folder `project` the way users do, and runs it with 3 ranks.

subproject     a Meson project that has colls as a subproject
fetch_content  a CMake project that fetches colls from a git repository
copied         one command, a copy of the include folder and the libraries that docs/building.md names
single         the same with the header that tools/single_header.py makes
installed      against what `meson install` installed, by pkg-config, find_package and nvcc; files that do
               not fit together have to be refused by the linker
matrix         against what is installed at -O0, at -O3 and with LTO, as C++20 and 23, and header-only
debian         against the packages that dpkg-buildpackage makes, started by their colls-run
conan          as the test of the package that `conan create` makes, with Boost and OpenSSL of the system.
               Conan comes from the Python index; without it the recipe is only parsed
vcpkg          only parses the port: vcpkg builds nothing without a network

BUILD_DIR has tools/colls-run. Works in a folder there, so that ccache sees the same paths again.

usage: check.py WAY SOURCE_DIR BUILD_DIR COMPILER...
"""

import filecmp
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

PROJECT = pathlib.Path(__file__).resolve().parent / "project"
FILES = ("main.cpp", "squares.cpp")
MIXED = "colls_is_header_only_in_some_files_and_compiled_once_in_others"
LIBRARIES = ["-pthread", "-lcrypto"]
JOBS = str(len(os.sched_getaffinity(0)))  # not ninja's default of more, because each takes much memory
# Consumers are compiled without optimisation where it does not matter.
FAST = ["-Doptimization=0", "-Ddebug=false"]


def run(*command, env=None, **more):
    print("+", *command, flush=True)
    return subprocess.run([str(word) for word in command], check=True, env={**os.environ, **(env or {})}, **more)


def output(*command, **more):
    return run(*command, text=True, stdout=subprocess.PIPE, **more).stdout


class Consumer:
    def __init__(self, source, build, folder, compiler):
        self.source, self.build, self.folder, self.compiler = source, build, folder, compiler
        self.is_clang = "clang" in compiler[-1]
        self.meson_env = {"CXX": " ".join(compiler)}
        if compiler[-1].startswith("clang++-"):  # GNU ar does not read its LTO objects
            self.meson_env["AR"] = compiler[-1].replace("clang++", "llvm-ar")

    def project(self, name):
        """A fresh copy of the user's project."""
        made = self.folder / name
        shutil.copytree(PROJECT, made)
        return made

    def copied_source(self, name, *parts):
        """A copy of parts of colls as they are, whether committed or not."""
        made = self.folder / name
        made.mkdir()
        for part in parts:
            copy = shutil.copytree if (self.source / part).is_dir() else shutil.copy
            copy(self.source / part, made / part)
        return made

    def start(self, program, launcher=None):
        said = output(launcher or self.build / "tools/colls-run", "-n", "3", program)
        assert said.count("3 ranks agree") == 1, f"the program printed: {said}"

    def object(self, file, *flags, made=None):
        made = made or file.with_suffix(".o")
        run(*self.compiler, *flags, "-c", file, "-o", made)
        return made

    def compile(self, folder, *flags, launcher=None):
        objects = [self.object(folder / file, *flags) for file in FILES]
        run(*self.compiler, *objects, "-o", folder / "main", *flags)
        self.start(folder / "main", launcher)

    # --- ways

    def subproject(self, dependency="colls"):
        folder = self.project(dependency)
        (folder / "subprojects").mkdir()
        (folder / "subprojects/colls").symlink_to(self.source)
        run("meson", "setup", folder / "b", folder, *FAST, f"-Dcolls={dependency}", env=self.meson_env)
        run("ninja", "-j", JOBS, "-C", folder / "b")
        self.start(folder / "b/main")

    def cmake(self, name, *options):
        folder = self.project(name)
        launcher = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={word}" for word in self.compiler[:-1]]
        run("cmake", "-G", "Ninja", "-S", folder, "-B", folder / "b", *options, *launcher,
            f"-DCMAKE_CXX_COMPILER={self.compiler[-1]}")
        run("cmake", "--build", folder / "b", "--parallel", JOBS)
        self.start(folder / "b/main")

    def fetch_content(self):
        repository = self.copied_source("repository", "include", "tools", "CMakeLists.txt")
        git = ["git", "-C", repository, "-c", "user.name=colls", "-c", "user.email=colls@localhost"]
        run("git", "init", "-q", "-b", "main", repository)
        run(*git, "add", ".")
        run(*git, "commit", "-q", "-m", "colls")
        self.cmake("fetching", f"-DCOLLS_REPOSITORY=file://{repository}")

    def copied(self):
        folder = self.project("copied")
        shutil.copytree(self.source / "include", folder / "include")
        self.compile(folder, "-std=c++20", "-I", folder / "include", *LIBRARIES)

    def single(self):
        folder = self.project("single")
        run(sys.executable, self.source / "tools/single_header.py", folder / "colls.hpp")
        for file in FILES:
            text = (folder / file).read_text()
            (folder / file).write_text(re.sub(r"#include <colls/.*>", '#include "colls.hpp"', text))
        self.compile(folder, "-std=c++20", *LIBRARIES)

    def installed(self):
        folder = self.project("consumer")
        prefix = self.install("installed", *FAST)
        flags = ["-std=c++20", *self.pkg_config(prefix, "colls")]
        self.compile(folder, *flags)
        self.cmake("finding", f"-DCMAKE_PREFIX_PATH={prefix}")
        self.refused(folder, flags, self.pkg_config(prefix, "colls-header-only"))
        self.nvcc(folder, flags)

    def matrix(self):
        for name, options, flags in (("O0", FAST, ["-O0"]), ("O3", ["-Doptimization=3", "-Ddebug=false"], ["-O3"]),
                                     ("LTO", ["-Doptimization=2", "-Ddebug=false", "-Db_lto=true"], ["-O2", "-flto"])):
            prefix = self.install(name, *options)
            for standard in ("20", "23"):
                folder = self.project(f"{name}_{standard}")
                self.compile(folder, f"-std=c++{standard}", *flags, *self.pkg_config(prefix, "colls"))
        self.cmake("finding", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCOLLS_TARGET=colls::header_only")
        self.subproject("colls-header-only")

    # --- packages

    def debian(self):
        source = self.copied_source("colls", "debian", "include", "tools", "meson.build", "meson_options.txt", "LICENSE")
        if not shutil.which("dpkg-buildpackage"):
            return print("skipped: no dpkg-buildpackage, so no Debian package was built")
        missing = subprocess.run(["dpkg-checkbuilddeps"], cwd=source, text=True, stderr=subprocess.PIPE)
        if missing.returncode:
            return print("skipped: no Debian package was built:", missing.stderr.strip())
        run("dpkg-buildpackage", "-us", "-uc", cwd=source,
            env={**self.meson_env, "DEB_BUILD_OPTIONS": f"noopt parallel={JOBS}", "DEB_CXXFLAGS_APPEND": "-g0"})
        root = self.folder / "root"
        for package in ("libcolls-dev", "colls-tools"):
            [file] = self.folder.glob(f"{package}_*.deb")
            run("dpkg-deb", "-x", file, root)
        colls_run = root / "usr/bin/colls-run"
        self.compile(self.project("consumer"), "-std=c++20", *self.pkg_config(root / "usr", "colls"),
                     launcher=colls_run)
        self.cmake("finding", f"-DCMAKE_PREFIX_PATH={root}/usr")

    def conan(self):
        conan = self.folder.parent / "conan-venv/bin/conan"  # stays there for the next run
        try:
            if not conan.exists():
                run(sys.executable, "-m", "venv", conan.parents[1])
                run(conan.parent / "pip", "install", "-q", "--retries", "1", "conan>=2,<3")
        except subprocess.CalledProcessError as failure:
            for recipe in (self.source / "conanfile.py", PROJECT / "conanfile.py"):
                compile(recipe.read_text(), recipe, "exec")
            return print("skipped: Conan cannot be installed, so its recipe was only parsed:", failure)
        env = {"CONAN_HOME": str(self.folder / "home"), "CXX": self.compiler[-1],
               "CMAKE_CXX_COMPILER_LAUNCHER": ";".join(self.compiler[:-1])}
        run(conan, "profile", "detect", env=env)
        said = output(conan, "create", self.source, "-s", "build_type=Debug", "-c", f"tools.build:jobs={JOBS}",
                      "-c", f"tools.cmake.cmake_layout:test_folder={self.folder}/test", env=env)
        assert said.count("3 ranks agree") == 1, f"conan printed: {said}"

    def vcpkg(self):
        port = self.source / "tools/vcpkg/colls"
        manifest = json.loads((port / "vcpkg.json").read_text())
        assert manifest["name"] == "colls" and manifest["dependencies"], manifest
        called = ["vcpkg_configure_meson", "vcpkg_install_meson", "vcpkg_fixup_pkgconfig", "vcpkg_install_copyright"]
        script = self.folder / "port.cmake"
        script.write_text("".join(f'function({name})\nmessage(NOTICE "{name} ${{ARGN}}")\nendfunction()\n'
                                  for name in called) + f"include({port}/portfile.cmake)\n")
        said = output("cmake", "-P", script, stderr=subprocess.STDOUT).splitlines()
        assert [line.split()[0] for line in said] == called, said
        assert f"SOURCE_PATH;{self.source};" in said[0] and f"{self.source}/LICENSE" in said[-1], said
        print("skipped: vcpkg builds nothing without a network, so its port was only parsed")

    # --- the installation

    def install(self, name, *options):
        """Installs by the commands of a user. Returns the prefix."""
        folder = self.folder / name
        run("meson", "setup", folder / "b", self.source, *options, env=self.meson_env)
        steps = re.findall(r"\] (.*)", output("ninja", "-C", folder / "b", "-n"))
        wrong = [step for step in steps if "libcolls.a" not in step]
        assert steps and not wrong, f"the installation makes what it does not install: {wrong or 'nothing'}"
        run("ninja", "-j", JOBS, "-C", folder / "b")
        run("meson", "install", "-C", folder / "b", "--quiet", "--destdir", folder / "root")
        found = list((folder / "root").rglob("include/colls/version.hpp"))
        assert len(found) == 1, f"installed version.hpp: {found}"
        assert same_files(self.source / "include/colls", found[0].parent), "not all headers are installed"
        return found[0].parents[2]

    def pkg_config(self, prefix, name):
        [folder] = {file.parent for file in prefix.rglob("*.pc")}
        return output("pkg-config", "--cflags", "--libs", f"--define-variable=prefix={prefix}", name,
                      env={"PKG_CONFIG_PATH": str(folder)}).split()

    def refused(self, folder, flags, header_only):
        """Checks that the linker refuses files that do not fit together, and says why."""
        (folder / "half.cpp").write_text("#include <colls/half.hpp>\n")
        good = [self.object(folder / file, *flags) for file in FILES]
        compiled = {
            MIXED: ["-std=c++20", *header_only],
            "colls_library_built_with_GLIBCXX_DEBUG": [*flags, "-D_GLIBCXX_DEBUG"],
            "colls_library_built_with_address_sanitizer": [*flags, "-fsanitize=address"],
            "colls_library_built_with_thread_sanitizer": [*flags, "-fsanitize=thread"],
        }
        bad = [(self.object(folder / "half.cpp", *how, made=folder / f"bad_{i}.o"), how, text)
               for i, (text, how) in enumerate(compiled.items())]
        for linker in ("bfd", "gold", "lld"):
            if shutil.which(f"ld.{linker}"):
                run(*self.compiler, f"-fuse-ld={linker}", *good, *flags, "-o", folder / linker)
                for made, how, text in bad:
                    for files in ([*good, made], [made, *good]):
                        self.refuses(text, f"-fuse-ld={linker}", *files, *how, *flags, "-o", folder / "never")

    def refuses(self, text, *arguments):
        command = [str(word) for word in (*self.compiler, *arguments)]
        linked = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said = [line for line in linked.stdout.splitlines() if text in line]
        assert linked.returncode and said, f"linked, or did not say {text}: {command}\n{linked.stdout}"
        print("refused, as it must be:", said[0], flush=True)

    def nvcc(self, folder, flags):
        nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
        if nvcc is None:
            print("skipped: no nvcc, so no program was compiled by it")
            return
        flags = ["-Xcompiler=-pthread" if flag == "-pthread" else flag for flag in flags]
        for file in FILES:
            shutil.copy(folder / file, (folder / file).with_suffix(".cu"))
        run(nvcc, "-ccbin", self.compiler[-1], *((folder / file).with_suffix(".cu") for file in FILES),
            "-o", folder / "by_nvcc", *flags)
        self.start(folder / "by_nvcc")


def same_files(left, right):
    compared = filecmp.dircmp(left, right)
    return not (compared.left_only or compared.right_only or compared.diff_files) and all(
        same_files(os.path.join(left, sub), os.path.join(right, sub)) for sub in compared.common_dirs
    )


def main():
    ways = ("subproject", "fetch_content", "copied", "single", "installed", "matrix", "debian", "conan", "vcpkg")
    if len(sys.argv) < 5 or sys.argv[1] not in ways:
        sys.exit(__doc__)
    way, compiler = sys.argv[1], sys.argv[4:]
    source, build = (pathlib.Path(folder).resolve() for folder in sys.argv[2:4])
    folder = build / "consume" / f"{way}-{compiler[-1].split('/')[-1]}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began, computed = time.monotonic(), os.times()
    getattr(Consumer(source, build, folder, compiler), way)()
    used = os.times()
    cpu = used.children_user + used.children_system - computed.children_user - computed.children_system
    print(f"{way} by {compiler[-1]}: {time.monotonic() - began:.0f} s, {cpu:.0f} s of CPU")
    shutil.rmtree(folder)


main()
