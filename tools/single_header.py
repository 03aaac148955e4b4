#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Writes headers of colls and all that they include as one header, for programs that copy a single file.

usage: single_header.py OUTPUT [HEADER...]     e.g. single_header.py colls.hpp; default: colls/colls.hpp colls/run.hpp
"""

import pathlib
import re
import sys

INCLUDE = pathlib.Path(__file__).resolve().parents[1] / "include"
COLLS = re.compile(r"#include <(colls/[^>]+)>")
CONDITION = re.compile(r"#\s*(if|ifdef|ifndef|else|elif|endif)\b(.*)")
MACRO = "COLLS_SEPARATE_COMPILATION"
HEAD = f"""// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Made by tools/single_header.py from {{}}.

#ifdef {MACRO}
#error "the single header of colls is header-only"
#endif
"""


def written(header, seen):
    """The lines of a header and of what it includes, without what is already there. Of conditions on the
    macro only the header-only branch stays."""
    if header in seen:
        return
    seen.add(header)
    yield f"\n// --- {header}"
    conditions = []  # for each open one: None, or whether this branch on the macro is taken
    for line in (INCLUDE / header).read_text().splitlines():
        condition = CONDITION.match(line)
        kind, rest = condition.groups() if condition else ("", "")
        if kind.startswith("if"):
            conditions.append(kind == "ifndef" if kind != "if" and rest.strip() == MACRO else None)
            taken = conditions[-1]
        elif condition:
            assert conditions[-1] is None or kind != "elif", f"{header}: {line}"
            taken = conditions[-1]
            if kind == "endif":
                conditions.pop()
            elif taken is not None:
                conditions[-1] = not taken
        if condition and taken is not None or False in conditions or line == "#pragma once":
            continue
        included = COLLS.match(line)
        if not included:
            if not line.startswith("// SPDX-"):
                yield line
            continue
        assert None not in conditions, f"{header}: {line} is within another condition"
        yield from written(included[1], seen)


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    headers = sys.argv[2:] or ["colls/colls.hpp", "colls/run.hpp"]
    seen = set()
    lines = [line for header in headers for line in written(header, seen)]
    pathlib.Path(sys.argv[1]).write_text(HEAD.format(", ".join(headers)) + "\n".join(lines) + "\n")


main()
