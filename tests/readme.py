#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Checks the code, the links and the variables in README.md and docs/*.md.

A comment on the line before a block says what the block is:
    <!-- program: main.cpp -->       a complete program; the sh block after it builds and runs it
    <!-- quoted: examples/X.cpp -->  consecutive lines of that file, perhaps less indented
Before a table, <!-- calls: examples/X.cpp --> says that the code in its second column occurs in that file.
A C++ block has to be a program or quoted. The lines of the sh block are run as they
are, in a folder with the include folder of the checkout and the built programs. The script also checks
that every linked file exists in the checkout, that every COLLS_ variable on a page is known, and that
docs/environment.md explains every known variable. With --compile it also compiles the quoted files, as the build does.

usage: readme.py [--compile] SOURCE_DIR BUILD_DIR COMPILER... | readme.py --self-test
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap

BLOCK = re.compile(r"(?:^<!-- (\w+): (\S+) -->\n)?^```(\w*)\n(.*?)^```$", flags=re.M | re.S)
TABLE = re.compile(r"^<!-- calls: (\S+) -->\n((?:\|.*\n)+)", flags=re.M)
LINK = re.compile(r"\]\(([^)#:]+)\)")
VARIABLES = "docs/environment.md"


def lines(text):
    """The lines of a text without their common indentation."""
    return textwrap.dedent(text).strip("\n").split("\n")


def is_quoted(block, text):
    wanted, present = lines(block), text.split("\n")
    return any(
        lines("\n".join(present[i : i + len(wanted)])) == wanted
        for i in range(len(present) - len(wanted) + 1)
    )


def missing_calls(table, text):
    """The code in the table's second column that does not occur in the text, whatever its spacing there."""
    squeeze = lambda code: re.sub(r"\s", "", code)
    rows = [re.split(r" \|(?: |$)", line)[1] for line in table.splitlines()[2:]]
    return [code for row in rows for code in re.findall(r"`([^`]+)`", row)
            if squeeze(code) not in squeeze(text)]


def problems(name, text, read, run_program):
    """Yields (what was checked, what is wrong or None) for the text of one page."""
    blocks = list(BLOCK.finditer(text))
    for number, found in enumerate(blocks):
        kind, argument, language, block = found.groups()
        where = f"{name}:{text[: found.start(4)].count(chr(10)) + 1}"
        if kind == "quoted":
            good = is_quoted(block, read(argument) or "")
            yield where, None if good else f"{argument} does not have these lines"
        elif kind == "program":
            after = blocks[number + 1] if number + 1 < len(blocks) else None
            if after is None or after[3] != "sh":
                yield where, "no sh block after the program says how it is built"
            else:
                yield where, run_program(argument, block, after[4])
        elif kind is not None:
            yield where, f"unknown comment <!-- {kind}: ... -->"
        elif language == "cpp":
            yield where, "C++ that is neither a program nor quoted"
    for found in TABLE.finditer(text):
        missing = missing_calls(found[2], read(found[1]) or "")
        where = f"{name}:{text[: found.start(2)].count(chr(10)) + 1}"
        yield where, f"{found[1]} does not have: {', '.join(missing)}" if missing else None
    for found in LINK.finditer(BLOCK.sub("", text)):
        missing = read(str(pathlib.PurePosixPath(name).parent / found[1])) is None
        yield f"{name}: link to {found[1]}", "there is no such file" if missing else None
    known = (read("include/colls/bootstrap/known_variables.hpp") or "") + (read("include/colls/source.hpp") or "")
    for variable in sorted(set(re.findall(r"\bCOLLS_[A-Z_]*[A-Z]\b", text))):
        unknown = not re.search(rf'("|#define |#ifndef ){variable}\b', known)
        yield f"{name}: {variable}", "no such variable" if unknown else None
    for variable in sorted(set(re.findall(r'"(COLLS_\w+)"', known))) if name == VARIABLES else []:
        missing = f"`{variable}" not in text
        yield f"{name}: {variable}", "the page does not explain it" if missing else None


def reader(source):
    def read(path):
        file = source / path
        return file.read_text() if file.is_file() else "" if file.is_dir() else None

    return read


