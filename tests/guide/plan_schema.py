#!/usr/bin/env python3
"""What `capstan plan --json` prints, held against docs/plan.schema.json, and with --search,
--machines and --compare against schemas of their own.

  plan_schema.py PROGRAM SCHEMA...            plans of many kinds; together they have every key of each schema
  plan_schema.py --self-test plan.schema.json shows that wrong documents and keywords are found

Only the keywords of JSON Schema that the schema uses are known; any other is an error.
"""

import argparse
import copy
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

NOTES = {"$schema", "$defs", "title", "description"}  # no value can be wrong by these
KEYWORDS = {"$ref", "type", "enum", "minimum", "properties", "required", "additionalProperties", "items"}
TYPES = {"object": lambda v: isinstance(v, dict), "array": lambda v: isinstance(v, list),
         "string": lambda v: isinstance(v, str), "boolean": lambda v: isinstance(v, bool),
         "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
         "integer": lambda v: TYPES["number"](v) and float(v).is_integer()}


class SchemaError(Exception):
    pass


class Validator:
    def __init__(self, schema: dict):
        self.schema = schema
        self.seen: set[tuple[str, str]] = set()  # keys of documents: where the schema has them
        self.keys: set[tuple[str, str]] = set()  # all that it has
        self.look_at(schema, "#")

    def look_at(self, schema: dict, where: str):
        """Refuses what this validator does not know, used or not."""
        if unknown := set(schema) - NOTES - KEYWORDS:
            raise SchemaError(f"{where}: unknown keywords {sorted(unknown)}")
        if (name := schema.get("type", "object")) not in TYPES:
            raise SchemaError(f"{where}: unknown type {name}")
        more = schema.get("additionalProperties", False)
        if isinstance(more, dict):
            self.look_at(more, f"{where}/additionalProperties")
        elif more is not False:
            raise SchemaError(f"{where}: additionalProperties may only be false or a schema")
        if "$ref" in schema:
            self.target(schema["$ref"])
        properties = schema.get("properties", {})
        if lost := set(schema.get("required", [])) - set(properties):
            raise SchemaError(f"{where}: required, but no property: {sorted(lost)}")
        for key, inner in properties.items():
            self.keys.add((where, key))
            self.look_at(inner, f"{where}/{key}")
        for name, inner in schema.get("$defs", {}).items():
            self.look_at(inner, f"#/$defs/{name}")
        if "items" in schema:
            self.look_at(schema["items"], f"{where}/items")

    def target(self, ref: str) -> dict:
        prefix, _, name = ref.rpartition("/")
        if prefix != "#/$defs" or name not in self.schema.get("$defs", {}):
            raise SchemaError(f"{ref}: there is no such definition")
        return self.schema["$defs"][name]

    def faults(self, value, schema: dict | None = None, where: str = "#", at: str = "plan") -> list[str]:
        """What is wrong with a value; `where` it is in the schema, and `at` in the document."""
        if schema is None:
            schema = self.schema
        bad = []
        if "$ref" in schema:
            bad += self.faults(value, self.target(schema["$ref"]), schema["$ref"], at)
        if "type" in schema and not TYPES[schema["type"]](value):
            return bad + [f"{at}: {value!r:.60} is no {schema['type']}"]
        if "enum" in schema and not any(type(value) is type(e) and value == e for e in schema["enum"]):
            bad.append(f"{at}: {value!r:.60} is none of {schema['enum']}")
        if "minimum" in schema and TYPES["number"](value) and not value >= schema["minimum"]:
            bad.append(f"{at}: {value} is less than {schema['minimum']}")
        if isinstance(value, dict):
            bad += self.faults_of_object(value, schema, where, at)
        if isinstance(value, list) and "items" in schema:
            for i, item in enumerate(value):
                bad += self.faults(item, schema["items"], f"{where}/items", f"{at}[{i}]")
        return bad

    def faults_of_object(self, value: dict, schema: dict, where: str, at: str) -> list[str]:
        properties = schema.get("properties", {})
        bad = [f"{at}: has no {key}" for key in schema.get("required", []) if key not in value]
        for key, inner in value.items():
            if key in properties:
                self.seen.add((where, key))
                bad += self.faults(inner, properties[key], f"{where}/{key}", f"{at}.{key}")
            elif more := schema.get("additionalProperties"):
                bad += self.faults(inner, more, f"{where}/additionalProperties", f"{at}.{key}")
            elif more is False:
                bad.append(f"{at}: unknown key {key}")
        return bad


