#!/usr/bin/env python3
"""Checks the tree against the rules that no compiler checks.

  - A folder of src/ includes itself and the folders before it in LAYERS, never those after it.
  - No file depends on itself: a header and the source of its name count as one.
  - CUDA's headers appear in the folders of CUDA code only.
  - What signals do to the process is set in the folders of programs only: the rest is a library.
  - JSON is read by base/json_text only, which bounds how deep it is nested.
  - tests/ has a folder for layers (and for a few shared things), and no other.
  - Nothing that is written for readers mentions the machine it was written on.

Prints file:line for each violation and exits with 1 if there is any. `--self-test` runs the same
checks on made-up trees with one mistake each, to show that they can fail.
"""

import re
import sys
import tempfile
from pathlib import Path

# Each may include those before it. A file belongs to the longest of these that it lies under.
LAYERS = ("base site cost hub tensor ops machine comm recipe model optim data/tokenizer data/dataset data/records data/prompt "
          "data/batch data checkpoint parallel report infer train plan run bench doctor launch cli").split()
CUDA_FOLDERS = ("src/tensor/cuda/", "src/ops/cuda/", "src/comm/nccl/")
CUDA_HEADER = re.compile(r"(.*/)?(cuda|cublas|cudnn|nccl)[^/]*$|cuda/.*")
# Not those that only block signals of a thread of their own.
SIGNAL_FOLDERS = ("src/cli/", "src/launch/")
SIGNAL_CALL = re.compile(r"\b(struct\s+sigaction|sigaction\s*\(|(bsd_|sysv_)?signal\s*\(\s*SIG|sigset\s*\()")
JSON_READER = "src/base/json_text.cpp"
READS_JSON = re.compile(r"json\s*::\s*(parse|sax_parse|accept|from_\w+)\s*\(|\"_json\b")
TEST_FOLDERS = {*(layer.split("/")[0] for layer in LAYERS), "fuzz", "golden", "golden_adamw8bit", "golden_chat", "golden_finetune", "golden_lora",
                "golden_tokens", "guide", "house", "support"}
SOURCE_SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
TEXT_SUFFIXES = {*SOURCE_SUFFIXES, ".md", ".py", ".sh", ".txt", ".cmake", ".json", ".yaml", ".svg"}
TEXT_FOLDERS = ("src", "tests", "bench", "cmake", "docs", "recipes", "tools", ".ci")
# Written in two halves, so that this file passes its own check.
FORBIDDEN = ("/wo" "rk/", "this " "session")
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')


def lines_of(path):
    return enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)


def layer_of(path):
    """The layer that a path in src/ lies under, or None."""
    under = [layer for layer in LAYERS if path.startswith(layer + "/")]
    return max(under, key=len, default=None)


def check_include(name, layer, quote, header):
    """Says what is wrong with one #include of a file in `layer`, or None."""
    if quote == "<" and CUDA_HEADER.fullmatch(header) and not name.startswith(CUDA_FOLDERS):
        return f"<{header}> belongs under {', '.join(CUDA_FOLDERS)} only"
    if quote == "<":
        return None
    target = layer_of(header)
    if target is None:
        return f'"{header}" does not begin with a layer: include files by their path in src/'
    if LAYERS.index(target) > LAYERS.index(layer):
        return f'{layer} includes "{header}", but {target} comes after {layer}'
    return None


def check_sources(root):
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in SOURCE_SUFFIXES:
            continue
        name = path.relative_to(root).as_posix()
        layer = layer_of(name.removeprefix("src/"))
        if layer is None:
            yield f"{name}:1: in none of the layers, which are {' '.join(LAYERS)}"
            continue
        for number, line in lines_of(path):
            include = INCLUDE.match(line)
            wrong = include and check_include(name, layer, *include.groups())
            if wrong:
                yield f"{name}:{number}: {wrong}"
            if SIGNAL_CALL.search(line) and not name.startswith(SIGNAL_FOLDERS):
                yield f"{name}:{number}: handlers of signals belong under {', '.join(SIGNAL_FOLDERS)} only"


