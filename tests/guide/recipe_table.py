#!/usr/bin/env python3
"""The table of a recipe's keys in docs/formats.md, made from the program's own --help.

  recipe_table.py PROGRAM formats.md            fails if the table there is another
  recipe_table.py PROGRAM formats.md --write    puts the program's table there
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

COMMANDS = ("finetune_full", "finetune_lora", "pretrain", "demo")
BEGIN, END = "<!-- keys: begin -->\n", "<!-- keys: end -->\n"
KEY = re.compile(r"^  --(\S+)\s+(.*?)(?: \[((?:(?! \[).)*)\])?$")  # the last brackets are the default
NOT_KEYS = ("config", "print_config")  # of the command line alone


def output_of(program: Path, *arguments: str) -> str:
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True,
                          encoding="utf-8").stdout


def table_of(program: Path) -> str:
    names = re.findall(r"^  (\w+) ", output_of(program, "help"), re.MULTILINE)
    commands = [c for c in COMMANDS if c in names]
    meanings: dict[str, str] = {}
    defaults: dict[tuple[str, str], str] = {}
    for command in commands:
        # A description goes on below itself.
        whole = re.sub(r"(?<=\|)\n {20,}(?=\S)", "", output_of(program, command, "--help"))
        whole = re.sub(r"\n {20,}(?=\S)", " ", whole)
        for line in whole.splitlines():
            if (found := KEY.match(line)) and found[1] not in NOT_KEYS:
                meanings.setdefault(found[1], found[2])
                defaults[found[1], command] = found[3] or "null"
    if not meanings:
        sys.exit(f"{program}: found no key in its --help")
    rows = [["key", "is", *(f"`{c}`" for c in commands)], ["---"] * (2 + len(commands))]
    for key, meaning in meanings.items():
        rows.append([f"`{key}`", meaning.replace("|", " \\| "),
                     *(defaults.get((key, c), "–") for c in commands)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("page", type=Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    text = arguments.page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    old, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{arguments.page}: expected {BEGIN.strip()} and {END.strip()}")
    table = table_of(arguments.program.resolve())
    if arguments.write:
        arguments.page.write_text(before + begin + table + end + after, encoding="utf-8")
    elif old != table:
        different = sorted(set(old.splitlines()) ^ set(table.splitlines()))
        print(f"{arguments.page}: the table of keys is not the program's; run\n"
              f"  {' '.join(sys.argv)} --write\n" + "\n".join(different))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
