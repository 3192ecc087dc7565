"""Trains the same model on the same data in PyTorch, to hold Capstan's loss curve against.

    python curve_peer.py text MODEL TRAIN.txt VAL.txt OUT.csv [--steps N …]      as capstan pretrain
    python curve_peer.py records MODEL DATA.json OUT.csv [--steps N …]           as capstan finetune_full
    python curve_peer.py batches MODEL BATCHES.jsonl OUT.csv [--steps N …]       the batches of dump_batches

MODEL is a folder with config.json; `records` and `batches` start from its weights, `text` from random weights
and bytes. Writes step,loss,val_loss. Batches are drawn at random, as Capstan's are, but by another generator;
`batches` are Capstan's own. On a GPU, where there is one, in bf16-mixed.
"""

import argparse
import csv
import json
import math
import random

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

BOS, EOS = 256, 257
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PROMPT = ("Below is an instruction that describes a task. Write a response that appropriately completes the "
          "request.\n\n### Instruction:\n{}\n\n### Response:\n")


def text_samples(path: str, length: int) -> list[list[int]]:
    ids = [BOS, *open(path, "rb").read(), EOS]
    return [ids[i:i + length + 1] for i in range(0, len(ids) - 1, length)]


def record_samples(path: str, folder: str, length: int) -> list[list[int]]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    out = []
    for record in json.load(open(path)):
        text = PROMPT.format(record["instruction"]) + record["output"]
        ids = tokenizer.encode(text, add_special_tokens=False)
        out.append([tokenizer.bos_token_id, *ids, tokenizer.eos_token_id][:length])
    return out


# A sample as its inputs and, for each, the token to predict or -100.
Sample = tuple[list[int], list[int]]


def batch_samples(path: str) -> tuple[list[list[Sample]], list[Sample]]:
    def samples(batch: dict) -> list[Sample]:
        return list(zip(batch["ids"], batch["labels"]))

    lines = [json.loads(line) for line in open(path)]
    return [samples(line) for line in lines[:-1]], samples(lines[-1]["held_out"])


def as_samples(texts: list[list[int]]) -> list[Sample]:
    return [(ids[:-1], ids[1:]) for ids in texts]


def losses(model, samples: list[Sample]) -> tuple[torch.Tensor, int]:
    longest = max(len(ids) for ids, _ in samples)
    ids = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in samples], device=DEVICE)
    labels = torch.tensor([s + [-100] * (longest - len(s)) for _, s in samples], device=DEVICE)
    with torch.autocast("cuda", torch.bfloat16, enabled=DEVICE == "cuda"):
        logits = model(input_ids=ids).logits
    total = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(),
                                              ignore_index=-100, reduction="sum")
    return total, int((labels != -100).sum())


def validate(model, samples: list[Sample], batch: int) -> float:
    total, count = 0.0, 0
    with torch.no_grad():
        for i in range(0, len(samples), batch):
            loss, n = losses(model, samples[i:i + batch])
            total, count = total + loss.item(), count + n
    return total / count


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("kind", choices=["text", "records", "batches"])
    p.add_argument("model")
    p.add_argument("data", nargs="+")
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--length", type=int, default=256)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--min_lr", type=float, default=0)
    p.add_argument("--warmup", type=int, default=10)
    p.add_argument("--interval", type=int, default=10)
    p.add_argument("--max_norm", type=float, default=1.0)
    p.add_argument("--held_out", type=int, default=200)
    a = p.parse_args()
    torch.manual_seed(1)
    rng = random.Random(1)
    out = a.data.pop()
    given: list[list[Sample]] = []
    if a.kind == "text":
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(a.model))
        train, held = (as_samples(text_samples(path, a.length)) for path in a.data)
    else:
        model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32)
        if a.kind == "batches":
            given, held = batch_samples(a.data[0])
            train = []
        else:
            samples = as_samples(record_samples(a.data[0], a.model, a.length))
            rng.shuffle(samples)
            train, held = samples[a.held_out:], samples[:a.held_out]
    model.to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=a.lr, betas=(0.9, 0.999), weight_decay=0.01)
    order: list[int] = []
    rows = []
    for step in range(a.steps):
        if not given and len(order) < a.batch:
            order = rng.sample(range(len(train)), len(train))
        batch, order = order[:a.batch], order[a.batch:]
        rate = a.lr * step / a.warmup if step < a.warmup else a.min_lr + 0.5 * (a.lr - a.min_lr) * (
            1 + math.cos(math.pi * (step - a.warmup) / (a.steps - a.warmup)))
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        loss, n = losses(model, given[step] if given else [train[i] for i in batch])
        (loss / n).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), a.max_norm)
        optimizer.step()
        last = (step + 1) % a.interval == 0
        rows.append([step + 1, loss.item() / n, validate(model, held, 32) if last else ""])
    with open(out, "w", newline="") as file:
        csv.writer(file).writerows([["step", "loss", "val_loss"], *rows])


main()