def builder(source, build, compiler):
    def run_program(file, text, commands):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / file).write_text(text)
            (folder / "include").symlink_to(source / "include")
            (folder / "build").symlink_to(build)
            for command in commands.splitlines():
                words = shlex.split(command)
                if words[0] == "g++":
                    words[:1] = compiler
                print("+", *words, flush=True)
                ran = subprocess.run(words, cwd=folder, text=True, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, timeout=240)
                if ran.returncode != 0:
                    return f"{command}: exit status {ran.returncode}\n{ran.stdout}"

    return run_program


def compile_quoted(source, build, pages):
    """Compiles the files that the pages quote, a header by the program of its name. Returns whether all do."""
    quoted = {file for text in pages for file in re.findall(r"^<!-- (?:quoted|calls): (\S+) -->$", text, flags=re.M)}
    wanted = {source / re.sub(r"\.hpp$", ".cpp", file) for file in quoted}
    objects = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        file = (pathlib.Path(entry["directory"]) / entry["file"]).resolve()
        parts = re.findall(r"^#include ?<(.*)>$", file.read_text(), flags=re.M) if "-unity" in file.name else [file]
        objects |= {pathlib.Path(part).resolve(): entry["output"] for part in parts}
    for file in sorted(wanted - objects.keys()):
        print(f"not compiled here, for lack of a library or compiler: {file.relative_to(source)}")
    targets = sorted({objects[file] for file in wanted & objects.keys()})
    return subprocess.run(["ninja", "-C", build, *targets]).returncode == 0


def self_test():
    files = {
        "e.cpp": "int f() {\n  if (a) {\n    b();\n  }\n}\n",
        "include/colls/bootstrap/known_variables.hpp": '"COLLS_LOG",',
    }
    quoted = "<!-- quoted: e.cpp -->\n```cpp\n{}```\n"
    table = "<!-- calls: e.cpp -->\n| Python | C++ | what differs |\n|---|---|---|\n| `c()` | {} | `d` |\n"
    program = "<!-- program: main.cpp -->\n```cpp\nint main() {}\n```\n"
    cases = [
        (quoted.format("if (a) {\n  b();\n}\n"), True),
        (quoted.format("if (a) {\n  c();\n}\n"), False),
        (quoted.format("if (a) {\nb();\n}\n"), False),
        ("<!-- quoted: gone.cpp -->\n```cpp\nb();\n```\n", False),
        ("<!-- qouted: e.cpp -->\n```cpp\nb();\n```\n", False),
        (program + "```sh\nworks\n```\n", True),
        (program + "```sh\nfails\n```\n", False),
        (program, False),
        ("```cpp\nint main() {}\n```\n", False),
        ("```cpp\nb();\n```\n", False),
        ("```sh\nb\n```\n", None),
        (table.format("`if (a) { b(); }`"), True),
        (table.format("`b();` and `c();`"), False),
        (table.replace("e.cpp", "gone.cpp").format("`b();`"), False),
        ("[e](e.cpp)", True),
        ("[e](gone.cpp)", False),
        ("`COLLS_LOG`", True),
        ("`COLLS_LOGS`", False),
    ]
    explained = list(problems(VARIABLES, "no variable", files.get, None))
    if [bool(what) for _, what in explained] != [True]:
        yield f"a variable that the page leaves out: {explained}"
    for text, good in cases:
        run = lambda _, __, commands: None if commands == "works\n" else "failed"
        found = [what for _, what in problems("p.md", text, files.get, run)]
        if (found == [None]) != bool(good) or (good is None and found):
            yield f"{text!r}: {found}"


def main():
    if sys.argv[1:] == ["--self-test"]:
        wrong = list(self_test())
        print(*wrong, sep="\n")
        sys.exit(bool(wrong))
    compiles = sys.argv[1:2] == ["--compile"]
    arguments = sys.argv[1 + compiles :]
    if len(arguments) < 3:
        sys.exit(__doc__)
    source, build = (pathlib.Path(folder).resolve() for folder in arguments[:2])
    passed = failed = 0
    pages = [source / "README.md", *sorted((source / "docs").glob("*.md"))]
    for page in pages:
        name = page.relative_to(source).as_posix()
        run_program = builder(source, build, arguments[2:])
        for where, what in problems(name, page.read_text(), reader(source), run_program):
            passed, failed = passed + (what is None), failed + (what is not None)
            if what is not None:
                print(f"{where}: {what}")
    if compiles and not compile_quoted(source, build, [page.read_text() for page in pages]):
        failed += 1
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


main()