def check_json(root):
    for path in sorted((root / "src").rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.suffix not in SOURCE_SUFFIXES or name == JSON_READER:
            continue
        for number, line in lines_of(path):
            if READS_JSON.search(line):
                yield f"{name}:{number}: reads JSON without base/json_text.h, which bounds its depth"


def dependencies(root):
    """For each module (a path in src/ without its suffix) the modules that its files include, with the place.

    That a front end calls the devices below it is left out: they implement what it declares.
    """
    graph = {}
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in SOURCE_SUFFIXES:
            continue
        name = path.relative_to(root / "src").with_suffix("").as_posix()
        module, folder = graph.setdefault(name, {}), name.rpartition("/")[0]
        for number, line in lines_of(path):
            include = INCLUDE.match(line)
            if not include or include.group(1) == "<":
                continue
            target = Path(include.group(2)).with_suffix("").as_posix()
            if path.suffix != ".cpp" or not target.startswith((folder + "/cpu/", folder + "/cuda/")):
                module.setdefault(target, f"{path.relative_to(root).as_posix()}:{number}")
    return graph


def check_cycles(root):
    graph = dependencies(root)
    done, path = set(), []

    def visit(module):
        path.append(module)
        for target, place in graph[module].items():
            if target == module or target not in graph or target in done:
                continue
            if target in path:
                circle = path[path.index(target):] + [target]
                yield f"{place}: a circle of includes: {' -> '.join(circle)}"
            else:
                yield from visit(target)
        done.add(path.pop())

    for module in graph:
        if module not in done:
            yield from visit(module)


def check_tests(root):
    for path in sorted((root / "tests").glob("*/")):
        if path.is_dir() and path.name not in TEST_FOLDERS:
            yield f"tests/{path.name}:1: tests/ mirrors src/, and src/ has no such layer"


def check_words(root):
    files = [p for p in root.glob("*") if p.suffix in TEXT_SUFFIXES or p.name == "do"]
    for folder in TEXT_FOLDERS:
        files += [p for p in (root / folder).rglob("*")
                  if p.suffix in TEXT_SUFFIXES or folder == ".ci"]
    for path in sorted(p for p in files if p.is_file()):
        for number, line in lines_of(path):
            for word in FORBIDDEN:
                if word in line.lower():
                    yield f"{path.relative_to(root).as_posix()}:{number}: says '{word}'"


def check(root):
    return [*check_sources(root), *check_json(root), *check_cycles(root), *check_tests(root), *check_words(root)]


# Made-up trees: what the files hold, and where a violation must be found (None: nowhere).
SELF_TESTS = [
    ({"src/model/a.cpp": '#include <vector>\n#include "base/b.h"\n#include "model/c.h"\n',
      "src/README.md": "", "tests/model/a_test.cpp": ""}, None),
    ({"src/base/a.h": '#pragma once\n#include "tensor/b.h"\n'}, "src/base/a.h:2:"),
    ({"src/ops/cpu/a.cpp": '\n  #  include "model/b.h"\n'}, "src/ops/cpu/a.cpp:2:"),
    ({"src/ops/a.cpp": '#include "b.h"\n'}, "src/ops/a.cpp:1:"),
    ({"src/utils/a.h": ""}, "src/utils/a.h:1:"),
    ({"src/data/tokenizer/a.h": '#include "data/b.h"\n'}, "src/data/tokenizer/a.h:1:"),
    ({"src/data/a.h": '#include "data/tokenizer/b.h"\n'}, None),
    ({"src/model/a.h": '#include "model/b.h"\n', "src/model/b.h": "", "src/model/b.cpp": '#include "model/a.h"\n'},
     "src/model/b.cpp:1:"),
    ({"src/model/a.h": "", "src/model/a.cpp": '#include "model/a.h"\n#include "model/b.h"\n',
      "src/model/b.h": '#include "model/a.h"\n'}, "src/model/b.h:1:"),
    ({"src/ops/a.h": "", "src/ops/a.cpp": '#include "ops/cpu/a.h"\n', "src/ops/cpu/a.h": '#include "ops/a.h"\n'}, None),
    ({"src/model/a.h": "", "src/model/a_part.cpp": '#include "model/a.h"\n'}, None),
    ({"src/ops/a.cpp": "#include <cuda_runtime.h>\n"}, "src/ops/a.cpp:1:"),
    ({"src/ops/a.cpp": "#include <cublasLt.h>\n"}, "src/ops/a.cpp:1:"),
    ({"src/comm/a.cpp": "#include <nccl.h>\n"}, "src/comm/a.cpp:1:"),
    ({"src/train/a.cpp": "#include <cuda/std/array>\n"}, "src/train/a.cpp:1:"),
    ({"src/ops/cuda/a.cu": '#include <cuda_bf16.h>\n#include "tensor/queue.h"\n'}, None),
    ({"src/comm/nccl/a.cpp": "#include <nccl.h>\n"}, None),
    ({"src/run/a.cpp": "  std::signal(SIGPIPE, SIG_IGN);\n"}, "src/run/a.cpp:1:"),
    ({"src/run/a.cpp": "struct sigaction action {};\n"}, "src/run/a.cpp:1:"),
    ({"src/base/a.cpp": "\n::sigaction(SIGTERM, nullptr, &before);\n"}, "src/base/a.cpp:2:"),
    ({"src/run/a.cpp": "stop.signal();\nStopped(run.signal());\npthread_sigmask(SIG_SETMASK, &all, &before);\n",
      "src/cli/a.cpp": "std::signal(SIGPIPE, SIG_IGN);\n"}, None),
    ({"src/hub/a.cpp": "auto v = parse_json(text, name);\nauto w = nlohmann::json::object();\n"}, None),
    ({"src/hub/a.cpp": "\nauto v = nlohmann::json::parse(text, nullptr, false);\n"}, "src/hub/a.cpp:2:"),
    ({"src/hub/a.cpp": "auto v = ordered_json::parse(text);\n"}, "src/hub/a.cpp:1:"),
    ({"src/base/json_text.cpp": "json::sax_parse(text, &handler);\n"}, None),
    ({"tests/misc/a_test.cpp": ""}, "tests/misc:1:"),
    ({"tests/golden/values.json": ""}, None),
    ({"docs/a.md": "one\ntwo " + FORBIDDEN[0] + "x\n"}, "docs/a.md:2:"),
    ({"src/base/a.cpp": "// " + FORBIDDEN[1].title() + "\n"}, "src/base/a.cpp:1:"),
    ({"do": "cd " + FORBIDDEN[0] + "\n"}, "do:1:"),
]


def self_test():
    failed = 0
    for files, expected in SELF_TESTS:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            found = check(Path(folder))
        right = (not found) if expected is None else (
            len(found) == 1 and found[0].startswith(expected))
        if not right:
            failed += 1
            print(f"expected {expected or 'no violation'}, found {found or 'none'}: {files}")
    print(f"self-test: {len(SELF_TESTS) - failed} passed, {failed} failed")
    return 1 if failed else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if arguments:
        print("usage: check_layers.py [--self-test]", file=sys.stderr)
        return 2
    violations = check(Path(__file__).resolve().parent.parent)
    for violation in violations:
        print(violation)
    print(f"layers: {len(violations)} violation(s)" if violations else "layers: in order")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
