"""Calibrates with `capstan bench`, trains random recipes for a few steps, and compares the time of a
step with what was predicted before it.

usage: predictions.py CAPSTAN [--recipes N] [--seed N] [--steps N] [--accelerator cpu|cuda]

The machine should have nothing else to do. Prints a row for each recipe, and how many predictions
were within 15%; exits with 1 if not all were.
"""

import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import tempfile

TOLERANCE = 0.15
WORDS = "the model learns what the data say and nothing that they do not say about it".split()


def random_recipe(draw: random.Random, folder: pathlib.Path, steps: int, gpu: bool) -> tuple[dict, dict]:
    """A model's config.json, and the keys of a run."""
    width = draw.choice([64, 128]) if gpu else draw.choice([32, 64])
    heads = draw.choice([8, 12, 16]) if gpu else draw.choice([4, 6, 8, 12])
    hidden = width * heads
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": hidden, "intermediate_size": 32 * round(hidden * draw.uniform(2.5, 4) / 32),
        "num_hidden_layers": draw.randint(2, 8), "num_attention_heads": heads,
        "num_key_value_heads": draw.choice([heads, heads // 2]), "rms_norm_eps": 1e-5,
        "vocab_size": draw.choice([512, 4096, 32000]), "max_position_embeddings": 4096,
        "tie_word_embeddings": draw.random() < 0.3,
    }
    length = draw.choice([512, 1024, 2048]) if gpu else draw.choice([64, 128, 256, 512])
    micro = draw.choice([1, 2, 4, 8])
    keys = {
        "precision": draw.choice(["32-true", "bf16-mixed", "bf16-true"]),
        "activations": draw.choice(["none", "selective", "block"]),
        "optimizer": draw.choice(["AdamW", "AdamW", "SGD"]),
        "train.micro_batch_size": micro, "train.global_batch_size": micro * draw.choice([1, 1, 2, 4]),
        "train.max_seq_length": length, "train.max_steps": steps, "train.lr_warmup_steps": 1,
        "data": "TextFiles", "data.train_data_path": folder / "text.txt", "data.cache": "false",
    }
    return config, keys


def run(command: list) -> str:
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def measure(capstan: str, folder: pathlib.Path, config: dict, keys: dict, accelerator: str) -> tuple[float, float]:
    """Seconds of a step: measured, predicted."""
    (folder / "config.json").write_text(json.dumps(config))
    command = [capstan, "pretrain", "--model_config", folder / "config.json", "--out_dir", folder / "out",
               "--accelerator", accelerator, "--eval.final_validation", "false"]
    for key, value in keys.items():
        command += [f"--{key}", value]
    found = re.search(r"Step Time\W+([\d.e-]+) s \(([\d.e-]+) s predicted", run(command))
    if not found:
        raise SystemExit("the closing lines have no prediction")
    return float(found.group(1)), float(found.group(2))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("capstan")
    parser.add_argument("--recipes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--accelerator", default="cpu")
    given = parser.parse_args()
    draw = random.Random(given.seed)
    off = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.environ["CAPSTAN_CACHE"] = str(folder / "cache")
        (folder / "text.txt").write_text(" ".join(draw.choice(WORDS) for _ in range(400_000)))
        print(run([given.capstan, "bench", "--accelerator", given.accelerator]))
        print(f"{'hidden':>6} {'layers':>6} {'vocab':>6} {'batch':>12} {'precision':>10} {'activations':>11}"
              f"{'measured':>10}{'predicted':>10}{'off':>8}")
        for _ in range(given.recipes):
            config, keys = random_recipe(draw, folder, given.steps, given.accelerator != "cpu")
            took, predicted = measure(given.capstan, folder, config, keys, given.accelerator)
            off.append(predicted / took - 1)
            micro, whole = keys["train.micro_batch_size"], keys["train.global_batch_size"]
            batch = f"{micro}x{keys['train.max_seq_length']}x{whole // micro}"
            print(f"{config['hidden_size']:6} {config['num_hidden_layers']:6} {config['vocab_size']:6} {batch:>12} "
                  f"{keys['precision']:>10} {keys['activations']:>11}{took:10.4f}{predicted:10.4f}{off[-1]:8.1%}", flush=True)
    within = sum(abs(o) <= TOLERANCE for o in off)
    print(f"{within} of {len(off)} within {TOLERANCE:.0%}; the worst {max(off, key=abs):+.1%}")
    raise SystemExit(0 if within == len(off) else 1)


if __name__ == "__main__":
    main()
