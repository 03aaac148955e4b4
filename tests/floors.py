#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Checks that the headers of include/colls stand on their floors (docs/design.md).

A header includes headers of the floors that its floor may see, and headers listed above it on its
own floor. An edge upward, a cycle, a header without a floor, a standard header that its floor does
without, and a third party that its floor may not name are failures.

With a page, its table of floors (| floor | `header` `folder/{header,header}` ... |) has to be this one.

usage: floors.py INCLUDE_DIR [PAGE] | floors.py --self-test
"""

import pathlib
import re
import sys
import tempfile

# floor: (the floors below that its headers may include, its headers from the bottom up, third parties)
# A folder's header counts by its full name; what stands in a detail/ folder has its line here too.
FLOORS = {
    "vocabulary": (
        [],
        "compiler version fwd clock log error reported_failure buffer half type detail/arithmetic op_traits op detail/registers detail/kernels"
        " fingerprint reduction partition pattern shared_buffer"
        " detail/cores detail/crc32c detail/system_call detail/log_writer detail/rate_limited_log detail/descriptor detail/forks detail/lines pattern/circulant pattern/trees network_cost algorithm_choice cost_parts cost_trees",
        [],
    ),
    "coroutines": (["vocabulary"], "operation memory task when_all sync_wait", []),
    "contracts": (["vocabulary", "coroutines"], "node_map key_table record match/posted match/pairing match/roster match/under_way match/stragglers match/spare_memory"
        " match receive send round scratch transport reduce recv_reduce channel", []),
    "algorithms": (
        ["vocabulary", "coroutines", "contracts"],
        "algorithm/selection_query algorithm/direct_thresholds algorithm/placed algorithm/rotated algorithm/pipeline algorithm/linear algorithm/step algorithm/one_round algorithm/whole"
        " algorithm/lending algorithm/ring"
        " algorithm/recursive_doubling algorithm/recursive_halving algorithm/circulant"
        " algorithm/knomial_tree algorithm/binomial_tree algorithm/chain algorithm/double_tree"
        " algorithm/neighbour_exchange algorithm/reduce_scatter_gather algorithm/scatter_all_gather algorithm/hierarchical algorithm/meeting algorithm/direct_copies algorithm/direct algorithm/direct_scans algorithm/bruck"
        " algorithm/pairwise algorithm/dissemination",
        [],
    ),
    "facade": (
        ["vocabulary", "coroutines", "contracts", "algorithms"],
        "options costs tuning algorithms probe arguments call asked call_queue step_call bodies point_to_point core communicator world",
        [],
    ),
    "sockets": (
        ["vocabulary", "coroutines", "contracts"],
        "transport/yielding transport/engine transport/socket transport/shm/segment transport/shm/process transport/shm/arena transport/shm/local_socket",
        ["boost"],
    ),
    "joining": (
        ["vocabulary", "coroutines", "contracts", "sockets"],
        "rendezvous/fixed_text rendezvous/hello rendezvous/config rendezvous/nodelist"
        " rendezvous/process rendezvous/known_variables rendezvous/variables rendezvous/environment rendezvous/authenticate rendezvous/local_key"
        " rendezvous/door rendezvous/store rendezvous/store_frame rendezvous/store_server"
        " rendezvous/tcp_store rendezvous/store_file rendezvous/file_store rendezvous/membership"
        " rendezvous/offshoot rendezvous/reach rendezvous/serve rendezvous/meet_file rendezvous/meet",
        ["boost", "openssl"],
    ),
    "models": (
        ["vocabulary", "coroutines", "contracts", "sockets", "joining"],
        "transport/inproc/meeting transport/inproc transport/threads/inbox transport/threads/message transport/threads/speech transport/threads"
        " transport/tcp/frame transport/tcp/outbox transport/tcp/credit transport/tcp/landing transport/shm/ring"
        " transport/tcp/socket_frames transport/tcp/ring_frames transport/tcp/link transport/tcp/links transport/tcp/lender"
        " transport/tcp/opener transport/tcp/delivery transport/tcp/round transport/tcp"
        " transport/simulated/clock_queue transport/simulated/network transport/simulated/faults"
        " transport/simulated/trace transport/simulated/links transport/simulated/message"
        " transport/simulated",
        ["boost", "openssl"],
    ),
    "gpu": (
        ["vocabulary", "coroutines", "contracts", "algorithms", "facade"],
        "cuda/api cuda/check cuda/memory cuda/stream cuda/turns cuda/shot_page cuda/half cuda/reduce cuda/shots cuda/attach"
        " cuda/staged cuda/door cuda/hatch cuda/passable cuda/mapped cuda/neighbourhood cuda/visit cuda/ring_visit cuda/island cuda/ipc"
        " cuda/nccl_api cuda/nccl_clique cuda/nccl",
        ["cuda"],
    ),
    "all": (
        ["vocabulary", "coroutines", "contracts", "facade", "models"],
        "give_up inproc threads simulated colls",
        [],
    ),
    "world": (
        ["vocabulary", "coroutines", "contracts", "facade", "sockets", "joining", "models", "all"],
        "asio rendezvous/join run source",
        ["boost"],
    ),
    "training": (
        ["vocabulary", "coroutines", "contracts", "facade", "sockets", "models", "all", "world"],
        "ddp/sampler ddp/checkpoint"
        " ddp/options ddp/bucket_plan ddp/compression ddp/driver ddp/replicate ddp/gradient_buckets",
        ["boost"],
    ),
    "torch": (["vocabulary", "coroutines", "facade", "all", "training"], "torch_checkpoint torch", ["torch"]),
    "format": (["vocabulary", "coroutines", "contracts", "facade", "all"], "format", ["fmt"]),
}

# Standard headers that cost every user compile time; who may include one all the same.
HEAVY = {name: set() for name in ("string", "functional", "iostream", "ranges", "regex", "complex")}
HEAVY["system_error"] = {"error"}
LEAN = ("vocabulary", "coroutines", "contracts", "algorithms", "facade", "all")

THIRD_PARTIES = {
    "boost": r"boost/",
    "fmt": r"fmt/",
    "openssl": r"openssl/",
    "cuda": r"cuda|cub/|thrust/|nvtx|nccl",
    "torch": r"torch/|ATen/|c10/",
}


def place(header):
    """(floor, position on it) of a header such as "algorithm/ring", or None."""
    for floor, (_, names, _) in FLOORS.items():
        names = names.split()
        if header in names:
            return floor, names.index(header)
    return None


def includes(text):
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return re.findall(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', text, flags=re.M)


def cycles(graph):
    """Each cycle once, as a list of headers that ends where it began."""
    found, done = [], set()

    def visit(node, path):
        if node in path:
            found.append(path[path.index(node):] + [node])
            return
        if node in done:
            return
        for following in graph.get(node, []):
            visit(following, path + [node])
        done.add(node)

    for node in sorted(graph):
        visit(node, [])
    return found


def check_edge(header, target):
    floor, position = place(header)
    if place(target) is None:
        return None if target == header else f"includes colls/{target}, which has no floor"
    below, target_position = place(target)
    if below in FLOORS[floor][0]:
        return None
    if below != floor:
        return f"is on floor '{floor}' and includes {target} of floor '{below}'"
    if target_position >= position and target != header:
        return f"includes {target}, which stands above it on floor '{floor}'"
    return None


def check_other(header, target):
    """What a header may include that is not of colls."""
    floor = place(header)[0]
    for party, pattern in THIRD_PARTIES.items():
        if re.match(pattern, target) and party not in FLOORS[floor][2]:
            return f"is on floor '{floor}' and names {party} (<{target}>)"
    if floor in LEAN and target in HEAVY and header not in HEAVY[target]:
        return f"is on floor '{floor}' and includes <{target}>"
    if floor == "vocabulary" and target == "coroutine":
        return "is on floor 'vocabulary' and includes <coroutine>"
    return None


def check(root):
    """(headers seen, problems) of the folder that holds colls/."""
    root = pathlib.Path(root) / "colls"
    problems, graph = [], {}
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        # impl/NAME.ipp is the second half of NAME.hpp, which includes it last; so are all of
        # impl/NAME/*.ipp together, where NAME/*.hpp are others.
        half = path.suffix == ".ipp"
        header = path.relative_to(root / "impl" if half else root).with_suffix("").as_posix()
        if half and not (root / f"{header}.hpp").is_file():
            header = header.rpartition("/")[0]
        graph.setdefault(header, [])
        if place(header) is None:
            problems.append(f"{header}: give it a floor (tests/floors.py)")
            continue
        for quote, name in includes(path.read_text()):
            if quote == '"':
                problems.append(f'{header}: includes "{name}"; write <colls/...> in full')
                continue
            if name.startswith("colls/"):
                if re.fullmatch(rf"colls/impl/{header}(/\w+)?\.ipp", name) and (root.parent / name).is_file():
                    continue
                if half and name == f"colls/{header}.hpp":
                    continue
                target = re.sub(r"^(impl/)?(.*)\.(hpp|cuh|ipp)$", r"\2", name[len("colls/"):])
                if not (root.parent / name).is_file():
                    problems.append(f"{header}: includes <{name}>, which does not exist")
                    continue
                graph[header].append(target)
                problem = check_edge(header, target)
            else:
                problem = check_other(header, name)
            if problem:
                problems.append(f"{header}: {problem}")
    problems += ["cycle: " + " -> ".join(cycle) for cycle in cycles(graph)]
    return sorted(graph), problems


def listed(cell):
    """The headers that a cell of the page's table names, in its order."""
    found = []
    for word in re.findall(r"`([^`]+)`", cell):
        folder, brace, names = word.rstrip("}").partition("{")
        found += [folder + name for name in names.split(",")] if brace else [word]
    return found


