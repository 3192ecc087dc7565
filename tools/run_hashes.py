#!/usr/bin/env python3
"""Trains small models in many configurations and prints a hash of what each computed and planned.

usage: run_hashes.py CAPSTAN [--accelerator cpu|cuda] [--only WORD] [--jobs N]

A line has a configuration, hashes of its losses (with the norms of its gradients), its final weights,
its state half-way (moments and all) and its plans for both devices. A change that promises the same
bits is checked by the same lines before and after it, on one machine:

  tools/run_hashes.py before/capstan > before.txt
  tools/run_hashes.py after/capstan > after.txt
  diff before.txt after.txt
"""

import argparse
import concurrent.futures
import hashlib
import itertools
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

WORDS = "the model learns what the data say and nothing that they do not say about it".split()
STEPS = 4
# Shapes that differ in what the code does: grouped heads, tied weights, biases, norms within heads.
MODELS = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_key_value_heads": 2},
    "tied": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "num_key_value_heads": 4,
             "tie_word_embeddings": True},
    "qk": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 16},
}
SIZES = {"hidden_act": "silu", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3,
         "num_attention_heads": 4, "rms_norm_eps": 1e-5, "vocab_size": 259, "max_position_embeddings": 128,
         "tie_word_embeddings": False}


def configurations():
    """Names, the command, and its keys."""
    precisions = ["32-true", "bf16-true", "bf16-mixed", "fp8-mixed"]
    activations = ["none", "selective", "block", "block:1"]
    for precision, kept, optimizer, micro in itertools.product(
            precisions, activations, ["AdamW", "SGD", "AdamW8bit", "PagedAdamW8bit"], [2, 6]):
        keys = {"precision": precision, "activations": kept, "optimizer": optimizer, "train.micro_batch_size": micro}
        if optimizer == "SGD":
            keys["optimizer.momentum"] = 0.9
        yield f"full {precision} {kept} {optimizer} 6/{micro}", "llama", "pretrain", keys
    for model, precision, packed, micro in itertools.product(["tied", "qk"], precisions, ["true", "false"], [2, 6]):
        yield (f"full {model} {precision} packed={packed} 6/{micro}", model, "pretrain",
               {"precision": precision, "data.packed": packed, "train.micro_batch_size": micro})
    yield ("full 32-true high", "llama", "pretrain", {"precision": "32-true", "matmul_precision": "high"})
    yield ("full bf16-true stochastic", "llama", "pretrain",
           {"precision": "bf16-true", "optimizer.rounding": "stochastic", "train.micro_batch_size": 2})
    for precision, kept, quantize, dropout, micro in itertools.product(
            precisions[:3], ["none", "block"], ["null", "bnb.nf4", "bnb.nf4-dq", "bnb.int8-training"], [0, 0.1], [2, 6]):
        keys = {"precision": precision, "activations": kept, "quantize": quantize, "lora_dropout": dropout,
                "train.micro_batch_size": micro, "lora_mlp": "true", "lora_projection": "true", "lora_key": "true"}
        if quantize == "null":
            keys["lora_head"] = "true"
        yield f"lora {precision} {kept} {quantize} dropout={dropout} 6/{micro}", "llama", "finetune_lora", keys
    for precision, optimizer, micro in itertools.product(["16-true", "16-mixed"], ["AdamW", "SGD", "AdamW8bit"], [2, 6]):
        yield (f"full {precision} {optimizer} 6/{micro}", "llama", "pretrain",
               {"precision": precision, "optimizer": optimizer, "train.micro_batch_size": micro})
    for precision, quantize, dropout in itertools.product(["16-true", "16-mixed"], ["null", "bnb.nf4"], [0, 0.1]):
        yield (f"lora {precision} {quantize} dropout={dropout}", "llama", "finetune_lora",
               {"precision": precision, "quantize": quantize, "lora_dropout": dropout})


def short_hash(*parts: bytes) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "little") + part)
    return total.hexdigest()[:12]


def run(command: list) -> str:
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stderr}")
    return done.stdout


