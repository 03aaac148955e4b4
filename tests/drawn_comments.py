#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Draws comments of the headers for a reader who does not know the code: each with its place and the line
of code that follows. The same seed and tree give the same comments.

usage: drawn_comments.py SOURCE_ROOT [NUMBER [SEED]]
"""

import pathlib
import random
import sys

MARK = "//"


def comments(path):
    """(line, text, the next line of code) of each block of whole-line comments but the licence."""
    lines = path.read_text().splitlines()
    block, first = [], 0
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text.startswith(MARK):
            first = first if block else number
            block.append(text)
        elif block:
            if not block[0].startswith("// SPDX") and not block[0].startswith("// ----"):
                yield first, "\n".join(block), text or next((later.strip() for later in lines[number:] if later.strip()), "")
            block = []


def main():
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    root = pathlib.Path(sys.argv[1])
    number, seed = (int(word) for word in (sys.argv[2:] + ["30", "1"][len(sys.argv) - 2:]))
    headers = sorted(path for path in (root / "include").rglob("*") if path.suffix in {".hpp", ".ipp", ".cuh"})
    drawn = random.Random(seed).sample([(path, *each) for path in headers for each in comments(path)], number)
    for index, (path, line, text, code) in enumerate(drawn, 1):
        print(f"--- {index}. {path.relative_to(root)}:{line}\n{text}\n    {code}\n")


main()
