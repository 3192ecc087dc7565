"""Calibrates with `capstan bench`, trains random recipes for a few steps on one or more ranks, and compares
memory and the time of a step with what was predicted before.

usage: predictions.py CAPSTAN [--ranks 1,2,4] [--recipes N] [--seed N] [--steps N] [--accelerator cpu|cuda]
                      [--quick] [--control BENCH_STEP]

The machine should have nothing else to do. On a CPU several ranks share its cores; a calibration is made with as
many threads as a rank has. Prints a row for each recipe, and for each number of ranks the median and the worst
error; exits with 1 if an error of memory is above 1%, the median of times above 7% or the worst above 20%.
"""

import argparse
import csv
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import tempfile
import time

MEMORY, MEDIAN, WORST = 0.01, 0.07, 0.20
CONTROL, CLOSE, TRIES, PATIENCE = "15m:32-true:1:256:1", 0.05, 9, 3
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


def run(command: list, **environment: str) -> str:
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=os.environ | environment)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def measure(capstan: str, folder: pathlib.Path, config: dict, keys: dict, accelerator: str, ranks: int) -> dict:
    """The line that the run adds to the history, with the time of the median step in place of the mean: on a GPU
    products are measured on the first step that has them, and other programs may use the machine."""
    (folder / "config.json").write_text(json.dumps(config))
    command = [capstan, "pretrain", "--model_config", folder / "config.json", "--out_dir", folder / "out",
               "--accelerator", accelerator, "--eval.final_validation", "false", "--devices", ranks]
    for key, value in keys.items():
        command += [f"--{key}", value]
    told = run(command)
    lines = (pathlib.Path(os.environ["CAPSTAN_CACHE"]) / "history.jsonl").read_text().splitlines()
    found = json.loads(lines[-1])
    if found["ranks"] != ranks or not found["predicted_step_seconds"]:
        raise SystemExit(f"the run was not predicted:\n{told}")
    with open(next((folder / "out").rglob("metrics.csv")), encoding="utf-8") as metrics:
        micros = [float(row["iter_time"]) for row in csv.DictReader(metrics) if row["iter_time"]]
    # iter_time is the step's time by the micro-batches of all ranks.
    in_step = keys["train.global_batch_size"] // keys["train.micro_batch_size"]
    found["measured_step_seconds"] = statistics.median(micros[1:]) * in_step
    shutil.rmtree(folder / "out")
    return found


def control(bench_step: str) -> float:
    """The milliseconds of a step that is always the same."""
    done = subprocess.run([bench_step, "--steps", "7", CONTROL], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["step_ms"]


def calibrate(given: argparse.Namespace, folder: pathlib.Path, ranks: int) -> None:
    """As a rank computes: with its share of the cores."""
    os.environ["CAPSTAN_CACHE"] = str(folder / f"cache-{ranks}")
    quick = ["--quick"] if given.quick else []
    share = {}
    if given.accelerator == "cpu":
        share = {"OMP_NUM_THREADS": str(-(-len(os.sched_getaffinity(0)) // ranks))}
    run([given.capstan, "bench", "--accelerator", given.accelerator, *quick], **share)
    if ranks > 1:
        told = run([given.capstan, "bench", "comm", "--accelerator", given.accelerator, "--devices", ranks, *quick])
        print("\n".join(line for line in told.splitlines() if line.startswith("  among") or "at work" in line))


class Machine:
    """Calibrated for so many ranks. With a control, a run counts only if the machine is as fast before and after it
    as it was then."""

    def __init__(self, given: argparse.Namespace, folder: pathlib.Path, ranks: int):
        self.given, self.folder, self.ranks = given, folder, ranks
        self.calibrate()

    def calibrate(self) -> None:
        calibrate(self.given, self.folder, self.ranks)
        self.control = control(self.given.control) if self.given.control else 0

    def is_as_fast(self) -> bool:
        return not self.given.control or abs(control(self.given.control) / self.control - 1) <= CLOSE

    def measure(self, config: dict, keys: dict) -> dict | None:
        """None if the machine never was as fast as when it was calibrated, which is done again now and then."""
        for attempt in range(1, TRIES + 1):
            if self.is_as_fast():
                found = measure(self.given.capstan, self.folder, config, keys, self.given.accelerator, self.ranks)
                if self.is_as_fast():
                    return found
            if attempt % PATIENCE == 0 and attempt < TRIES:
                self.calibrate()
            time.sleep(3)
        return None


def compare(given: argparse.Namespace, folder: pathlib.Path, ranks: int) -> bool:
    draw = random.Random(given.seed)
    machine = Machine(given, folder, ranks)
    left_out = 0
    print(f"\n{ranks} ranks\n{'hidden':>6} {'layers':>6} {'vocab':>6} {'batch':>12} {'precision':>10} {'activations':>11}"
          f"{'memory':>8}{'measured':>10}{'predicted':>10}{'off':>8}")
    times, memory = [], []
    for _ in range(given.recipes):
        config, keys = random_recipe(draw, folder, given.steps, given.accelerator != "cpu")
        keys["train.global_batch_size"] *= ranks
        if ranks > 1:
            keys["strategy"] = draw.choice(["ddp", "zero1", "zero2", "zero3"])
        found = machine.measure(config, keys)
        if found is None:
            left_out += 1
            continue
        took, predicted = found["measured_step_seconds"], found["predicted_step_seconds"]
        times.append(predicted / took - 1)
        memory.append(found["measured_bytes"] / found["predicted_bytes"])
        micro, whole = keys["train.micro_batch_size"], keys["train.global_batch_size"]
        batch = f"{micro}x{keys['train.max_seq_length']}x{whole // micro // ranks}"
        print(f"{config['hidden_size']:6} {config['num_hidden_layers']:6} {config['vocab_size']:6} {batch:>12} "
              f"{keys['precision']:>10} {keys['activations']:>11}{memory[-1]:8.4f}{took:10.4f}{predicted:10.4f}"
              f"{times[-1]:8.1%} {keys.get('strategy', '')}", flush=True)
    if len(times) < given.recipes / 2:
        print(f"{ranks} ranks: only {len(times)} of {given.recipes} recipes ran while the machine was as fast as before")
        return False
    median, worst = statistics.median(abs(t) for t in times), max(abs(t) for t in times)
    most = max(abs(m - 1) for m in memory)
    print(f"{ranks} ranks: memory off by at most {most:.2%}; times by {median:.1%} in the median "
          f"({statistics.median(times):+.1%}), {worst:.1%} at worst"
          + (f"; {left_out} recipes left out, as the machine was faster or slower than before" if left_out else ""))
    return most <= MEMORY and median <= MEDIAN and worst <= WORST


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("capstan")
    parser.add_argument("--ranks", default="1")
    parser.add_argument("--recipes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--accelerator", default="cpu")
    parser.add_argument("--quick", action="store_true", help="calibrate in a quarter of the time")
    parser.add_argument("--control", metavar="BENCH_STEP",
                        help="for a machine that others use: time a step of this program before and after every run, "
                             "and take only runs beside which it takes as long as after the calibration")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        draw = random.Random(given.seed)
        (folder / "text.txt").write_text(" ".join(draw.choice(WORDS) for _ in range(400_000)))
        good = [compare(given, folder, int(ranks)) for ranks in given.ranks.split(",")]
    raise SystemExit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
