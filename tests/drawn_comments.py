#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Draws comments of the headers for a reader who does not know the code: each with its place and, as one
reads it in the file, some lines before and after it. A mark shows the comment. The same seed and tree give
the same comments.

usage: drawn_comments.py SOURCE_ROOT [NUMBER [SEED]]
"""

import pathlib
import random
import sys

MARK = "//"
BEFORE, AFTER = 6, 8  # lines


def comments(path):
    """(first line, lines) of each block of whole-line comments but the licence."""
    lines = path.read_text().splitlines()
    block, first = [], 0
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text.startswith(MARK):
            first = first if block else number
            block.append(text)
        elif block:
            if not block[0].startswith("// SPDX") and not block[0].startswith("// ----"):
                yield first, len(block)
            block = []


def shown(path, first, count):
    """The block with the lines around it."""
    lines = path.read_text().splitlines()
    start = max(first - 1 - BEFORE, 0)
    for number, line in enumerate(lines[start : first - 1 + count + AFTER], start + 1):
        yield f"{'>' if first <= number < first + count else ' '} {line}"


def main():
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    root = pathlib.Path(sys.argv[1])
    number, seed = (int(word) for word in (sys.argv[2:] + ["30", "1"][len(sys.argv) - 2:]))
    headers = sorted(path for path in (root / "include").rglob("*") if path.suffix in {".hpp", ".ipp", ".cuh"})
    drawn = random.Random(seed).sample([(path, *each) for path in headers for each in comments(path)], number)
    for index, (path, first, count) in enumerate(drawn, 1):
        print(f"--- {index}. {path.relative_to(root)}:{first}", *shown(path, first, count), "", sep="\n")


main()
