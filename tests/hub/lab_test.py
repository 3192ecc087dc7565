#!/usr/bin/env python3
"""A fine-tuning course from its first command to its last, with `litgpt` replaced by `capstan`.

usage: lab_test.py CAPSTAN RECIPES

RECIPES is the folder with the course's eight recipes, used as they are. A hub on loopback serves tiny
models under the names of those that the course downloads.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from test_hub import Hub, Repository

COURSE = """
litgpt download TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T
litgpt download openlm-research/open_llama_3b
litgpt download openlm-research/open_llama_7b
litgpt download openlm-research/open_llama_13b
litgpt finetune_full --config tiny-llama-full.yaml --train.global_batch_size 32 --train.micro_batch_size 32
litgpt finetune_full --config tiny-llama-full.yaml --train.global_batch_size 32 --train.micro_batch_size 8
litgpt finetune_full --config tiny-llama-full.yaml --train.global_batch_size 32 --train.micro_batch_size 8 --precision bf16-true
litgpt finetune_full --config tiny-llama-full.yaml --train.global_batch_size 32 --train.micro_batch_size 8 --precision bf16-mixed
litgpt finetune_full --config open-llama-3b-full.yaml --precision bf16-true
litgpt finetune_full --config open-llama-7b-full.yaml --train.global_batch_size 16 --train.micro_batch_size 4 --precision bf16-true
litgpt finetune_full --config open-llama-13b-full.yaml --train.global_batch_size 1 --train.micro_batch_size 1 --precision bf16-true --optimizer SGD --train.max_steps 25
litgpt finetune --config tiny-llama-lora.yaml
litgpt finetune --config open-llama-3b-lora.yaml
litgpt finetune --config open-llama-7b-lora.yaml
litgpt finetune --config open-llama-7b-lora.yaml --quantize bnb.nf4
litgpt finetune --config open-llama-13b-lora.yaml --quantize bnb.nf4
litgpt finetune_full --config open-llama-7b-full.yaml --train.global_batch_size 16 --train.micro_batch_size 4 --precision bf16-true --devices 4
litgpt generate out/finetune/full-tiny-llama-1.1b/final --prompt "What food do llamas eat?"
""".strip().splitlines()


def run(words, folder, environment):
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, errors="replace",
                          timeout=300, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout + done.stderr


def stand_in(capstan, folder, environment):
    """The files of a tiny model."""
    (folder / "text.txt").write_text("\n".join(f"{i} and {i} is {2 * i}." for i in range(300)))
    run([capstan, "pretrain", "--data.train_data_path", "text.txt", "--model.hidden_size", "32", "--model.intermediate_size",
         "64", "--model.num_hidden_layers", "2", "--model.num_attention_heads", "2", "--train.max_steps", "3",
         "--train.max_tokens", "null", "--train.max_seq_length", "64", "--model.max_position_embeddings", "512",
         "--train.global_batch_size", "2", "--train.micro_batch_size", "2", "--train.lr_warmup_steps", "0", "--accelerator", "cpu", "--out_dir", "made"],
        folder, environment)
    names = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    return {name: (folder / "made/final" / name).read_bytes() for name in names}


def main():
    capstan, recipes = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
    if not recipes.is_dir():
        print(f"skipped: {recipes} is not there")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        hub = Hub()
        environment = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1",
                       "CAPSTAN_CACHE": str(folder / "cache")}
        files = stand_in(capstan, folder, environment)
        for line in COURSE:
            if line.split()[1] == "download":
                hub.repositories[line.split()[2]] = Repository(files)
        (folder / "data").mkdir()
        records = [{"instruction": f"Add {i} and {i}.", "input": "", "output": f"{2 * i}"} for i in range(200)]
        (folder / "data/alpaca2k.json").write_text(json.dumps(records))
        for recipe in recipes.glob("*.yaml"):
            (folder / recipe.name).write_bytes(recipe.read_bytes())
        environment["PATH"] = f"{folder / 'bin'}:{environment['PATH']}"
        (folder / "bin").mkdir()
        (folder / "bin/litgpt").symlink_to(capstan)
        for number, line in enumerate(COURSE, 1):
            run(["bash", "-c", line], folder, environment)
            print(f"{number:2} ok  {line}", flush=True)
        hub.close()


if __name__ == "__main__":
    main()
