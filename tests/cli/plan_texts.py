#!/usr/bin/env python3
"""Holds what `capstan plan` answers, as text and as JSON, against the answers kept in plans.json.gz.

  plan_texts.py PROGRAM            every kept plan is answered in the same words and numbers
  plan_texts.py PROGRAM --write    keeps today's answers, of plans drawn from a fixed seed
  plan_texts.py --self-test        shows that differences are found

A change that promises to leave plans as they are must pass without --write. A change that means to
alter some of them shows which: run it before writing, and read the differences.
"""

import argparse
import concurrent.futures
import difflib
import gzip
import json
import math
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KEPT = Path(__file__).with_name("plans.json.gz")
COUNT = 200
SEED = 2026
SLOWEST = 1    # seconds that both answers of a kept plan took at most
CLOSE = 1e-9   # processors round differently

GPUS = ["t4", "l4", "a10", "rtx3090", "rtx4090", "v100-32", "a100-40-sxm", "a100-80-sxm", "h100-sxm", "h200", "b200"]
MODELS = ["TinyLlama-1.1B", "Llama-3.2-1B", "Llama-3.2-3B", "Llama-3.1-8B", "Llama-3.1-70B", "Qwen2.5-7B",
          "Qwen2.5-14B", "Qwen3-0.6B", "Qwen3-8B"]
BY_HAND = [
    "Llama-3.1-8B --machines 8xa100-40-sxm,4xrtx4090,1xt4",
    "finetune_lora Qwen2.5-7B --machines 2xrtx3090,1xh100-sxm --train.max_seq_length 1024",
    "finetune_lora Llama-3.1-8B --budget 500 --train.max_tokens 1000000000 --train.max_seq_length 2048",
    "pretrain TinyLlama-1.1B --gpu a100-40-sxm --devices 8 --search --train.max_tokens 1000000000",
    "finetune_full Llama-3.2-3B --gpu rtx4090 --devices 4 --search --train.max_seq_length 1024",
    "Llama-3.2-1B --gpu h101",
    "Llama-3.2-1B --gpu a100-80",
]


def draw_plan(draw: random.Random) -> list[str]:
    command = draw.choice(["pretrain", "finetune_full", "finetune_full", "finetune_lora", "finetune_lora"])
    on_cpu = draw.random() < 0.15
    keys = {"train.max_seq_length": draw.choice([512, 512, 1024, 2048, 4096]),
            "train.global_batch_size": draw.choice([16, 64]),
            "train.micro_batch_size": draw.choice([1, 1, 2, 4, "auto"])}
    if on_cpu:
        keys |= {"accelerator": "cpu", "memory": draw.choice(["16GiB", "64GiB"])}
    else:
        keys["gpu"] = draw.choice(GPUS)
    devices = draw.choice([1, 1, 2, 4, 8])
    if devices > 1:
        keys["devices"] = devices
        if draw.random() < 0.25 and not on_cpu:
            keys["num_nodes"] = 2
        if draw.random() < 0.6:
            keys["strategy"] = draw.choice(["ddp", "zero1", "zero2", "zero3", "hybrid", "zero3_offload"])
        for share in ["tensor_parallel", "pipeline_parallel", "context_parallel"]:
            if draw.random() < 0.25:
                keys[share] = 2
        if "pipeline_parallel" in keys:
            keys["pipeline_schedule"] = draw.choice(["1f1b", "interleaved", "zero_bubble"])
    if draw.random() < 0.5:
        keys["activations"] = draw.choice(["none", "selective", "block", "block:3", "auto", "auto"])
    if draw.random() < 0.5:
        keys["precision"] = draw.choice(["32-true", "bf16-true", "bf16-mixed", "16-mixed", "fp8-mixed"])
    if command == "finetune_lora" and draw.random() < 0.5:
        keys["quantize"] = draw.choice(["bnb.nf4", "bnb.nf4-dq", "bnb.int8-training"])
    if command != "finetune_lora" and draw.random() < 0.3:
        keys["optimizer"] = draw.choice(["SGD", "AdamW8bit", "PagedAdamW8bit"])
    if command == "pretrain":
        keys["train.max_tokens"] = 10**draw.choice([8, 9, 10])
    return [command, draw.choice(MODELS), *(f"--{key}={value}" for key, value in keys.items())]


