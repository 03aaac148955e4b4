# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Conan: `conan create .` makes a package of the library that is compiled once, with Boost and OpenSSL of
the system."""

import pathlib
import re

from conan import ConanFile
from conan.tools.files import copy
from conan.tools.layout import basic_layout
from conan.tools.meson import Meson, MesonToolchain
from conan.tools.system.package_manager import Apt


class Colls(ConanFile):
    name = "colls"
    description = "Collective communication in C++20"
    license = "BSL-1.0"
    settings = "os", "arch", "compiler", "build_type"
    exports_sources = "include/*", "tools/*", "meson.build", "meson_options.txt", "LICENSE"
    test_package_folder = "tests/consume/project"

    def set_version(self):
        text = (pathlib.Path(self.recipe_folder) / "meson.build").read_text()
        self.version = re.search(r"\bversion: '(.+?)'", text)[1]

    def configure(self):
        self.settings.rm_safe("compiler.cppstd")  # meson.build has it, and the library fits later ones too

    def system_requirements(self):
        Apt(self).install(["libboost1.81-dev", "libssl-dev", "meson", "ninja-build", "pkg-config"], check=True)

    def layout(self):
        basic_layout(self)

    def generate(self):
        MesonToolchain(self).generate()

    def build(self):
        meson = Meson(self)
        meson.configure()
        meson.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, pathlib.Path(self.package_folder) / "licenses")
        Meson(self).install()

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")  # the package has CMake files of its own
        self.cpp_info.builddirs = ["lib/cmake/colls"]
        self.cpp_info.defines = ["COLLS_SEPARATE_COMPILATION"]
        self.cpp_info.libs = ["colls"]
        self.cpp_info.system_libs = ["crypto", "pthread"]
