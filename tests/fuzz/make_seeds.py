#!/usr/bin/env python3
"""Writes seed corpora for the fuzzers under FOLDER/corpus: make_seeds.py FOLDER"""

import io
import json
import sys
import zipfile
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

# Records of instructions and conversations, as lists and as lines.
RECORDS = [
    {"instruction": "do", "input": "this", "output": "done \u00e9 \\"},
    {"instruction": "do", "input": None, "output": ""},
    {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"},
                  {"role": "assistant", "content": "a"}]},
    {"conversations": [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}]},
    {"conversations": ["u", "a"]},
    {"text": "once", "meta": {"id": 1}},
    {"system": "s", "question": "q", "context": "c", "answer": "a"},
    {"prompt": [{"role": "user", "content": [{"type": "text", "text": "u"}]}],
     "completion": [{"role": "assistant", "content": "a", "tool_calls": None}], "tools": "[]"},
    {"prompt": "q", "chosen": [{"role": "assistant", "content": "a"}], "rejected": []},
]


def make_record_seeds(folder):
    records = folder / "corpus/jsonl"
    records.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(record, ensure_ascii=False) for record in RECORDS]
    for i, line in enumerate(lines):
        (records / f"line{i}").write_text(line, encoding="utf-8")
    (records / "lines").write_text("\n\r\n".join(lines), encoding="utf-8")
    (records / "list").write_text("[\n" + ",\n ".join(lines) + "]\n", encoding="utf-8")
    (records / "wrapped").write_text('{"n": [1],\n "data": [' + ",\n ".join(lines) + '], "m": 2}\n',
                                     encoding="utf-8")
    write_seeds(folder, "csv", [b",a,b\r\n0,\"x, \"\"y\"\"\",\n\n1,\"two\nlines\",z", b"a\n\"\"\n", b"\"x\"y"])


def write_seeds(folder, name, seeds):
    corpus = folder / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for i, seed in enumerate(seeds):
        (corpus / f"seed{i}").write_bytes(seed)


def make_recipe_seeds(folder):
    texts = ["", "seed: 3\n", "train:\n  max_steps: 5\n  max_norm:\nprecision: bf16-true\n",
             "optimizer:\n  class_path: torch.optim.AdamW\n  init_args:\n    lr: 0.0002\n"
             "    betas:\n      - 0.9\n      - 0.95\n",
             "data:\n  class_path: litgpt.data.Alpaca2k\n  init_args:\n    mask_prompt: false\n",
             "model_name: x\nmodel_config:\n  name: x\n  hf_config: {}\n  n_layer: 2\n  n_head: 4\n"
             "  n_embd: 32\n  intermediate_size: 64\n  vocab_size: 100\n  bias: false\n",
             "data: LitData\ndata.split_names: [a, b]\n---\nseed: 3\n",
             "a: &a\n  b: *a\n", "lora_r: 32\nquantize: bnb.nf4\neval.evaluate_example: 3\n"]
    write_seeds(folder, "recipe", [text.encode() for text in texts])


def make_litdata_seeds(folder):
    index = {"chunks": [{"chunk_bytes": 24, "chunk_size": 1, "dim": 3, "filename": "chunk-0-0.bin"}],
             "config": {"compression": None, "data_format": ["no_header_tensor:16"], "encryption": None}}
    seeds = [b"\0" + json.dumps(index).encode()]
    for kind, size in (1, 2), (2, 4), (3, 8):
        items = [[256, 7, 257], [], [256, 257]]
        ends = [20]
        for item in items:
            ends.append(ends[-1] + size * len(item))
        header = [len(items), *ends]
        seeds.append(bytes([kind]) + b"".join(n.to_bytes(4, "little") for n in header)
                     + b"".join(t.to_bytes(size, "little") for item in items for t in item))
    write_seeds(folder, "litdata", seeds)


def make_pickle_seeds(folder):
    pickles = Path(__file__).resolve().parents[1] / "checkpoint" / "pickles"
    files = [p.read_bytes() for p in sorted(pickles.rglob("*")) if p.is_file()]
    seeds = [b"\0" + data for data in files]
    for data in files:
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                seeds += [b"\1" + archive.read(n) for n in archive.namelist()
                          if n.endswith("data.pkl")]
        except (zipfile.BadZipFile, NotImplementedError, OSError):
            pass  # the damaged ones are seeds as they are
    write_seeds(folder, "pickle", seeds)


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
    make_tokenizer_seeds(folder)
    make_record_seeds(folder)
    make_recipe_seeds(folder)
    make_litdata_seeds(folder)
    make_pickle_seeds(folder)


def make_tokenizer_seeds(folder):
    """The tiny tokenizers, whole and with most of their tokens taken out."""
    files, models = folder / "corpus/tokenizer_json", folder / "corpus/tokenizer_model"
    for path in files, models:
        path.mkdir(parents=True, exist_ok=True)
    tokens = GOLDEN.parent / "golden_tokens"
    for path in tokens.glob("*/tokenizer.json"):
        name, whole = path.parent.name, json.loads(path.read_text(encoding="utf-8"))
        (files / name).write_bytes(path.read_bytes())
        model = whole["model"]
        model["merges"] = model["merges"][:6]
        named = {t for merge in model["merges"] for t in (*merge, "".join(merge))}
        named |= {t["content"] for t in whole["added_tokens"]} | set("abc </|<0x0A>")
        model["vocab"] = {t: i for t, i in model["vocab"].items() if t in named}
        (files / f"{name}_small").write_text(json.dumps(whole, ensure_ascii=False), encoding="utf-8")
    for path in tokens.glob("*/tokenizer.model"):
        (models / path.parent.name).write_bytes(path.read_bytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
