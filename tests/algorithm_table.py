#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Checks that the table of docs/algorithms.md has the algorithms of algorithm/table.hpp, and says of each
whether the operation must commute and whether sums have the bits of the sequential order.

usage: algorithm_table.py SOURCE_DIR | algorithm_table.py --self-test
"""

import pathlib
import re
import sys

# Namespaces of the table whose algorithms have another name.
NAMES = {"last_arriver": "direct"}


def listed(table):
    """The pairs of collective and NAMESPACE::ALGORITHM in the lists of table.hpp."""
    for found in re.finditer(r"Coll == collective::(\w+)\) \{\s+return algorithm_list<(.*?)>\(\);", table, re.S):
        for algorithm in re.findall(r"(\w+)::\w+", found[2]):
            yield found[1], algorithm


def described(table, read):
    """For each pair of collective and name: what the class of the algorithm says."""
    result = {}
    for collective, space in listed(table):
        for text in read(space):
            body = re.search(rf"namespace colls::{space} {{(.*?)^}}  // namespace", text + "}  // namespace", re.S | re.M)
            named = body and re.search(rf"^inline constexpr (\w+)(<.*>)? {collective};", body[1], re.M)
            found = named and re.search(rf"^struct {named[1]}\b(.*?)^}};", body[1], re.S | re.M)
            if found:
                result[collective, NAMES.get(space, space)] = {
                    "commutes": ".commutative = true" in found[1],
                    "sequential": "reduction_order = order::rank" in found[1],
                }
    return result


def documented(page):
    """For each pair of collective and name: what its rows in algorithms.md say."""
    result, collectives = {}, []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or len(cells) != 6 or cells[0] in ("collective", "---"):
            continue
        collectives = cells[0].split(", ") if cells[0] else collectives
        for collective in collectives:
            if collective == "all_to_all_v":
                continue
            said = result.setdefault((collective, cells[1].split(" ")[0]), {"commutes": False, "sequential": False})
            said["commutes"] |= "must commute" in cells[5]
            said["sequential"] |= "yes, sequentially" in cells[5]
    return result


def problems(table, read, page):
    code, text = described(table, read), documented(page)
    for pair in sorted(set(listed_names(table)) - set(code)):
        yield f"no class of {pair[0]} by {pair[1]}"
    for pair in sorted(set(code) ^ set(text)):
        yield f"{pair[0]} by {pair[1]} is only in {'the table' if pair in code else 'algorithms.md'}"
    for pair in sorted(set(code) & set(text)):
        for fact in ("commutes", "sequential"):
            if code[pair][fact] != text[pair][fact]:
                yield f"{pair[0]} by {pair[1]}: {fact} is {code[pair][fact]} in the code, {text[pair][fact]} on the page"


def listed_names(table):
    return [(collective, NAMES.get(space, space)) for collective, space in listed(table)]


def self_test():
    table = "if (Coll == collective::scan) {\n    return algorithm_list<one::scan, two::scan>();\n"
    files = ["namespace colls::one {\nstruct scan_algorithm : x {\n  needs{.commutative = true};\n};\n"
             "inline constexpr scan_algorithm scan;\n}  // namespace colls::one\n",
             "namespace colls::two {\nstruct prefix : x {\n  reduction_order = order::rank;\n};\n"
             "inline constexpr prefix<collective::scan> scan;\n}  // namespace colls::two\n"]
    row = "| {} | {} | p | n | 1 | {} |\n"
    page = row.format("scan", "one", "no: the operation must commute") + row.format("", "two (short)", "yes, sequentially")
    read = lambda space: files
    checks = [
        (page, []),
        (page.replace("must commute", "may commute"), ["commutes"]),
        (page.replace("sequentially", "in a tree"), ["sequential"]),
        (page + row.format("", "three", ""), ["three"]),
        (row.format("scan", "one", "no: the operation must commute"), ["two"]),
    ]
    failed = 0
    for text, wanted in checks:
        found = list(problems(table, read, text))
        good = len(found) == len(wanted) and all(want in one for want, one in zip(wanted, found))
        failed += not good
        if not good:
            print(f"wanted {wanted}, found {found}")
    print(f"{len(checks) - failed} passed, {failed} failed")
    return failed


def main():
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(1 if self_test() else 0)
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    source = pathlib.Path(sys.argv[1])
    folder = source / "include/colls/algorithm"
    texts = [file.read_text() for file in sorted(folder.glob("*.hpp"))]
    found = list(problems((folder / "table.hpp").read_text(), lambda space: texts,
                          (source / "docs/algorithms.md").read_text()))
    print("\n".join(found))
    print(f"{len(documented((source / 'docs/algorithms.md').read_text())) - len(found)} passed, {len(found)} failed")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
