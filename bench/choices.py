#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Compares chosen algorithms with the best ones on simulated networks: prints a Markdown table and
draws a picture.

usage: choices.py BUILD_DIR PICTURE.svg      (some seconds; build bench/choices first)
       choices.py POINTS.jsonl PICTURE.svg   (what bench/choices printed)
"""

import json
import pathlib
import subprocess
import sys
from html import escape

SHADES = [(1.05, "#9fd3a8", "within 5 %"), (1.25, "#f2d388", "within 25 %"), (1e99, "#e08a7d", "slower")]
CELL, GAP, LEFT, TOP = 13, 6, 118, 64


def points(source):
    if pathlib.Path(source).is_dir():
        text = subprocess.run([f"{source}/bench/choices"], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
    else:
        text = pathlib.Path(source).read_text()
    return [json.loads(line) for line in text.splitlines()]


def distinct(all_points, key):
    return list(dict.fromkeys(point[key] for point in all_points))


def table(all_points):
    yield "| network | points | within 5 % of the best | worst |"
    yield "|---|---|---|---|"
    for network in distinct(all_points, "network") + [None]:
        here = [p for p in all_points if network in (None, p["network"])]
        good = sum(p["ratio"] <= 1.05 for p in here)
        worst = max(here, key=lambda p: p["ratio"])
        yield (f"| {network or 'all'} | {len(here)} | {good} ({100 * good / len(here):.1f} %) | "
               f"{worst['ratio']:.2f}: {worst['collective']} of {worst['bytes']} B, "
               f"{worst['ranks']} ranks, {worst['chosen']} |")


def text(x, y, words, size=10, anchor="start"):
    return (f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}">'
            f"{escape(words)}</text>")


def size_of(bytes_):
    for unit in ("", "Ki", "Mi"):
        if bytes_ < 1024:
            return f"{bytes_}{unit}"
        bytes_ //= 1024


def picture(all_points):
    networks, collectives = distinct(all_points, "network"), distinct(all_points, "collective")
    ranks = distinct(all_points, "ranks")
    columns = max(len([p for p in all_points
                       if (p["network"], p["collective"], p["ranks"]) == (networks[0], c, ranks[0])])
                  for c in collectives)
    block = columns * CELL + GAP
    panel = len(collectives) * CELL + 54
    width, height = LEFT + len(ranks) * block + 10, TOP + len(networks) * panel
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           f'width="{width}" height="{height}" font-family="sans-serif">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           text(10, 20, "The chosen algorithm's time beside the best one's", 13)]
    x = 10
    for _, colour, words in SHADES:
        out.append(f'<rect x="{x}" y="30" width="12" height="12" fill="{colour}"/>')
        out.append(text(x + 17, 40, words))
        x += 95
    sizes = sorted({8 * 32**i for i in range(columns)})
    out.append(text(x + 10, 40, "columns of a block: " + ", ".join(size_of(s) for s in sizes) + " B"))
    for i, network in enumerate(networks):
        y0 = TOP + i * panel
        out.append(text(10, y0 + 10, network, 12))
        for j, p in enumerate(ranks):
            out.append(text(LEFT + j * block + columns * CELL / 2, y0 + 26, f"{p} ranks", 10, "middle"))
        for k, collective in enumerate(collectives):
            y = y0 + 32 + k * CELL
            out.append(text(LEFT - 6, y + 10, collective, 10, "end"))
            for j, p in enumerate(ranks):
                here = [q for q in all_points
                        if (q["network"], q["collective"], q["ranks"]) == (network, collective, p)]
                for column, q in enumerate(here):
                    colour = next(c for limit, c, _ in SHADES if q["ratio"] <= limit)
                    label = f"{q['bytes']} B: {q['chosen']}, {q['ratio']:.2f} of the best"
                    out.append(f'<rect x="{LEFT + j * block + column * CELL}" y="{y}" '
                               f'width="{CELL - 1}" height="{CELL - 1}" fill="{colour}">'
                               f"<title>{escape(label)}</title></rect>")
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    all_points = points(sys.argv[1])
    print("\n".join(table(all_points)))
    pathlib.Path(sys.argv[2]).write_text(picture(all_points))


main()
