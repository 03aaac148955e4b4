#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Checks the includes of the headers of include/colls (docs/design.md). Each folder is a floor: its headers
include headers of the folder itself and of the folders that the table FLOORS allows.

Failures are an include of any other folder, a cycle, a header of the top that is not listed, a standard
header that is too heavy for its folder, a header of the operating system on a floor that must not
depend on it, a library that the folder may not use, and a name of boost::asio::detail.

If a page is given, its table of folders (| `folder/` | contents | `may/` `include/` |) has to be equal
to FLOORS.

usage: floors.py INCLUDE_DIR/colls [PAGE] | floors.py --self-test
"""

import itertools
import pathlib
import re
import sys
import tempfile

LOW = "base reduction os coroutine matching channel"
# folder: (the folders that its headers may include, the libraries that they may use); from the bottom up.
FLOORS = {
    "base": ("", []),
    "reduction": ("base", []),
    "os": ("base", []),
    "coroutine": ("base", []),
    "driver": ("base os coroutine", ["boost"]),
    "matching": ("base coroutine", []),
    "channel": ("base reduction coroutine matching", []),
    "algorithm": ("base channel", []),
    "selection": ("base reduction algorithm", []),
    "call": ("base reduction coroutine matching channel algorithm selection", []),
    "bootstrap": ("base os coroutine driver", ["boost", "openssl"]),
    "transport/inproc": ("base os coroutine matching channel", []),
    "transport/threads": ("base os coroutine matching channel", []),
    "transport/simulated": ("base os coroutine matching channel", []),
    "transport/interprocess": ("base os coroutine driver matching channel bootstrap", ["boost"]),
    "transport/ucx": ("base os coroutine driver matching channel bootstrap transport/interprocess", ["boost", "ucx"]),
    "transport/mpi": ("base reduction os coroutine driver matching channel algorithm bootstrap transport/interprocess", ["boost", "mpi"]),
    "cuda": (f"{LOW} algorithm call", ["cuda"]),
    "objects": ("base coroutine matching call", ["cereal"]),
    "ddp": ("base reduction os coroutine driver channel call", ["boost"]),
}
# The top: headers that users include. No header in a folder includes them. source/ has the parts of source.hpp.
MODELS = "transport/inproc transport/threads transport/simulated"
TOP = {
    "all": ("version communicator error half op sync_wait task stop_when when_any grid inproc threads simulated colls",
            f"base coroutine matching channel selection call {MODELS} top:all", []),
    "world": ("config interprocess transport world asio join run source source/base source/inproc source/threads"
              " source/interprocess source/interprocess_transport source/joining",
              f"base reduction os coroutine driver matching channel selection call bootstrap {MODELS}"
              " transport/interprocess top:all top:world", ["boost"]),
    "torch": ("torch_checkpoint torch torch_elastic torch_tensor", "base coroutine selection call ddp top:all top:world top:torch", ["torch"]),
    "objects": ("objects", "base coroutine matching call objects top:all", ["cereal"]),
    "ucx": ("transport/ucx", "base os coroutine driver matching bootstrap transport/interprocess transport/ucx", ["ucx"]),
    "mpi": ("mpi", "base coroutine matching channel call transport/interprocess transport/mpi top:all top:world", ["boost", "mpi"]),
    "dlpack": ("dlpack", "base call top:all", ["dlpack"]),
    "format": ("format", "base coroutine selection call top:all", ["fmt"]),
}

# Second parts of headers with long templates, which include them at their end.
HALVES = {
    "call/repair_calls": "call/communicator",
    "call/split": "call/communicator",
    "transport/simulated/fault_injection": "transport/simulated/simulated_transport",
    "transport/simulated/rank": "transport/simulated/simulated_transport",
    "transport/simulated/world": "transport/simulated/simulated_transport",
}

# Standard headers that cost every user compile time, and the headers that may include them nevertheless.
HEAVY = {name: set() for name in ("string", "functional", "iostream", "ranges", "regex", "complex")}
HEAVY["system_error"] = {"base/error"}
LEAN = "base reduction coroutine matching channel algorithm selection call top:all".split()
WITHOUT_COROUTINES = "base reduction os".split()
WITHOUT_SYSTEM = "base reduction coroutine matching channel algorithm selection call".split()
# <x.h> is a header of C or of the operating system, except this one of the sanitizers.
NOT_OF_THE_SYSTEM = {"sanitizer/asan_interface.h"}

THIRD_PARTIES = {
    "boost": r"boost/",
    "cereal": r"cereal/",
    "dlpack": r"dlpack/",
    "fmt": r"fmt/",
    "openssl": r"openssl/",
    "cuda": r"cuda|cub/|thrust/|nvtx|nccl",
    "torch": r"torch/|ATen/|c10/",
    "ucx": r"uc[mpst]/",
    "mpi": r"mpi\.h",
}


def floor_of(header):
    """The floor of a header, such as "algorithm/ring", or None."""
    top = next((f"top:{name}" for name, (names, _, _) in TOP.items() if header in names.split()), None)
    return top or next((folder for folder in FLOORS if header.startswith(f"{folder}/")), None)


def allowed(floor):
    """(the floors, the libraries) that headers of that floor may include."""
    folders, parties = TOP[floor[4:]][1:] if floor.startswith("top:") else FLOORS[floor]
    return folders.split(), parties


def includes(text):
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return re.findall(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', text, flags=re.M)


def cycles(graph):
    """Each cycle once, as a list of headers that ends with its first header."""
    found, done = [], set()

    def follow(node, path):
        if node in path:
            found.append(path[path.index(node):] + [node])
            return
        if node in done:
            return
        for following in graph.get(node, []):
            follow(following, path + [node])
        done.add(node)

    for node in sorted(graph):
        follow(node, [])
    return found


def check_edge(header, target):
    floor, below = floor_of(header), floor_of(target)
    if below is None:
        return f"includes colls/{target}, which has no floor"
    if below != floor and below not in allowed(floor)[0]:
        return f"is on floor '{floor}' and includes {target} of floor '{below}'"
    return None


def check_other(header, target):
    """Says what is wrong with an include of a header that is not part of colls, or None."""
    floor = floor_of(header)
    for party, pattern in THIRD_PARTIES.items():
        if re.match(pattern, target):
            named = party in allowed(floor)[1]
            return None if named else f"is on floor '{floor}' and names {party} (<{target}>)"
    if floor in LEAN and target in HEAVY and header not in HEAVY[target]:
        return f"is on floor '{floor}' and includes <{target}>"
    if floor in WITHOUT_COROUTINES and target == "coroutine":
        return f"is on floor '{floor}' and includes <coroutine>"
    if floor in WITHOUT_SYSTEM and target.endswith(".h") and target not in NOT_OF_THE_SYSTEM:
        return f"is on floor '{floor}' and includes <{target}> of the system"
    return None


def check(root):
    """(the headers, the problems) of include/colls."""
    root = pathlib.Path(root)
    problems, graph = [], {}
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        # NAME.ipp is the second part of NAME.hpp, which includes it at its end. A second part includes its
        # header, too, so that it can be read and compiled alone.
        half = path.suffix == ".ipp"
        header = path.relative_to(root).with_suffix("").as_posix()
        half |= header in HALVES
        header = HALVES.get(header, header)
        graph.setdefault(header, [])
        if floor_of(header) is None:
            problems.append(f"{header}: give it a floor (tests/floors.py)")
            continue
        if path.suffix == ".ipp" and not path.with_suffix(".hpp").is_file():
            problems.append(f"{header}: an .ipp without its .hpp")
        text = path.read_text()
        if re.search(r"\basio::detail\b", text):
            problems.append(f"{header}: names boost::asio::detail")
        for quote, name in includes(text):
            if quote == '"':
                problems.append(f'{header}: includes "{name}"; write <colls/...> in full')
                continue
            if not name.startswith("colls/"):
                problem = check_other(header, name)
            elif not (root.parent / name).is_file():
                problem = f"includes <{name}>, which does not exist"
            else:
                target = name[len("colls/"):].rpartition(".")[0]
                is_half = name.endswith(".ipp") or target in HALVES
                target = HALVES.get(target, target)
                if target == header and (half or is_half):
                    continue
                graph[header].append(target)
                problem = check_edge(header, target)
            if problem:
                problems.append(f"{header}: {problem}")
    problems += ["cycle: " + " -> ".join(cycle) for cycle in cycles(graph)]
    return sorted(graph), problems


def check_page(text):
    """The differences between the page's table and FLOORS."""
    rows = dict(re.findall(r"^\| `([\w/]+)/` \|[^|]*\|([^|]*)\|", text, flags=re.M))
    for folder, (below, _) in FLOORS.items():
        if folder not in rows:
            yield f"the page's table lacks `{folder}/`"
            continue
        found = re.findall(r"`([\w/]+)/`", rows[folder])
        if found != below.split():
            differ = sorted(set(found) ^ set(below.split())) or ["their order"]
            yield f"the page's row of `{folder}/` differs in: {', '.join(differ)}"
    if list(rows) != list(FLOORS):
        yield "the page's folders or their order differ"


