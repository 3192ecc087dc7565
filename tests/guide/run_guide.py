#!/usr/bin/env python3
"""Runs every command of the guide, in order, in an empty folder, as a reader would.

  run_guide.py PROGRAM GUIDE.md [--keep FOLDER]    --keep: work in this folder, and leave it

```sh blocks are run by bash, with `capstan` on the PATH. A comment in the line before one says what
is not in it:

  <!-- exit: 3 -->            the exit code; 0 unless told
  <!-- types: hello | bye -->  lines of the reader's, one after another
  <!-- ctrl-c: step 5 -->     the reader presses Ctrl-C when the output has this

A ```text block that follows is what the guide says is printed: each of its lines must be in the
output, in this order. Numbers, their units and bars may differ; a line with "…" is left out.

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
MARK = re.compile(r"<!--\s*(exit|types|ctrl-c):\s*(.*?)\s*-->")
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


def bare(line: str) -> str:
    line = re.sub(r"[▏▎▍▌▋▊▉█]+", " ", line)
    line = re.sub(r"(\d+:)*\d[\d.]*(e-?\d+)?\s?([KMGT]i?B|B|[KMG]|[mµ]?s|%)?(?![\w])", "#", line)
    return " ".join(line.split())


def missing_line(shown: str, output: str) -> str | None:
    """The first line of `shown` that the output has not, after those before it."""
    printed = iter([bare(line) for line in output.splitlines()])
    for line in shown.splitlines():
        if line.strip() and "…" not in line and not any(bare(line) in p for p in printed):
            return line
    return None


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
            if (lost := missing_line(block, output)) is not None:
                errors.append(f"{where}: the program does not print\n{lost}\nbut\n{end_of(output)}")
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
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="capstan_guide_") as scratch:
        folder = (arguments.keep or Path(scratch)).resolve()
        errors = check(arguments.program.resolve(), arguments.guide, folder)
    print("\n\n".join(errors) or f"{arguments.guide}: every command does what the guide says")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
