#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Checks the words of the project: names are those of MPI, UCX, NCCL and operating systems, and prose
names its actors (CONTRIBUTING.md). Failures are

- a private metaphor of earlier versions, in a file or a file's name;
- a type, function, member or header in C++ with one of the names that meant too many things;
- more lines than MOST_ACTORS in headers and pages that name an actor by a pronoun such as "who".

usage: words.py SOURCE_ROOT | words.py --self-test
"""

import pathlib
import re
import sys
import tempfile

METAPHORS = re.compile(
    r"(?<![a-z])(desk|loan|lender|lending|ticket|visiting_?card|hatch|passable|island|offshoot|roster"
    r"|speech|shot_?page|nccl_clique|outbox|mover|ring_visit)s?(?![a-z])", re.IGNORECASE)
METAPHORS_IN = ["include", "tests", "docs", "examples", "bench", "tools", "README.md"]
ACTORS = re.compile(r"\b(who|whom|whoever|nobody|somebody)\b", re.IGNORECASE)
ACTORS_IN = ["include", "docs", "README.md"]
MOST_ACTORS = 20
NAMES = {"asked", "landing", "under_way", "give_up", "neighbourhood", "door", "visit", "turns", "card",
         "arena", "whole", "apart"}
NAMES_IN = ["include", "tests", "tools", "examples", "bench"]
EXEMPT = {"docs/glossary.md", "tests/words.py"}  # they explain or list the words
CODE = {".cpp", ".cu", ".cuh", ".hpp", ".ipp"}
NOT_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^()\\ ]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:\\\n|[^\n])*", re.DOTALL | re.MULTILINE)
TOKEN = re.compile(r"\w+|::|->|[^\s\w]")
SCOPE = {"class", "struct", "union", "enum", "namespace"}
TYPE = SCOPE | {"typename", "concept", "using"}


def files(root, places):
    """(path relative to the root, text) of every text file in these places."""
    for place in places:
        top = root / place
        for path in sorted([top] if top.is_file() else top.rglob("*")):
            name = str(path.relative_to(root))
            if path.is_file() and name not in EXEMPT and "__pycache__" not in path.parts:
                try:
                    yield name, path.read_text()
                except UnicodeDecodeError:
                    yield name, ""  # a fuzzer's input: only its name counts


def lines_with(pattern, text):
    return [number for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)]


def without_comments(text):
    """Code alone, with its lines."""
    return NOT_CODE.sub(lambda found: "\n" * found[0].count("\n") or " ", text)


def declared(text):
    """(line, name) of the NAMES that types, functions and members have; locals are free."""
    scopes, statement, found = [True], [], []  # of each open brace: may it hold types and members?
    depth = 0  # of parentheses
    for number, line in enumerate(without_comments(text).splitlines(), 1):
        for token in TOKEN.findall(line):
            before = statement[-1] if statement else ""
            if token in "([":
                depth += 1
            elif token in ")]":
                depth = max(0, depth - 1)
            elif token == "{":
                keywords = {word for previous, word in zip([""] + statement, statement)
                            if previous not in ("<", ",")}  # else it declares a template's parameter
                scopes.append(scopes[-1] and depth == 0 and bool(SCOPE & keywords))
            elif token == "}" and len(scopes) > 1:
                scopes.pop()
            elif token in NAMES and (scopes[-1] and depth == 0 or before in TYPE
                                     or before in (".", "->", "::")):
                found.append((number, token))
            statement = [] if token in ";{}" and depth == 0 else statement + [token]
    return found


def problems(root):
    result = []
    for name, text in files(root, METAPHORS_IN):
        if METAPHORS.search(name):
            result.append(f"{name}: a private word in its name")
        result += [f"{name}:{line}: a private word" for line in lines_with(METAPHORS, text)]
    for name, text in files(root, NAMES_IN):
        path = pathlib.Path(name)
        if path.suffix in CODE:
            if path.stem in NAMES and path.suffix != ".cpp":
                result.append(f"{name}: a header called '{path.stem}'")
            result += [f"{name}:{line}: '{word}' names a type, function or member"
                       for line, word in declared(text)]
    actors = [f"{name}:{line}: name the actor" for name, text in files(root, ACTORS_IN)
              for line in lines_with(ACTORS, text)]
    return result + (actors if len(actors) > MOST_ACTORS else [])


PLANTED = {
    "include/a.hpp": ("int a_ticket;\n", 1),
    "tests/island.txt": ("", 1),
    "docs/page.md": ("Loans are\nBlue islands.\n", 2),
    "include/door.hpp": ("", 1),
    "include/type.hpp": ("namespace a {\nclass visit;\nstruct card { int x; };\n}\n", 2),
    "include/function.hpp": ("inline int turns(int n) { return n; }\n", 1),
    "include/member.hpp": ("struct a {\n  int whole = 0;\n  void give_up();\n};\n", 2),
    "include/used.hpp": ("void f() { a.apart = b->asked + c::landing; }\n", 3),
    "include/enumerator.hpp": ("enum class a { arena, other };\n", 1),
    "include/template_member.hpp": ("template <class T, class U>\nstruct a : b<T> {\n  T card;\n};\n", 1),
    "include/alias.hpp": ("void f() {\n  using under_way = int;\n}\n", 1),
    "docs/actors.md": ("whoever\n" * (MOST_ACTORS + 1), MOST_ACTORS + 1),
}
SOUND = {
    "include/locals.hpp": "void f(int card) {\n  for (int whole : {1}) { const int apart = g(whole); }\n}\n",
    "include/template.hpp": "template <class Visit>\nvoid f(Visit visit) {\n  for (;;) visit(1);\n}\n",
    "include/lambda.hpp": "auto f = [](int visit) { return visit; };\n",
    "include/comment.hpp": "// the whole door\nconst char* a = \"struct arena { int whole; }\";\n",
    "docs/few.md": "who\n" * MOST_ACTORS,
    "docs/glossary.md": "A loan is an exposure.\n",
    "tests/message.txt": "removers, tickets_office and gloaming\n",
}


def write(root, name, text):
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def self_test():
    for name, (text, count) in PLANTED.items():
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            write(root, name, text)
            found = problems(root)
            if len(found) != count:
                sys.exit(f"{name}: {count} faults planted, found {found}")
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in SOUND.items():
            write(root, name, text)
        found = problems(root)
        if found != ["tests/message.txt:1: a private word"]:
            sys.exit(f"found {found} where only 'tickets_office' is a private word")
    print(f"{len(PLANTED)} planted files found")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = problems(pathlib.Path(sys.argv[1]))
    print("\n".join(found) or "no private word, every actor named")
    sys.exit(bool(found))


main()
