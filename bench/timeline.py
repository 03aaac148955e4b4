#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Draws one step of training from the output of `train_mnist --trace FILE`. Prints which share of the
time of the all_reduces was hidden behind backward, over all steps.

The step of median length is drawn. The first five steps are left out.

usage: timeline.py PICTURE.svg TITLE=TRACE...
"""

import html
import json
import statistics
import sys

LEFT, WIDTH, ROW, PANEL_GAP = 150, 800, 24, 40
COLOURS = {"forward": "#bcd0e6", "backward": "#7fa6cf", "waiting": "#d9d9d9", "optimizer": "#8fc9b9"}
BUCKET = "#f58518"


def steps_of(path):
    with open(path) as lines:
        steps = [json.loads(line) for line in lines]
    steps = [step for step in steps if step["buckets"]][5:]
    assert steps, f"{path}: no steps after the first five"
    for step in steps:
        step["last"] = max(step["ready"].values())
    return steps


def hidden(steps):
    """The time of all_reduces before the last gradient was ready, and their total time, in microseconds
    per step."""
    before = total = 0
    for step in steps:
        for bucket in step["buckets"]:
            total += bucket["end"] - bucket["begin"]
            before += max(0, min(bucket["end"], step["last"]) - bucket["begin"])
    return before / len(steps), total / len(steps)


def text(x, y, words, size=12, anchor="start", colour="#222"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
            f'fill="{colour}">{html.escape(words)}</text>')


def bar(x, y, width, colour, words=""):
    parts = [f'<rect x="{x:.1f}" y="{y}" width="{max(width, 1):.1f}" height="{ROW - 6}" fill="{colour}"/>']
    if words and width > 7 * len(words):
        parts.append(text(x + width / 2, y + ROW - 11, words, 11, "middle"))
    return parts


def panel(title, steps, top, scale):
    step = sorted(steps, key=lambda step: step["end"])[len(steps) // 2]
    at = lambda time: LEFT + time * scale
    before, total = hidden(steps)
    parts = [text(10, top, f"{title}: {step['end'] / 1e3:.1f} ms, {100 * before / total:.0f} % of the "
                           "all_reduce time hidden (mean)", 14)]
    y = top + 12
    parts.append(text(LEFT - 8, y + ROW - 11, "this rank computes", 12, "end"))
    edges = [0, step["backward"], step["last"], step["optimizer"], step["end"]]
    for name, begin, end in zip(COLOURS, edges, edges[1:]):
        parts += bar(at(begin), y, (end - begin) * scale, COLOURS[name], name)
    y += ROW
    parts.append(text(LEFT - 8, y + ROW - 11, "gradients ready", 12, "end"))
    for name, time in step["ready"].items():
        parts.append(f'<line x1="{at(time):.1f}" x2="{at(time):.1f}" y1="{y}" y2="{y + ROW - 8}" '
                     f'stroke="#b04" stroke-width="1.5"><title>{html.escape(name)}</title></line>')
    shown = -1e9
    for name, time in sorted(step["ready"].items(), key=lambda item: item[1]):
        if name.endswith("weight") and at(time) - shown > 70:
            parts.append(text(at(time) + 4, y + ROW - 11, name, 10))
            shown = at(time)
    for bucket in sorted(step["buckets"], key=lambda bucket: bucket["begin"]):
        y += ROW
        size = bucket["elements"] * 4 / 2**20
        parts.append(text(LEFT - 8, y + ROW - 11, f"bucket of {size:.2f} MiB", 12, "end"))
        took = (bucket["end"] - bucket["begin"]) / 1e3
        parts += bar(at(bucket["begin"]), y, (bucket["end"] - bucket["begin"]) * scale, BUCKET)
        parts.append(text(at(bucket["end"]) + 5, y + ROW - 11, f"{took:.1f} ms", 11))
    y += ROW + 4
    ticks = 10 if step["end"] < 120e3 else 20 if step["end"] < 300e3 else 50
    for tick in range(0, int(step["end"] / 1e3) + 1, ticks):
        x = at(tick * 1e3)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top + 10}" y2="{y}" stroke="#0002"/>')
        parts.append(text(x, y + 12, f"{tick} ms", 10, "middle", "#666"))
    return parts, y + 12 + PANEL_GAP


def legend(y):
    parts, x = [], LEFT
    for name, colour in {**COLOURS, "all_reduce": BUCKET}.items():
        parts.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
        parts.append(text(x + 17, y, name))
        x += 110
    return parts


def main():
    if len(sys.argv) < 3 or not all("=" in word for word in sys.argv[2:]):
        sys.exit(__doc__)
    panels = [word.split("=", 1) for word in sys.argv[2:]]
    traces = [(title, steps_of(path)) for title, path in panels]
    longest = max(statistics.median(step["end"] for step in steps) for _, steps in traces)
    parts, top = [], 30
    for title, steps in traces:
        drawn, top = panel(title, steps, top, WIDTH / longest)
        parts += drawn
        before, total = hidden(steps)
        print(f"{title}: {len(steps)} steps, median {statistics.median(s['end'] for s in steps) / 1e3:.1f} ms, "
              f"all_reduce {total / 1e3:.2f} ms a step, {100 * before / total:.0f} % of it hidden")
    parts += legend(top - 12)
    with open(sys.argv[1], "w") as picture:
        picture.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 70} {top}" '
            'font-family="sans-serif"><rect width="100%" height="100%" fill="white"/>'
            + "\n".join(parts) + "</svg>\n")


main()
