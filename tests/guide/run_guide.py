#!/usr/bin/env python3
"""Runs every command of the guide, in order, in an empty folder, as a reader would.

  run_guide.py PROGRAM GUIDE.md [--keep FOLDER]    --keep: work in this folder, and leave it
  run_guide.py --self-test                         shows that wrong lines and numbers are found

```sh blocks are run by bash, with `capstan` on the PATH. A comment in the line before one says what
is not in it:

  <!-- exit: 3 -->            the exit code; 0 unless told
  <!-- types: hello | bye -->  lines of the reader's, one after another
  <!-- ctrl-c: step 5 -->     the reader presses Ctrl-C when the output has this

A ```text block that follows is what the guide says is printed: each of its lines must be in the
output, in this order; "…" stands for anything, and alone for any lines. Numbers must be those that
are printed, but for times; for losses and other decimals without a unit, which may differ by 10%
from processor to processor; for numbers like 1.2e-07; and for those that depend on the machine or
the moment, which a comment before the block names:

  <!-- varies: 21.5 000020 -->

`Paths` in the text that begin with out/, data/ or checkpoints/ must be there at the end; * stands
for anything. Blocks of other languages are not looked at.
"""

import argparse
import glob
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

SECONDS = 200  # of one block; the machine may be busy
MARK = re.compile(r"<!--\s*(exit|types|ctrl-c|varies):\s*(.*?)\s*-->")
PATH_SPAN = re.compile(r"`((?:out|data|checkpoints)/[^`\s]*)`")


def blocks_of(text: str):
    """Yields (line number, language, marks, block), in order."""
    language, marks, body, begin = None, {}, [], 0
    for number, line in enumerate(text.splitlines(), 1):
        if language is None and line.startswith("```"):
            language, body, begin = line[3:].strip(), [], number
        elif language is None:
            if found := MARK.findall(line):
                marks.update(found)
            elif line.strip():
                marks = {}
        elif line.startswith("```"):
            yield begin, language, marks, "\n".join(body)
            language, marks = None, {}
        else:
            body.append(line)
    if language is not None:
        sys.exit(f"line {begin}: the block has no end")


def run(block: str, marks: dict[str, str], folder: Path, env: dict[str, str]) -> tuple[int, str]:
    typed = tempfile.TemporaryFile()
    typed.write("".join(line.strip() + "\n" for line in marks.get("types", "").split("|")).encode())
    typed.seek(0)
    process = subprocess.Popen(
        ["bash", "-e", "-o", "pipefail", "-c", block], cwd=folder, env=env, text=True,
        stdin=typed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        encoding="utf-8", errors="replace", start_new_session=True)
    clock = threading.Timer(SECONDS, lambda: os.killpg(process.pid, signal.SIGKILL))
    clock.start()
    wanted, output = marks.get("ctrl-c"), []
    for line in process.stdout:
        output.append(line)
        if wanted and wanted in line:
            os.killpg(process.pid, signal.SIGINT)  # all of the terminal's programs get it
            wanted = None
    code = process.wait()
    clock.cancel()
    return (128 - code if code < 0 else code), "".join(output)


DIGITS = r"(?:\d+:)*\d(?:[\d.,]*\d)?(?:e[-+]?\d+)?"
UNIT = r"\s?(?:[KMGT]i?B|[KMGTB]|[mµ]?s|%)(?!\w)"
NUMBER = re.compile(f"{DIGITS}(?:{UNIT})?")


def plain(line: str) -> str:
    return " ".join(re.sub(r"[▏▎▍▌▋▊▉█]+", " ", line).split())


def same_number(shown: str, printed: str, varies: set[str]) -> bool:
    (digits, unit), (found, found_unit) = (
        re.fullmatch(f"({DIGITS})({UNIT})?", n).groups("") for n in (shown, printed))
    if digits in varies:
        return True
    if unit.strip() in ("s", "ms", "µs"):
        return found_unit.strip() in ("s", "ms", "µs")
    if "e" in digits:
        return True
    if "." in digits and ":" not in digits and not unit and not found_unit:
        return abs(float(digits) - float(found)) <= 0.1 * abs(float(digits))
    return (digits, unit.strip()) == (found, found_unit.strip())


def as_pattern(shown: str) -> re.Pattern:
    """Matches the line with any numbers, each a group."""
    parts, at = [], 0
    for number in NUMBER.finditer(shown):
        parts += [re.escape(shown[at:number.start()]), f"({NUMBER.pattern})"]
        at = number.end()
    return re.compile("".join(parts + [re.escape(shown[at:])]).replace("…", ".*"))


