#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Checks that every C++ and CUDA file is formatted as .clang-format says, and that no comment is wider than the code
may be, which clang-format leaves alone. Or formats the files, except comments. Versions of clang-format differ in
their output, so only version 19 is accepted.

usage: formatted.py [--fix] SOURCE_ROOT CLANG_FORMAT | formatted.py --self-test CLANG_FORMAT
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

VERSION = 19
FOLDERS = ["bench", "examples", "include", "tests", "tools"]
SUFFIXES = {".cpp", ".cu", ".cuh", ".hpp", ".ipp"}
COLUMNS = 100
# A list of what a test covers is one line, and so is the regular expression of an error.
COMMENT = re.compile(r"\s*//+ (?!covers:|build error:)")
WARNING = re.compile(r"^(.+?:\d+):\d+: \w+: code should be clang-formatted", re.MULTILINE)


def files(root):
    return sorted(path for folder in FOLDERS for path in (root / folder).rglob("*")
                  if path.suffix in SUFFIXES)


def not_formatted(root, clang_format):
    """FILE:LINE of every place that clang-format would change."""
    ran = subprocess.run([clang_format, "--dry-run", *files(root)], text=True, capture_output=True)
    if ran.returncode != 0:
        sys.exit(f"{clang_format} failed: {ran.stderr}")
    return [place.removeprefix(f"{root}/") for place in WARNING.findall(ran.stderr)]


def wide_comments(root):
    """FILE:LINE of every line of a comment that is wider than COLUMNS."""
    return [f"{path.relative_to(root)}:{number}" for path in files(root)
            for number, line in enumerate(path.read_text().splitlines(), 1)
            if len(line) > COLUMNS and COMMENT.match(line)]


def self_test(clang_format):
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        (root / "include/inner").mkdir(parents=True)
        (root / ".clang-format").write_text("BasedOnStyle: Google\n")
        (root / "include/good.hpp").write_text("int x;\n")
        (root / "include/inner/bad.hpp").write_text("int x;\nint  y;\n")
        found = not_formatted(root, clang_format)
        if found != ["include/inner/bad.hpp:2"]:
            sys.exit(f"found {found}")
        widest = "/// " + "a " * 48
        (root / "include/comments.hpp").write_text(f"{widest}\n  {widest}\n// covers: {widest}\n{'a ' * 60}\n")
        if wide_comments(root) != ["include/comments.hpp:2"]:
            sys.exit(f"found {wide_comments(root)}")
        (root / "include/comments.hpp").unlink()
        subprocess.run([sys.executable, __file__, "--fix", root, clang_format], check=True)
        if not_formatted(root, clang_format):
            sys.exit("--fix does not format")


def main():
    given = [word for word in sys.argv[1:] if not word.startswith("--")]
    clang_format = given[-1]
    if not shutil.which(clang_format):
        print(f"skipped: no {clang_format}")
        sys.exit(77)
    version = subprocess.run([clang_format, "--version"], text=True, capture_output=True).stdout
    if f"version {VERSION}." not in version:
        sys.exit(f"{clang_format} is not version {VERSION}: {version.strip()}")
    if "--self-test" in sys.argv:
        return self_test(clang_format)
    root = pathlib.Path(given[0])
    if "--fix" in sys.argv:
        subprocess.run([clang_format, "-i", *files(root)], check=True)
        return
    found = [f"{place}: not as clang-format writes it (./dev format)" for place in not_formatted(root, clang_format)]
    found += [f"{place}: a comment of more than {COLUMNS} columns" for place in wide_comments(root)]
    sys.exit("\n".join(found) or None)


main()