def check_page(text):
    """What the page's table has otherwise than FLOORS."""
    rows = dict(re.findall(r"^\| (?:\d )?(\w+) \|([^|]*)\|", text, flags=re.M))
    for floor, (_, names, _) in FLOORS.items():
        ours, theirs = names.split(), listed(rows.get(floor, ""))
        if ours != theirs:
            differ = sorted(set(ours) ^ set(theirs)) or ["their order"]
            yield f"the page's row of floor '{floor}' differs in: {', '.join(differ)}"


def self_test():
    """Plants each kind of fault in a small tree and expects it to be named."""
    sound = {
        "version.hpp": "#include <version>\n",
        "fwd.hpp": "#include <cstddef>\n",
        "error.hpp": "#include <colls/fwd.hpp>\n#include <system_error>\n",
        "task.hpp": "#include <colls/error.hpp>\n#include <coroutine>\n",
        "transport/tcp.hpp": "#include <colls/task.hpp>\n#include <boost/asio/ip/tcp.hpp>\n",
    }
    planted = [
        ("error.hpp", "#include <colls/task.hpp>\n", r"includes task of floor 'coroutines'"),
        ("task.hpp", "#include <colls/transport/tcp.hpp>\n", r"of floor 'models'"),
        ("fwd.hpp", "#include <colls/error.hpp>\n", r"stands above it on floor 'vocabulary'"),
        ("fwd.hpp", "  #  include <colls/error.hpp>\n", r"cycle: error -> fwd -> error"),
        ("fwd.hpp", "#include <colls/fwd.hpp>\n", r"cycle: fwd -> fwd"),
        ("fwd.hpp", "#include <colls/nowhere.hpp>\n", r"does not exist"),
        ("fwd.hpp", '#include "error.hpp"\n', r"in full"),
        ("fwd.hpp", "#include <string>\n", r"includes <string>"),
        ("fwd.hpp", "#include <coroutine>\n", r"includes <coroutine>"),
        ("fwd.hpp", "#include <system_error>\n", r"includes <system_error>"),
        ("task.hpp", "#include <boost/asio/post.hpp>\n", r"names boost"),
        ("transport/tcp.hpp", "#include <cuda_runtime.h>\n", r"names cuda"),
        ("task.hpp", "#include <fmt/format.h>\n", r"names fmt"),
        ("unheard_of.hpp", "", r"give it a floor"),
    ]
    passed, failed = 0, []
    for header, text, expected in [(None, None, None)] + planted:
        with tempfile.TemporaryDirectory() as folder:
            for name, body in sound.items():
                path = pathlib.Path(folder) / "colls" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(body + (text if name == header else ""))
            if header is not None and header not in sound:
                (pathlib.Path(folder) / "colls" / header).write_text(text)
            problems = check(folder)[1]
        if bool(problems) != bool(expected) or (
            expected and not any(re.search(expected, problem) for problem in problems)
        ):
            failed.append(f"expected {expected!r} from {header} with {text!r}, got {problems}")
        else:
            passed += 1
    page = "".join(f"| {floor} |{' '.join(f'`{name}`' for name in names.split())}| |\n"
                   for floor, (_, names, _) in FLOORS.items())
    for what, text, expected in (
        ("a page as it should be", page, None),
        ("headers of one folder", page.replace("`match/posted` `match/pairing`", "`match/{posted,pairing}`"), None),
        ("a header that is left out", page.replace("`fwd` ", ""), "vocabulary' differs in: fwd"),
        ("another order", page.replace("`task` `when_all`", "`when_all` `task`"), "their order"),
        ("a row that is left out", page.replace("| format |", "| fmt |"), "'format' differs in: format"),
    ):
        found = list(check_page(text))
        if bool(found) != bool(expected) or (expected and expected not in found[0]):
            failed.append(f"{what}: {found}")
        else:
            passed += 1
    return passed, failed


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
