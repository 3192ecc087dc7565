#!/usr/bin/env python3
"""Trains small models in many configurations and prints a hash of what each computed and planned.

usage: run_hashes.py CAPSTAN [--accelerator cpu|cuda] [--only WORD] [--jobs N]

A line has a configuration, hashes of its losses (with the norms of its gradients), its final weights,
its state half-way (moments and all), the files that it leaves, and its plans: for both devices, and of
several ranks what each of them had planned. A change that promises the same bits is checked by the same
lines before and after it, on one machine:

  tools/run_hashes.py before/capstan > before.txt
  tools/run_hashes.py after/capstan > after.txt
  diff before.txt after.txt
"""

import argparse
import concurrent.futures
import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
import random
import re
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
MODELS |= {f"deep{tied}": MODELS[model] | {"num_hidden_layers": 4} for tied, model in [("", "llama"), ("-tied", "tied")]}


@dataclasses.dataclass
class Case:
    name: str
    model: str
    command: str
    keys: dict
    ranks: int = 1
    by_mpi: bool = False  # ranks are processes, else threads of one


def configurations():
    for case in one_rank():
        yield Case(*case)
    yield from several_ranks()


def several_ranks():
    lora = {"quantize": "bnb.nf4", "strategy": "zero3", "lora_mlp": "true", "lora_projection": "true"}
    interleaved = {"pipeline_parallel": 2, "pipeline_schedule": "interleaved"}
    meshes = [(ranks, strategy, "llama", {"strategy": strategy})
              for ranks, strategy in itertools.product([2, 4], ["ddp", "zero2", "zero3", "zero2_offload"])]
    meshes += [(2, f"tp2 overlap={overlap}", "llama", {"tensor_parallel": 2, "tensor_parallel_overlap": overlap})
               for overlap in ["false", "true"]]
    meshes += [(2, "cp2", "llama", {"context_parallel": 2})]
    meshes += [(2, f"pp2 {schedule} {model}", model, {"pipeline_parallel": 2, "pipeline_schedule": schedule})
               for schedule, model in itertools.product(["1f1b", "interleaved", "zero_bubble"], ["deep", "deep-tied"])]
    meshes += [(4, "tp2 pp2", "deep", {"tensor_parallel": 2, "pipeline_parallel": 2}),
               (4, "tp2 pp2 interleaved overlap", "deep",
                {"tensor_parallel": 2, "tensor_parallel_overlap": "true", **interleaved}),
               (4, "cp2 zero3", "llama", {"context_parallel": 2, "strategy": "zero3"})]
    for precision, (ranks, name, model, keys) in itertools.product(["32-true", "bf16-mixed"], meshes):
        yield Case(f"{ranks} ranks {name} {precision}", model, "pretrain", {"precision": precision, **keys}, ranks)
    for ranks in [2, 4]:
        yield Case(f"{ranks} ranks lora nf4 zero3", "llama", "finetune_lora", lora, ranks)
    for ranks, name, model, keys in [(2, "ddp", "llama", {"strategy": "ddp"}), (4, "zero3", "llama", {"strategy": "zero3"}),
                                     (2, "tp2", "llama", {"tensor_parallel": 2}), (2, "pp2 interleaved", "deep", interleaved)]:
        yield Case(f"{ranks} ranks by MPI {name}", model, "pretrain", {"precision": "32-true", **keys}, ranks, by_mpi=True)


def one_rank():
    """Names, models, commands and keys."""
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


def plan_parts(capstan: str, command: str, flags: list) -> list[bytes]:
    parts = []
    for device in ["cpu", "cuda"]:
        told = json.loads(run([capstan, "plan", command, *flags, "--accelerator", device, "--memory", "64GiB", "--json"]))
        told["model"].pop("name")  # it may be a path
        parts.append(json.dumps([told[key] for key in ["model", "memory", "batch", "largest", "checkpoint_bytes"]]
                                + [told.get("host_memory", {}).get("by_category"), told.get("ranks")]).encode())
    return parts


