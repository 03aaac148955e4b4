#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Draws the pictures of algorithms.md, whose texts are the commands that draw them.

usage: pictures.py BUILD_DIR | pictures.py --check BUILD_DIR
"""

import pathlib
import re
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent


def draw(program, command, file):
    subprocess.run([program, *command.split(), "--draw", file], check=True, stdout=subprocess.DEVNULL)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    program = pathlib.Path(sys.argv[-1], "tools/colls-sim").resolve()
    pictures = re.findall(r"!\[colls-sim ([^\]]+)\]\((pictures/\w+\.svg)\)", (here / "algorithms.md").read_text())
    if "--check" not in sys.argv:
        (here / "pictures").mkdir(exist_ok=True)
        for command, name in pictures:
            draw(program, command, here / name)
        return
    stale = []
    with tempfile.TemporaryDirectory() as folder:
        for command, name in pictures:
            drawn = pathlib.Path(folder, "now.svg")
            draw(program, command, drawn)
            if not (here / name).is_file() or (here / name).read_text() != drawn.read_text():
                stale.append(name)
    pages = "".join(page.read_text() for page in here.glob("*.md"))
    unknown = [file.name for file in (here / "pictures").iterdir() if f"pictures/{file.name}" not in pages]
    for name in stale:
        print(f"docs/{name} is not what colls-sim draws: docs/pictures.py BUILD_DIR")
    for name in sorted(unknown):
        print(f"docs/pictures/{name} stands on no page")
    print(f"{len(pictures) - len(stale)} passed, {len(stale) + len(unknown)} failed")
    sys.exit(bool(stale or unknown))


main()
