# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""A user's project: `conan create` builds it with the package and runs it with 3 ranks."""

import os
import socket
import subprocess

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout


class Consumer(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        tools = CMakeToolchain(self)
        tools.user_presets_path = False  # nothing is written beside the sources
        tools.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        if not can_run(self):
            return
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
        world = {**os.environ, "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        program = os.path.join(self.cpp.build.bindir, "main")
        ranks = [subprocess.Popen([program], env={**world, "RANK": str(rank)}) for rank in range(3)]
        assert [rank.wait() for rank in ranks] == [0, 0, 0]