def plan_hash(capstan: str, command: str, flags: list) -> str:
    parts = []
    for device in ["cpu", "cuda"]:
        told = json.loads(run([capstan, "plan", command, *flags, "--accelerator", device, "--memory", "64GiB", "--json"]))
        told["model"].pop("name")  # it may be a path
        parts.append(json.dumps([told[key] for key in ["model", "memory", "batch", "largest", "checkpoint_bytes"]]
                                + [told.get("host_memory", {}).get("by_category")]))
    return short_hash(*(part.encode() for part in parts))


def losses_of(out: pathlib.Path) -> bytes:
    [metrics] = out.glob("logs/jsonl/*/metrics.jsonl")
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    return json.dumps([[row.get(key) for key in ["step", "loss", "grad_norm", "val_loss"]] for row in rows]).encode()


def weights_of(folder: pathlib.Path) -> bytes:
    files = sorted(folder.rglob("*.safetensors"))
    if not files:
        raise RuntimeError(f"no weights in {folder}")
    return b"".join(path.read_bytes() for path in files)


def one(capstan: str, folder: pathlib.Path, accelerator: str, case: tuple) -> str:
    name, model, command, keys = case
    out = folder / short_hash(name.encode())
    flags = ["--train.global_batch_size", 6, "--train.max_seq_length", 48, "--train.lr_warmup_steps", 1,
             "--train.max_norm", 1, "--data.cache", "false", "--out_dir", out]
    if keys.get("precision") == "32-true" and "matmul_precision" not in keys:
        flags += ["--matmul_precision", "highest"]  # whatever a GPU takes where nothing is said
    if command == "pretrain":
        flags += ["--model_config", folder / model / "config.json", "--data", "TextFiles",
                  "--data.train_data_path", folder / "text.txt", "--train.max_steps", STEPS]
    else:
        flags += ["--checkpoint_dir", folder / "base" / "final", "--data", "JSON", "--data.json_path",
                  folder / "records.jsonl", "--train.epochs", 1, "--train.max_steps", STEPS,
                  "--data.val_split_fraction", 0.1, "--eval.max_new_tokens", "null"]
    for key, value in keys.items():
        flags += [f"--{key}", value]
    plans = plan_hash(capstan, command, flags)
    run([capstan, command, *flags, "--accelerator", accelerator, "--logger_name", "jsonl",
         "--train.save_interval", STEPS // 2])
    [halfway] = out.glob(f"step-*{STEPS // 2}")
    line = (f"{name:58} losses {short_hash(losses_of(out))} weights {short_hash(weights_of(out / 'final'))} "
            f"state {short_hash(weights_of(halfway))} plans {plans}")
    shutil.rmtree(out)
    return line


def prepare(capstan: str, folder: pathlib.Path) -> None:
    """Data with lengths of all kinds, and a model to fine-tune, made on the CPU so that all devices have the same."""
    draw = random.Random(1)
    (folder / "text.txt").write_text("\n\n".join(
        " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 40))) for _ in range(200)))
    (folder / "records.jsonl").write_text("".join(
        json.dumps({"instruction": draw.choice(WORDS), "output": " ".join(draw.choices(WORDS, k=draw.randint(1, 6)))})
        + "\n" for _ in range(40)))
    for name, config in MODELS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(SIZES | config))
    run([capstan, "pretrain", "--accelerator", "cpu", "--model_config", folder / "llama" / "config.json", "--data",
         "TextFiles", "--data.train_data_path", folder / "text.txt", "--train.max_steps", 2, "--out_dir",
         folder / "base", "--train.max_seq_length", 48, "--train.global_batch_size", 6,
         "--train.micro_batch_size", 6, "--data.cache", "false"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capstan")
    parser.add_argument("--accelerator", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--only", default="", help="configurations whose names hold this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    cases = [case for case in configurations() if given.only in case[0]]
    failed = 0
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        folder = pathlib.Path(name)
        os.environ["CAPSTAN_CACHE"] = str(folder / "cache")
        capstan = str(pathlib.Path(given.capstan).resolve())
        prepare(capstan, folder)
        for case, job in [(case, pool.submit(one, capstan, folder, given.accelerator, case)) for case in cases]:
            try:
                print(job.result(), flush=True)
            except RuntimeError as error:
                failed += 1
                print(f"{case[0]:58} failed", flush=True)
                print(error, file=sys.stderr)
    print(f"{len(cases)} configurations, {failed} failed", file=sys.stderr)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