def planned_of(told: str) -> bytes:
    """What each rank had planned, in the table of ranks that a run prints."""
    row = re.compile(r"^  +(\d+)(?: +[-\d.]+ s){3} +([\d.]+ \w?i?B) ", re.MULTILINE)
    return json.dumps(row.findall(told)).encode()


def files_of(out: pathlib.Path) -> bytes:
    """The files that a run leaves, and those of them that hold no times."""
    names = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    texts = [path.read_bytes().replace(bytes(out.parent), b"") for name in ["config.json", "generation_config.json", "tokenizer.json",
                                            "adapter_config.json"] for path in sorted(out.rglob(name))]
    return json.dumps(names).encode() + b"".join(texts)


def losses_of(out: pathlib.Path) -> bytes:
    [metrics] = out.glob("logs/jsonl/*/metrics.jsonl")
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    return json.dumps([[row.get(key) for key in ["step", "loss", "grad_norm", "val_loss"]] for row in rows]).encode()


def weights_of(folder: pathlib.Path) -> bytes:
    files = sorted(folder.rglob("*.safetensors"))
    if not files:
        raise RuntimeError(f"no weights in {folder}")
    return b"".join(path.read_bytes() for path in files)


def launched(capstan: str, case: Case) -> list:
    if case.by_mpi:
        return ["mpirun", "--oversubscribe", "-n", case.ranks, capstan]
    return [capstan]


def one(capstan: str, folder: pathlib.Path, accelerator: str, case: Case) -> str:
    keys = case.keys
    out = folder / short_hash(case.name.encode())
    flags = ["--train.global_batch_size", 6, "--train.max_seq_length", 48, "--train.lr_warmup_steps", 1,
             "--train.max_norm", 1, "--data.cache", "false", "--out_dir", out]
    if keys.get("precision") == "32-true" and "matmul_precision" not in keys:
        flags += ["--matmul_precision", "highest"]  # whatever a GPU takes where nothing is said
    if case.command == "pretrain":
        flags += ["--model_config", folder / case.model / "config.json", "--data", "TextFiles",
                  "--data.train_data_path", folder / "text.txt", "--train.max_steps", STEPS]
    else:
        flags += ["--checkpoint_dir", folder / "base" / "final", "--data", "JSON", "--data.json_path",
                  folder / "records.jsonl", "--train.epochs", 1, "--train.max_steps", STEPS,
                  "--data.val_split_fraction", 0.1, "--eval.max_new_tokens", "null"]
    if case.ranks > 1:
        flags += ["--train.micro_batch_size", 1]
    for key, value in keys.items():
        flags += [f"--{key}", value]
    devices = ["--devices", case.ranks] if case.ranks > 1 else []
    plans = plan_parts(capstan, case.command, flags + devices)
    told = run([*launched(capstan, case), case.command, *flags, *([] if case.by_mpi else devices), "--accelerator",
                accelerator, "--logger_name", "jsonl", "--train.save_interval", STEPS // 2])
    if case.ranks > 1:
        plans.append(planned_of(told))
        if len(json.loads(plans[-1])) != case.ranks:
            raise RuntimeError(f"{case.name}: the run does not say what each of its ranks had planned:\n{told}")
    [halfway] = out.glob(f"step-*{STEPS // 2}")
    line = (f"{case.name:58} losses {short_hash(losses_of(out))} weights {short_hash(weights_of(out / 'final'))} "
            f"state {short_hash(weights_of(halfway))} files {short_hash(files_of(out))} plans {short_hash(*plans)}")
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
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    cases = [case for case in configurations() if given.only in case.name]
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
                print(f"{case.name:58} failed", flush=True)
                print(error, file=sys.stderr)
    print(f"{len(cases)} configurations, {failed} failed", file=sys.stderr)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
