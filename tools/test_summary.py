#!/usr/bin/env python3
"""The closing lines of `./do test`: what was skipped and why, then "N passed, N failed, N skipped".

usage: test_summary.py FAILED_STAGES LOG_FOLDER
       test_summary.py --self-test

Reads ctest*.xml (ctest --output-junit) and the output of test programs that ran by themselves.
"""

import collections
import pathlib
import re
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

# GoogleTest prints "file:line: Skipped" and the reason on the lines up to the closing one.
REASON = re.compile(r": Skipped\n(.*?)\n+\[  SKIPPED \]", re.DOTALL)


def reason_of(output: str) -> str:
    found = REASON.search(output)
    return " ".join(found.group(1).split()) if found else "no reason given"


def counts_of_ctest(file: pathlib.Path, why: collections.Counter) -> tuple[int, int]:
    passed = failed = 0
    for case in ElementTree.parse(file).getroot().iter("testcase"):
        status = case.get("status")
        if case.find("skipped") is not None or status in ("notrun", "disabled"):
            why[reason_of(case.findtext("system-out") or "")] += 1
        elif status == "run" and case.find("failure") is None:
            passed += 1
        else:
            failed += 1
    return passed, failed


def counts_of_program(text: str, why: collections.Counter) -> tuple[int, int]:
    """Several programs may have written one after the other."""
    def total(pattern: str) -> int:
        return sum(int(n) for n in re.findall(pattern, text, re.MULTILINE))

    skipped = total(r"^\[  SKIPPED \] (\d+) tests?")
    reasons = [" ".join(r.split()) for r in REASON.findall(text)]
    why.update(reasons[:skipped] + ["no reason given"] * (skipped - len(reasons)))
    return total(r"^\[  PASSED  \] (\d+) tests?"), total(r"^ *(\d+) FAILED TESTS?")


def summary(folder: pathlib.Path, failed_stages: int) -> str:
    why: collections.Counter = collections.Counter()
    passed = failed = 0
    for log in sorted(folder.glob("*.txt")) + sorted(folder.glob("ctest*.xml")):
        if log.name == "tests.txt":
            continue  # ctest's own lines: its files have them
        counts = counts_of_ctest(log, why) if log.suffix == ".xml" else counts_of_program(
            log.read_text(errors="replace"), why)
        passed, failed = passed + counts[0], failed + counts[1]
    lines = [f"  skipped: {n:4d}  {reason}" for reason, n in why.most_common()]
    if failed_stages:
        lines.append(f"  {failed_stages} stage(s) failed")
    return "\n".join(lines + ["", f"{passed} passed, {failed} failed, {sum(why.values())} skipped"])


XML = """<testsuite>
<testcase name="a" status="run"><system-out>fine</system-out></testcase>
<testcase name="b" status="fail"><failure message=""/></testcase>
<testcase name="c" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
<system-out>x_test.cpp:3: Skipped
no GPU here

[  SKIPPED ] c (0 ms)</system-out></testcase></testsuite>"""
PROGRAM = "x.cpp:1: Skipped\nno GPU here\n\n[  SKIPPED ] d (0 ms)\n[  PASSED  ] 7 tests.\n[  SKIPPED ] 1 test, listed below:\n"


def self_test() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "ctest.xml").write_text(XML)
        (folder / "asan.txt").write_text(PROGRAM)
        found = summary(folder, 0)
    expected = "  skipped:    2  no GPU here\n\n8 passed, 1 failed, 2 skipped"
    assert found == expected, found
    print("test_summary: in order")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    else:
        print(summary(pathlib.Path(sys.argv[2]), int(sys.argv[1])))