# Round figures, of no machine.
CALIBRATION = {
    "format": "capstan calibration", "version": 3, "name": "a GPU", "accelerator": "cuda",
    "date": "2026-08-05", "seconds_per_call": 3e-06, "bytes_per_second": 4e12,
    "to_device_bytes_per_second": 5e10, "to_host_bytes_per_second": 5e10,
    "types": {"bf16": {
        "flops_per_second": {"product": 7e14, "head": 6e14, "attention": 4e14, "attention_backward": 3e14},
        "bytes_per_second": {"elementwise": 3e12, "optimizer": 3e12}}}}
RUN = {"version": 1, "date": "2026-08-06T12:00:00Z", "device": "a GPU",
       "calibration": "a GPU of 2026-08-05", "from_data_sheet": False, "model": "m",
       "precision": "bf16-mixed", "mesh": "one rank", "ranks": 1, "steps": 9, "predicted_step_seconds": 1.0, "measured_step_seconds": 1.1,
       "predicted_run_seconds": 9.0, "measured_run_seconds": 9.9, "predicted_bytes": 9, "measured_bytes": 9}
TUNE = ["finetune_full", "Llama-3.2-1B"]
BATCH = ["--train.max_seq_length", "512", "--train.global_batch_size", "8", "--train.micro_batch_size", "2"]
DATA = ["--data.json_path", "data.json"]
TINY = ["--model.hidden_size", "64", "--model.intermediate_size", "128", "--model.num_hidden_layers", "2",
        "--train.max_seq_length", "64", "--train.max_steps", "3"]
# What it is, the exit code, and the words after `capstan plan`.
PLANS = [
    ("8 GPUs", 0, [*TUNE, *BATCH, "--gpu", "h100-sxm", "--gpus", "8", "--host-memory", "1TiB",
                   "--train.max_steps", "9000"]),
    ("Arm", 0, [*TUNE, *BATCH, "--gpu", "gh200-96", "--gpus", "2"]),
    ("does not fit", 3, [*TUNE, *BATCH, "--train.max_seq_length", "2048", "--gpu", "v100-16"]),
    ("does not fit twice", 3, ["finetune", "Llama-3.1-70B", *BATCH, "--gpu", "a10"]),
    ("pipeline", 0, ["pretrain", "Llama-3.2-1B", *BATCH, "--gpu", "a100-80-sxm", "--gpus", "4", "--nodes",
                     "2", "--pipeline_parallel", "4", "--html", "page.html"]),
    ("QLoRA, deadline", 0, ["finetune", "MicroLlama", *DATA, *BATCH, "--quantize", "bnb.nf4", "--deadline",
                            "2 days", "--budget", "100", "--html", "page.html"]),
    ("CPU, text", 0, ["pretrain", "--data.train_data_path", "text.txt", *TINY, "--accelerator", "cpu"]),
    ("CPU, data", 0, [*TUNE, *DATA, *BATCH, "--accelerator", "cpu", "--memory", "64GiB"]),
    ("calibrated, corrected", 0, [*TUNE, *BATCH, "--accelerator", "cuda", "--memory", "80GiB", "--precision",
                                  "bf16-mixed", "--calibration", "gpu.json", "--correct"]),
]

MACHINES = [
    ("machines", 0, [*TUNE, *BATCH, "--machines", "2xa100-40-sxm,2x8xh100-sxm,t4", "--train.max_steps", "5"]),
]
SETTINGS = [
    ("compare", 0, ["--compare", "short.yaml", "long.yaml", *TUNE, *BATCH[2:], "--gpu", "h100-sxm",
                    "--train.max_steps", "5"]),
]
SEARCHES = [
    ("search", 0, [*TUNE, *BATCH, "--gpu", "h100-sxm", "--gpus", "2", "--search", "--allow", "lora,fewer"]),
    ("search, does not fit", 3, ["finetune_full", "Llama-3.1-70B", *BATCH, "--gpu", "a10", "--gpus", "2", "--search"]),
]
KINDS = {"capstan plan --json": PLANS, "capstan plan --search --json": SEARCHES,
         "capstan plan --machines --json": MACHINES, "capstan plan --compare --json": SETTINGS}


def prepare(folder: Path):
    records = [{"instruction": "Say it again. " * (i % 7 + 1), "output": "Again. " * (i + 1)}
               for i in range(40)]
    (folder / "data.json").write_text(json.dumps(records))
    (folder / "short.yaml").write_text("train.max_seq_length: 256\n")
    (folder / "long.yaml").write_text("train.max_seq_length: 512\n")
    (folder / "text.txt").write_text("A line of plain text, to be read byte by byte.\n" * 100)
    (folder / "gpu.json").write_text(json.dumps(CALIBRATION))
    (folder / "cache").mkdir()
    (folder / "cache" / "history.jsonl").write_text((json.dumps(RUN) + "\n") * 3)


