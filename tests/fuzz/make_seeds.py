#!/usr/bin/env python3
"""Writes seed corpora for the fuzzers under FOLDER/corpus: make_seeds.py FOLDER"""

import json
import sys
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


# The number of data bytes, and the header: as safetensors_fuzz.cpp takes them.
HEADERS = [
    (0, {}),
    (0, {"__metadata__": {"format": "pt"}, "empty": tensor("F32", [0, 4], 0, 0)}),
    (12, {"a": tensor("BF16", [2, 3], 0, 12)}),
    (44, {"__metadata__": {"format": "pt", "é": "ü"}, "x": tensor("F32", [2, 2], 0, 16),
          "y.z": tensor("F16", [4], 16, 24), "scalar": tensor("F64", [], 24, 32),
          "ids": tensor("I32", [3], 32, 44)}),
    (13, {"i": tensor("I64", [1], 0, 8), "s": tensor("I16", [1], 8, 10), "b": tensor("I8", [1], 10, 11),
          "u": tensor("U8", [1], 11, 12), "t": tensor("BOOL", [1], 12, 13)}),
]


def main(folder):
    headers, configs = folder / "corpus/safetensors", folder / "corpus/config"
    for path in headers, configs:
        path.mkdir(parents=True, exist_ok=True)
    for i, (data_bytes, header) in enumerate(HEADERS):
        text = json.dumps(header, ensure_ascii=False).encode()
        (headers / f"header{i}").write_bytes(bytes([data_bytes + 1]) + text)
        whole = len(text).to_bytes(8, "little") + text + bytes(data_bytes)
        (headers / f"file{i}").write_bytes(b"\0" + whole)
    for config in GOLDEN.glob("*/config.json"):
        (configs / config.parent.name).write_bytes(config.read_bytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