def folder_graph():
    return {folder: below.split() for folder, (below, _) in FLOORS.items()}


def self_test():
    """Plants each kind of fault in a small tree and expects a message that names it."""
    sound = {f"{folder}/one.hpp": "" for folder in FLOORS} | {
        "base/error.hpp": "#include <colls/base/one.hpp>\n#include <system_error>\n",
        "coroutine/task.hpp": "#include <colls/base/error.hpp>\n#include <coroutine>\n",
        "driver/engine.hpp": "#include <boost/asio/post.hpp>\n#include <colls/driver/engine.ipp>\n",
        "driver/engine.ipp": "#include <colls/driver/engine.hpp>\n#include <unistd.h>\n",
        "colls.hpp": "#include <colls/base/error.hpp>\n",
        "asio.hpp": "#include <boost/asio/post.hpp>\n",
    }
    planted = [
        ("base/one.hpp", "#include <colls/base/error.hpp>\n", r"cycle: base/error -> base/one -> base/error"),
        ("base/one.hpp", "  #  include <colls/base/one.hpp>\n", r"cycle: base/one -> base/one|base/one: "),
        ("base/one.hpp", "#include <colls/nowhere.hpp>\n", r"does not exist"),
        ("base/one.hpp", '#include "error.hpp"\n', r"in full"),
        ("base/one.hpp", "#include <string>\n", r"includes <string>"),
        ("base/one.hpp", "#include <coroutine>\n", r"includes <coroutine>"),
        ("base/one.hpp", "#include <system_error>\n", r"includes <system_error>"),
        ("base/one.hpp", "#include <unistd.h>\n", r"<unistd.h> of the system"),
        ("base/one.hpp", "#include <time.h>\n", r"<time.h> of the system"),
        ("driver/one.ipp", "#include <colls/cuda/one.hpp>\n", r"of floor 'cuda'"),
        ("driver/two.ipp", "", r"without its .hpp"),
        ("driver/one.hpp", "using boost::asio::detail::scheduler;\n", r"names boost::asio::detail"),
        ("base/one.hpp", "#include <colls/colls.hpp>\n", r"includes colls of floor 'top:all'"),
        ("colls.hpp", "#include <colls/asio.hpp>\n", r"includes asio of floor 'top:world'"),
        ("colls.hpp", "#include <boost/asio/post.hpp>\n", r"names boost"),
        ("coroutine/task.hpp", "#include <boost/asio/post.hpp>\n", r"names boost"),
        ("transport/interprocess/one.hpp", "#include <cuda_runtime.h>\n", r"names cuda"),
        ("coroutine/task.hpp", "#include <fmt/format.h>\n", r"names fmt"),
        ("unheard_of.hpp", "", r"give it a floor"),
        ("unheard_of/one.hpp", "", r"give it a floor"),
    ]
    for floor, other in itertools.product(FLOORS, FLOORS):
        if floor != other and other not in FLOORS[floor][0].split():
            planted.append((f"{floor}/one.hpp", f"#include <colls/{other}/one.hpp>\n",
                            f"is on floor '{floor}' and includes {other}/one of floor '{other}'"))
    passed, failed = 0, []
    for header, text, expected in [(None, None, None)] + planted:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder) / "colls"
            for name, body in (sound | ({header: sound.get(header, "") + text} if header else {})).items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(body)
            problems = check(root)[1]
        if bool(problems) != bool(expected) or (
            expected and not any(re.search(expected, problem) for problem in problems)
        ):
            failed.append(f"expected {expected!r} from {header} with {text!r}, got {problems}")
        else:
            passed += 1
    page = "".join(f"| `{folder}/` | things |{' '.join(f'`{name}/`' for name in below.split())} |\n"
                   for folder, (below, _) in FLOORS.items())
    for what, text, expected in (
        ("a page as it should be", page, None),
        ("a folder that is left out", page.replace("| `matching/` | things |", "| matching |"), "lacks `matching/`"),
        ("an edge that is left out", page.replace("|`base/` `channel/` |", "|`base/` |"), "`algorithm/` differs in: channel"),
        ("an edge too many", page.replace("|`base/` `channel/` |", "|`base/` `channel/` `cuda/` |"), "differs in: cuda"),
        ("another order", page.replace("|`base/` `channel/` |", "|`channel/` `base/` |"), "their order"),
    ):
        found = list(check_page(text))
        if bool(found) != bool(expected) or (expected and expected not in found[0]):
            failed.append(f"{what}: {found}")
        else:
            passed += 1
    order = list(FLOORS)
    upward = [(a, b) for a, below in folder_graph().items() for b in below if order.index(b) >= order.index(a)]
    if upward:
        failed.append(f"upward: {upward}")
    return passed + 1, failed


def main():
    if sys.argv[1:] == ["--self-test"]:
        passed, failed = self_test()
    elif len(sys.argv) in (2, 3):
        seen, failed = check(sys.argv[1])
        passed = len(seen) - len({problem.split(":")[0] for problem in failed} & set(seen))
        for page in sys.argv[2:]:
            failed += check_page(pathlib.Path(page).read_text())
    else:
        sys.exit(__doc__)
    for problem in failed:
        print(problem)
    print(f"{passed} passed, {len(failed)} failed")
    sys.exit(bool(failed))


main()