def check(program: Path, schema: dict) -> list[str]:
    validator, bad = Validator(schema), []
    plans = KINDS[schema["title"]]
    with tempfile.TemporaryDirectory(prefix="capstan_plans_") as scratch:
        folder = Path(scratch)
        prepare(folder)
        env = dict(os.environ, CAPSTAN_CACHE=str(folder / "cache"), CUDA_VISIBLE_DEVICES="")
        for name, code, words in plans:
            done = subprocess.run([program, "plan", *words, "--json"], cwd=folder, env=env, text=True,
                                  capture_output=True, encoding="utf-8")
            if done.returncode != code:
                bad.append(f"{name}: exit code {done.returncode}, expected {code}\n{done.stderr[-500:]}")
                continue
            texts = {name: done.stdout}
            if "--html" in words:
                page = (folder / "page.html").read_text(encoding="utf-8")
                found = re.search(r'<script type="application/json" id="plan">(.*?)</script>', page, re.S)
                texts[f"{name}, in its page"] = found[1] if found else "null"
            for where, text in texts.items():
                bad += [f"{where}: {fault}" for fault in validator.faults(json.loads(text))]
    if not bad:
        bad = [f"{where}: no plan has {key}" for where, key in sorted(validator.keys - validator.seen)]
    return bad


# The least that a plan can be, and what makes it wrong: a path, and the value there (None: without).
LEAST = {
    "format": "capstan-plan-1", "fits": True, "verdict": "fits", "command": "capstan plan",
    "model": {"name": "m", "parameters": 10, "trainable": 10},
    "run": {"device": "cpu", "gpus": 1, "machines": 1, "mesh": "one rank", "precision": "32-true", "products": "f32",
            "activations": "none", "optimizer": "AdamW", "micro_batch_size": 1, "global_batch_size": 1,
            "sequence": 8},
    "memory": {"peak_bytes": 100, "by_category": {"weights": 40}, "peak_phase": "step", "peak_buffer": "",
               "phases": [{"phase": "step", "peak_bytes": 100}]},
    "activations": "none", "batch": {"samples": 1, "tokens": 8, "longest": 8},
    "largest": {"micro_batch_size": 1, "max_seq_length": 8}, "checkpoint_bytes": 1, "fits_with": [],
    "basis": "data", "needs": {"checkpoint_bytes": 1, "checkpoints": 1, "stored_bytes": 1, "disk_bytes": 2, "copy_bytes": 20}}
WRONG = [(["format"], "capstan-plan-2"), (["fits"], 1), (["fits"], "true"), (["needs"], None),
         (["more"], 1), (["model", "parameters"], 1.5), (["model", "parameters"], True),
         (["memory", "peak_bytes"], -1), (["memory", "peak_bytes"], "100"),
         (["memory", "by_category", "wights"], 4), (["memory", "phases", 0, "phase"], None),
         (["memory", "phases"], {}), (["run", "device"], "tpu"), (["fits_with"], ["precision"]),
         (["time"], {"step_seconds": 1}), (["basis"], 7)]
BAD_SCHEMAS = [{"type": "object", "maximum": 1}, {"properties": {"a": {"pattern": "x"}}}, {"type": "int"},
               {"items": {"$ref": "#/$defs/a"}}, {"additionalProperties": True},
               {"required": ["a"]}, {"$defs": {"a": {"anyOf": []}}}]


def changed(path: list, value) -> dict:
    document = copy.deepcopy(LEAST)
    place = document
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return document


def self_test(schema: dict) -> int:
    validator = Validator(schema)
    bad = [f"not right: {fault}" for fault in validator.faults(LEAST)]
    bad += [f"not found: {path} {value!r}" for path, value in WRONG
            if not validator.faults(changed(path, value))]
    for wrong in BAD_SCHEMAS:
        try:
            Validator(wrong)
            bad.append(f"not refused: {wrong}")
        except SchemaError:
            pass
    texts = Validator({"additionalProperties": {"type": "string"}})
    bad += ["not found: a value that is no text"] * (not texts.faults({"a": 1}))
    bad += [f"not right: {fault}" for fault in texts.faults({"a": "1"})]
    print("\n".join(bad) or "wrong documents and unknown keywords are found")
    return 1 if bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("program", type=Path, nargs="?")
    parser.add_argument("schemas", type=Path, nargs="+")
    arguments = parser.parse_args()
    schemas = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in arguments.schemas}
    if arguments.self_test:
        return max(self_test(schema) for schema in schemas.values())
    if arguments.program is None:
        parser.error("expected a program")
    failed = False
    for name, schema in schemas.items():
        bad = check(arguments.program.resolve(), schema)
        print("\n".join(bad) or f"{len(KINDS[schema['title']])} plans are as {name} says")
        failed = failed or bool(bad)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
