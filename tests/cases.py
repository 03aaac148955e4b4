#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Checks that every test case that README.md names, `FILE` "CASE", "CASE"; `FILE` ..., exists in its file.

usage: cases.py TESTS_DIR | cases.py --self-test
"""

import pathlib
import re
import sys

ROWS = 38
ROW = re.compile(r"^\| (\d+) \|.*?\| (.+) \|$", flags=re.M)
FILE = re.compile(r"`([\w/]+\.cpp)`((?:,? \"[^\"]+\")+)")
CASE = re.compile(r"TEST_CASE(?:_TEMPLATE)?\(\s*((?:\"[^\"]*\"\s*)+)")


def cases_of(source):
    """The names of the test cases in a file."""
    return {"".join(re.findall(r'"([^"]*)"', name)) for name in CASE.findall(source)}


def problems(page, sources):
    """What is wrong with a page, in sentences; `sources` are the texts of the test files."""
    rows = ROW.findall(page)
    if [int(number) for number, _ in rows] != list(range(1, ROWS + 1)):
        yield f"the rows are not 1 to {ROWS}"
    for number, asserted_by in rows:
        named = FILE.findall(asserted_by)
        if not named:
            yield f"{number} names no case"
        if asserted_by.count('"') != sum(names.count('"') for _, names in named):
            yield f"{number} names a case without a file"
        for file, names in named:
            known = cases_of(sources.get(file, ""))
            for name in re.findall(r'"([^"]+)"', names):
                if name not in known:
                    yield f'{number}: {file} has no case "{name}"'


def self_test():
    sources = {"a/b.cpp": 'TEST_CASE("one") {}\nTEST_CASE_TEMPLATE(\n    "two "\n    "halves", T, int) {}'}
    row = '| {} | what | {} |\n'
    good = '`a/b.cpp` "one", "two halves"; more words'
    page = "".join(row.format(number, good) for number in range(1, ROWS + 1))
    last = row.format(ROWS, good)
    checks = [
        (page, 0),
        (page.replace(last, ""), 1),
        (page.replace(last, row.format(ROWS, "nothing")), 1),
        (page.replace(last, row.format(ROWS, '`a/b.cpp` "one", "three"')), 1),
        (page.replace(last, row.format(ROWS, '`a/c.cpp` "one"')), 1),
        (page.replace(last, row.format(ROWS, good + ' "one"')), 1),
        (page.replace(last, row.format(ROWS, '`a/b.cpp` "two"')), 1),
    ]
    for number, (text, wrong) in enumerate(checks):
        found = list(problems(text, sources))
        if len(found) != wrong:
            yield f"check {number}: {found}"


def main():
    if sys.argv[1:] == ["--self-test"]:
        found = list(self_test())
    elif len(sys.argv) == 2:
        folder = pathlib.Path(sys.argv[1])
        sources = {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*.cpp")}
        found = list(problems((folder / "README.md").read_text(), sources))
    else:
        sys.exit(__doc__)
    print(*found, sep="\n")
    sys.exit(bool(found))


main()