def answer_of(program: str, words: list[str]) -> dict:
    """What the program answers, in a folder and an environment of its own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {"PATH": os.environ["PATH"], "HOME": folder, "CAPSTAN_CACHE": folder, "OMP_NUM_THREADS": "1",
                       "CUDA_VISIBLE_DEVICES": "", "LC_ALL": "C.UTF-8"}

        def run(*more: str) -> subprocess.CompletedProcess:
            return subprocess.run([program, "plan", *words, *more], capture_output=True, text=True, cwd=folder,
                                  env=environment, check=False)

        text, data = run(), run("--json")
        return {"words": words, "code": text.returncode, "text": text.stdout, "messages": text.stderr,
                "json": json.loads(data.stdout) if data.stdout else None}


def differences(kept, found, where: str = "json") -> list[str]:
    """Where two documents differ; numbers with a fraction may, by rounding."""
    if isinstance(kept, float) and isinstance(found, (int, float)):
        return [] if math.isclose(kept, found, rel_tol=CLOSE, abs_tol=CLOSE) else [f"{where}: {kept}, now {found}"]
    if isinstance(kept, dict) and isinstance(found, dict):
        return [line for key in sorted(kept.keys() | found.keys())
                for line in ([f"{where}.{key}: {'new' if key in found else 'gone'}"]
                             if (key in kept) != (key in found) else differences(kept[key], found[key], f"{where}.{key}"))]
    if isinstance(kept, list) and isinstance(found, list) and len(kept) == len(found):
        return [line for i, pair in enumerate(zip(kept, found)) for line in differences(*pair, f"{where}[{i}]")]
    return [] if kept == found else [f"{where}: {kept}, now {found}"]


def compare(kept: dict, found: dict) -> list[str]:
    lines = [] if kept["code"] == found["code"] else [f"exit code: {kept['code']}, now {found['code']}"]
    for part in ["text", "messages"]:
        lines += list(difflib.unified_diff(kept[part].splitlines(), found[part].splitlines(), "kept", "now", lineterm="",
                                           n=1))
    return lines + differences(kept["json"], found["json"])


def needs_this_machine(words: list[str]) -> bool:
    """The scratch memory of a CPU's products depends on the processor."""
    return "--accelerator=cpu" in words


def check(program: str) -> int:
    kept = json.loads(gzip.decompress(KEPT.read_bytes()))
    plans = [p for p in kept["plans"] if kept["machine"] == platform.machine() or not needs_this_machine(p["words"])]
    wrong = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for plan, found in zip(plans, pool.map(lambda p: answer_of(program, p["words"]), plans)):
            if lines := compare(plan, found):
                wrong += 1
                print("capstan plan", *plan["words"])
                print("\n".join("  " + line for line in lines[:40]))
    print(f"{len(plans)} plans, {wrong} answered differently")
    return 1 if wrong or len(plans) < COUNT // 2 else 0


def write(program: str) -> int:
    draw = random.Random(SEED)
    plans = [answer_of(program, line.split()) for line in BY_HAND]

    def timed(words: list[str]) -> tuple[dict, float]:
        begin = time.monotonic()
        return answer_of(program, words), time.monotonic() - begin

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        while len(plans) < COUNT:
            for answer, seconds in pool.map(timed, [draw_plan(draw) for _ in range(16)]):
                refused = answer["code"] == 2 and sum(p["code"] == 2 for p in plans) > COUNT // 10
                if not refused and seconds < SLOWEST and len(plans) < COUNT:
                    plans.append(answer)
    text = json.dumps({"machine": platform.machine(), "plans": plans}, ensure_ascii=False, separators=(",", ":"))
    KEPT.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    codes = [p["code"] for p in plans]
    print(f"{len(plans)} plans: {codes.count(0)} fit, {codes.count(3)} do not, {codes.count(2)} are refused")
    return 0


def self_test() -> int:
    kept = {"words": [], "code": 0, "text": "fits\n12 GiB\n", "messages": "",
            "json": {"bytes": 12, "seconds": 0.5, "rows": [1, 2], "why": None}}
    wrong = [({"code": 3}, {}), ({"text": "fits\n13 GiB\n"}, {}), ({"messages": "warning\n"}, {}), ({}, {"bytes": 13}),
             ({}, {"seconds": 0.5001}), ({}, {"rows": [1]}), ({}, {"rows": [1, 3]}), ({}, {"why": "x"}), ({}, {"more": 1})]
    for change, of_json in wrong:
        if not compare(kept, kept | change | {"json": kept["json"] | of_json}):
            print(f"not found: {change} {of_json}")
            return 1
    gone = kept | {"json": {key: value for key, value in kept["json"].items() if key != "why"}}
    same = kept | {"json": kept["json"] | {"seconds": 0.5 * (1 + 1e-12)}}
    return 0 if compare(kept, gone) and not compare(kept, same) and not compare(kept, kept) else 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    given = parser.parse_args()
    if given.self_test:
        sys.exit(self_test())
    program = str(Path(given.program).resolve())
    sys.exit(write(program) if given.write else check(program))


if __name__ == "__main__":
    main()