def fault_of(line: str, printed, varies: set[str]) -> str | None:
    """What is wrong with a shown line, of which the next printed lines should be one."""
    pattern, numbers = as_pattern(line), [m.group(0) for m in NUMBER.finditer(line)]
    nearest = None
    for candidate in printed:
        if not (found := pattern.search(candidate)):
            continue
        if all(same_number(a, b, varies) for a, b in zip(numbers, found.groups())):
            return None
        nearest = nearest or candidate
    return f"{line}\nbut{'' if nearest is None else ' rather ' + nearest}"


def missing_line(shown: str, output: str, varies: set[str]) -> str | None:
    """The first line of `shown` that the output has not, after those before it."""
    printed = iter([plain(line) for line in output.splitlines()])
    for line in shown.splitlines():
        if line.strip() not in ("", "…") and (fault := fault_of(plain(line), printed, varies)):
            return fault
    return None


def self_test() -> int:
    output = ("tiny: 13.3 K trainable parameters, 115 K frozen\n  weights  451 KiB  ██▏   5%\n"
              "iter 50: val loss 2.1605, val time: 17.44 ms\nstep-000021: 21 of 150 steps, 1.2e-07\n")
    right = ["tiny: 13.3 K trainable parameters, 115 K frozen", "weights 451 KiB █ 5%", "… 115 K frozen",
             "tiny: 13.3 K trainable parameters\n…\nstep-000021: 21 of 150 steps, 3.4e-06",
             "iter 50: val loss 2.2, val time: 3 ms", "step-000020: 20 of 150 steps"]
    wrong = ["tiny: 19.5 K trainable parameters, 115 K frozen", "tiny: 13.3 M trainable", "weights 451 KiB 6%",
             "weights 451 MiB", "iter 50: val loss 2.9, val time: 3 ms", "iter 50: val loss 2.2, val time: 3 KiB",
             "step-000021: 21 of 151 steps", "bar", "step-000021: 21 of 150 steps\nweights 451 KiB"]
    bad = [f"not found: {s}" for s in right if missing_line(s, output, {"000020", "20"})]
    bad += [f"not refused: {s}" for s in wrong if not missing_line(s, output, {"000020", "20"})]
    print("\n".join(bad) or "wrong lines and numbers are found, right ones are not")
    return 1 if bad else 0


def end_of(output: str, lines: int = 40) -> str:
    return "\n".join(output.splitlines()[-lines:])


def check(program: Path, guide: Path, folder: Path) -> list[str]:
    bin_folder = folder / ".bin"
    bin_folder.mkdir(parents=True, exist_ok=True)
    (bin_folder / "capstan").unlink(missing_ok=True)
    (bin_folder / "capstan").symlink_to(program)
    env = dict(os.environ, PATH=f"{bin_folder}:{os.environ['PATH']}",
               CAPSTAN_CACHE=str(folder / ".cache"),
               LC_COLLATE="C",  # the order of names
               CUDA_VISIBLE_DEVICES="")  # the guide shows what a CPU needs
    env.pop("LC_ALL", None)
    text, errors, output, count = guide.read_text(encoding="utf-8"), [], None, 0
    for line, language, marks, block in blocks_of(text):
        where = f"{guide.name}:{line}"
        if language == "sh":
            code, output = run(block, marks, folder, env)
            count += 1
            expected = int(marks.get("exit", "0"))
            if code != expected:
                errors.append(f"{where}: exit code {code}, expected {expected}\n{block}\n"
                              f"{end_of(output)}")
                break  # what follows builds on it
        elif language == "text" and output is not None:
            varies = set(marks.get("varies", "").split())
            if (lost := missing_line(block, output, varies)) is not None:
                errors.append(f"{where}: the program does not print\n{lost}\n{end_of(output)}")
            output = None
    if count == 0:
        errors.append(f"{guide}: has no command")
    if not errors:
        named = sorted(set(PATH_SPAN.findall(text)))
        errors += [f"{guide.name}: {path} is not there" for path in named
                   if not glob.glob(str(folder / path))]
    return errors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("guide", type=Path)
    parser.add_argument("--keep", type=Path)
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="capstan_guide_") as scratch:
        folder = (arguments.keep or Path(scratch)).resolve()
        errors = check(arguments.program.resolve(), arguments.guide, folder)
    print("\n\n".join(errors) or f"{arguments.guide}: every command does what the guide says")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
