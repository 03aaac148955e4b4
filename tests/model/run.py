#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Searches all states of the models of this folder with spin, and checks that planted bugs are found.

The head of a NAME.pml lists

    headers: PATH                  of the code that the model describes
    run: TITLE: DEFINITIONS        a search that has to find no error
    planted: DEFINITION: TITLE: what is wrong
                                   the same search with a bug, which has to find one

A comment `Model step: NAME` in those headers and a comment `step: NAME` in the model name the same
step; a name that only headers or only models have is a failure. So is a search that is not complete.

usage: run.py SOURCE_DIR WORK_DIR [NAME...]
"""

import pathlib
import re
import subprocess
import sys

DEPTH = 2_000_000
MEMORY = 6000  # MiB
HEAD = re.compile(r"^ \* (headers|run|planted): (.*)$", re.MULTILINE)
IN_MODEL = re.compile(r"/\* step: (\w+) \*/")
IN_CODE = re.compile(r"Model step: (\w+)")
INCOMPLETE = ["Search not completed", "max search depth too small", "MEMLIM bound", "hash-table full"]


class Failed(Exception):
    pass


def run(command, folder):
    done = subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def search(model, definitions, folder, first_error_only):
    """(errors, states, depth, output) of one search."""
    folder.mkdir(parents=True, exist_ok=True)
    defined = [f"-D{name}" for name in definitions]
    for command in (["spin", *defined, "-a", str(model)],
                    ["gcc", "-O2", "-w", "-DSAFETY", f"-DMEMLIM={MEMORY}", "-DVECTORSZ=2048", "-DCOLLAPSE", "-DSEPQS", "-o", "pan", "pan.c"]):
        status, output = run(command, folder)
        if status != 0 or not (folder / "pan.c").exists():
            raise Failed(f"{' '.join(command)} fails:\n{output}")
    _, output = run(["./pan", f"-m{DEPTH}", "-w24", "-c1" if first_error_only else "-c0"], folder)
    found = [re.search(pattern, output) for pattern in
             (r"errors: (\d+)", r"(\d+) states, stored", r"depth reached (\d+)")]
    if not all(found):
        raise Failed(f"no result of {model.name} {' '.join(definitions)}:\n{output}")
    errors, states, depth = (int(each[1]) for each in found)
    return errors, states, depth, output


def check_names(models, source):
    """Yields the steps that only headers or only models name."""
    in_models, in_code = set(), set()
    for model in models:
        text = model.read_text()
        steps, code = set(IN_MODEL.findall(text)), set()
        for header in (value for kind, value in HEAD.findall(text) if kind == "headers"):
            code |= set(IN_CODE.findall((source / header).read_text()))
        for name in sorted(steps - code):
            yield f"{model.name}: no header names the step {name}"
        in_models |= steps
        in_code |= code
    for name in sorted(in_code - in_models):
        yield f"no model has the step {name}, which a header names"


def check(model, source, work, row):
    """Runs one model; yields what is wrong."""
    text = model.read_text()
    head = HEAD.findall(text)
    runs = {}
    for title, definitions in (value.split(":", 1) for kind, value in head if kind == "run"):
        runs[title] = definitions.split()
        errors, states, depth, output = search(model, runs[title], work / model.stem, True)
        row(model.stem, title, states, depth, "no error" if errors == 0 else f"{errors} errors")
        if errors != 0:
            _, trail = run(["spin", *[f"-D{name}" for name in runs[title]], "-t", "-p", str(model)],
                           work / model.stem)
            yield f"{model.name}, {title}: {output}\n{trail[-6000:]}"
        elif any(text in output for text in INCOMPLETE):
            yield f"{model.name}, {title}: not all states were searched\n{output}"
    for value in (value for kind, value in head if kind == "planted"):
        name, title, wrong = (part.strip() for part in value.split(":", 2))
        if not re.search(rf"\b{name}\b", text.split("*/", 2)[-1]):
            yield f"{model.name}: {name} changes nothing"
            continue
        errors, states, depth, _ = search(model, runs[title] + [name], work / model.stem, True)
        row(model.stem, f"{title}, {name}", states, depth, "found" if errors else "NOT FOUND")
        if errors == 0:
            yield f"{model.name}, {title}: the planted bug {name} is not found: {wrong}"


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    source, work = (pathlib.Path(each).resolve() for each in sys.argv[1:3])
    models = sorted((source / "tests/model").glob("*.pml"))
    chosen = [model for model in models if not sys.argv[3:] or model.stem in sys.argv[3:]]
    if not chosen or len(chosen) < len(set(sys.argv[3:])):
        sys.exit(f"models: {', '.join(model.stem for model in models)}")
    form = "{:<22}{:<42}{:>12}{:>9}  {}"
    print(form.format("model", "search", "states", "depth", "result"))
    row = lambda *cells: print(form.format(*cells), flush=True)
    wrong = list(check_names(models, source))
    for model in chosen:
        try:
            wrong += check(model, source, work, row)
        except Failed as failure:
            wrong.append(str(failure))
    for each in wrong:
        print(each)
    print(f"{len(chosen)} models, {len(wrong)} failures")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
