#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Adds up the results of `meson test` and ends with the line `N passed, N failed, N skipped`.

It counts the cases that ran: those of a doctest program by the totals that it prints, those of a script
by its last line `N passed, N failed`, any other test as one case. A crash, a timeout and a program that
ran no case count as failed. A line `skipped: REASON` moves a case from passed to skipped. Lines
`measured: WHAT` are repeated. The last line but one is the number of assertions that doctest checked.
Exit status: 0 only if nothing failed and something passed.

usage: summary.py TESTLOG.json... | summary.py --self-test
"""

import json
import re
import sys

DOCTEST = re.compile(r"\[doctest\] test cases: +\d+ \| +(\d+) passed \| +(\d+) failed")
ASSERTIONS = re.compile(r"\[doctest\] assertions: +(\d+)")
PLAIN = re.compile(r"^(\d+) passed, (\d+) failed$", flags=re.M)
ERROR = re.compile(r"ERROR:|Sanitizer")
MEASURED = re.compile(r"\bmeasured: (.+)$", flags=re.M)
SKIPPED = re.compile(r"\bskipped: (.+)$", flags=re.M)


def count(test):
    """(passed, failed, reasons of skipped cases, reason of the failure) of one entry of a test log."""
    output = re.sub(r"\x1b\[[0-9;]*m", "", test.get("stdout") or "")
    reasons = SKIPPED.findall(output + "\n" + (test.get("stderr") or ""))
    if test["result"] == "SKIP":
        return 0, 0, reasons or ["no reason given"], None
    good = test["result"] == "OK"
    totals = (DOCTEST.findall(output) or PLAIN.findall(output) or [(int(good), int(not good))])[-1]
    passed, failed = map(int, totals)
    why = None
    if failed:
        why = f"{failed} of {passed + failed} cases" if passed + failed > 1 else test["result"]
    elif not good:
        failed, why = 1, f"{test['result']}, exit status {test.get('returncode')}"
    elif passed == 0:
        failed, why = 1, "ran no case"
    if len(reasons) > passed:
        reasons = reasons[:passed]
    return passed - len(reasons), failed, reasons, why


def complaint(test, max_lines=24):
    """The part of a failed test's output that explains it: the paragraphs with an error, else the last lines."""
    output = "\n".join(test.get(which) or "" for which in ("stdout", "stderr"))
    output = re.sub(r"\x1b\[[0-9;]*m", "", output)
    errors = [part for part in re.split(r"\n\s*\n|\n=+\n", output) if re.search(ERROR, part)]
    lines = "\n".join(errors).strip().splitlines()[:max_lines] or output.strip().splitlines()[-8:]
    return [f"  {line.strip()[:300]}" for line in lines]


def summary(tests):
    """The lines to print, and whether all tests passed; `tests` are (stage, entry) pairs."""
    lines, passed, failed, skipped, assertions = [], 0, 0, {}, 0
    for stage, test in tests:
        lines += [f"measured {stage}: {what}" for what in MEASURED.findall(test.get("stdout") or "")]
        assertions += sum(map(int, ASSERTIONS.findall(test.get("stdout") or "")))
        ok, bad, reasons, why = count(test)
        passed, failed = passed + ok, failed + bad
        for reason in reasons:
            skipped[reason] = skipped.get(reason, 0) + 1
        if why:
            lines += [f"FAILED {stage}: {test['name']} ({why})", *complaint(test)]
    lines += [f"skipped {number}: {reason}" for reason, number in skipped.items()]
    if assertions:
        lines.append(f"{assertions} assertions")
    lines.append(f"{passed} passed, {failed} failed, {sum(skipped.values())} skipped")
    return lines, failed == 0 and passed > 0


def read(path):
    with open(path) as log:
        return [(path.split("/")[0], json.loads(line)) for line in log if line.strip()]


def self_test():
    doctest = "[doctest] test cases: {} | {} passed | {} failed | 0 skipped\n"
    cases = [
        (("OK", doctest.format("  3", "  3", "0")), (3, 0, 0)),
        (("FAIL", doctest.format("3", "2", "1")), (2, 1, 0)),
        (("FAIL", doctest.format("3", "3", "0") + "LeakSanitizer"), (3, 1, 0)),
        (("ERROR", "Segmentation fault"), (0, 1, 0)),
        (("TIMEOUT", ""), (0, 1, 0)),
        (("OK", doctest.format("0", "0", "0")), (0, 1, 0)),
        (("OK", "x.cpp:3: MESSAGE: skipped: needs root\n" + doctest.format("2", "2", "0")), (1, 0, 1)),
        (("SKIP", "skipped: no nvcc\n"), (0, 0, 1)),
        (("OK", "7 passed, 0 failed\n"), (7, 0, 0)),
        (("FAIL", "7 passed, 2 failed\n"), (7, 2, 0)),
        (("OK", ""), (1, 0, 0)),
        (("FAIL", ""), (0, 1, 0)),
    ]
    for (result, stdout), expected in cases:
        ok, bad, reasons, why = count({"result": result, "stdout": stdout, "returncode": 1})
        if (ok, bad, len(reasons)) != expected or bool(why) != bool(bad):
            yield f"{result} {stdout!r}: expected {expected}, got {ok, bad, reasons, why}"
    last = [("s", {"name": "t", "result": "OK", "stdout": ""})] * 2
    output = "a.cpp:1: MESSAGE: x\n\na.cpp:2: ERROR: CHECK( 1 == 2 )\n  logged: 3\n\nz"
    found = complaint({"stdout": output})
    if found != ["  a.cpp:2: ERROR: CHECK( 1 == 2 )", "  logged: 3"]:
        yield f"complaint: {found}"
    if complaint({"stdout": "", "stderr": "no\nyes"}) != ["  no", "  yes"]:
        yield "complaint without an error"
    measured = [("s", {"name": "t", "result": "OK", "stdout": "a.hpp:1: MESSAGE: measured: 3 ms\n"})]
    if summary(measured) != (["measured s: 3 ms", "1 passed, 0 failed, 0 skipped"], True):
        yield f"measured: {summary(measured)}"
    checked = [("s", {"name": "t", "result": "OK", "stdout": "[doctest] assertions: 40 | 40 passed\n"})] * 2
    if summary(checked)[0] != ["80 assertions", "2 passed, 0 failed, 0 skipped"]:
        yield f"assertions: {summary(checked)}"
    if summary(last) != (["2 passed, 0 failed, 0 skipped"], True) or summary([])[1]:
        yield f"totals: {summary(last)} {summary([])}"


def main():
    if sys.argv[1:] == ["--self-test"]:
        problems = list(self_test())
        print(*problems, sep="\n")
        sys.exit(bool(problems))
    lines, good = summary([entry for path in sys.argv[1:] for entry in read(path)])
    print(*lines, sep="\n")
    sys.exit(not good)


main()
