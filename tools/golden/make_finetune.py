"""Writes tests/golden_finetune/: 30 steps of full fine-tuning of a tiny Llama on ragged, masked
instruction data, as transformers computes them in f64.

    python make_finetune.py

    config.json, model.safetensors   the model before
    records.jsonl                    the data, in Alpaca's form
    golden.json                      sample ids of each step, the loss of each step, the settings

The loss of a step is the sum over the response tokens of the whole global batch, divided by their
number. Ids are bytes (bos 256, eos 257), prompts LitGPT's "alpaca" style, the prompt is masked.
"""

import json
import math
import random
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden_finetune"
STEPS, GLOBAL, WARMUP, MAX_TOKENS = 30, 8, 5, 300
LR, MIN_LR, BETAS, EPS, DECAY, MAX_NORM = 2e-3, 1e-4, (0.9, 0.95), 1e-5, 0.1, 1.0
BOS, EOS = 256, 257
INTRO = ("Below is an instruction that describes a task{paired}. Write a response that "
         "appropriately completes the request.\n\n### Instruction:\n{instruction}\n\n{input}"
         "### Response:\n")
PAIRED = ", paired with an input that provides further context"


def records() -> list[dict[str, str]]:
    rng = random.Random(5)
    words = "the sea was calm and bright until a storm came over hills of silver grass".split()
    out = []
    for i in range(36):
        text = " ".join(rng.choices(words, k=rng.randint(1, 12)))
        record = {"instruction": rng.choice(["Reverse it", "Shout it", "Count its words"])}
        if i % 3:
            record["input"] = text
        else:
            record["instruction"] += ": " + text
        record["output"] = {"R": text[::-1], "S": text.upper() + "!", "C": str(len(text.split()))}[
            record["instruction"][0]]
        out.append(record)
    return out


def sample(record: dict[str, str]) -> tuple[list[int], int]:
    given = record.get("input", "")
    prompt = INTRO.format(paired=PAIRED if given else "", instruction=record["instruction"],
                          input=f"### Input:\n{given}\n\n" if given else "")
    ids = [BOS, *prompt.encode(), *record["output"].encode(), EOS]
    return ids[:MAX_TOKENS], 1 + len(prompt.encode())


def rate(step: int) -> float:
    if step < WARMUP:
        return LR * step / WARMUP
    done = (step - WARMUP) / (STEPS - WARMUP)
    return MIN_LR + 0.5 * (LR - MIN_LR) * (1 + math.cos(math.pi * done))


def main() -> None:
    torch.manual_seed(3)
    config = LlamaConfig(vocab_size=259, hidden_size=32, intermediate_size=44, num_hidden_layers=2,
                         num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=512,
                         bos_token_id=BOS, eos_token_id=EOS, initializer_range=0.1)
    model = LlamaForCausalLM(config)
    OUT.mkdir(exist_ok=True)
    model.save_pretrained(OUT)
    model.double()
    data = records()
    samples = [sample(r) for r in data]
    rng = random.Random(11)
    order: list[list[int]] = []
    while len(order) < STEPS:  # epochs whose last step takes what is left
        ids = rng.sample(range(len(data)), len(data))
        order += [ids[i:i + GLOBAL] for i in range(0, len(ids), GLOBAL)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=BETAS, eps=EPS,
                                  weight_decay=DECAY)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = rate(step)
        optimizer.zero_grad()
        targets = sum(len(samples[i][0]) - max(1, samples[i][1]) for i in order[step])
        total = 0.0
        for i in order[step]:
            ids, first = samples[i]
            logits = model(input_ids=torch.tensor([ids])).logits[0, :-1]
            labels = torch.tensor(ids[1:])
            labels[:first - 1] = -100
            loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum") / targets
            loss.backward()
            total += loss.item()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM).item())
        optimizer.step()
        losses.append(total)
    with open(OUT / "records.jsonl", "w") as out:
        out.writelines(json.dumps(r) + "\n" for r in data)
    golden = dict(steps=order[:STEPS], losses=losses, norms=norms, warmup=WARMUP, lr=LR,
                  min_lr=MIN_LR, betas=BETAS, eps=EPS, weight_decay=DECAY, max_norm=MAX_NORM,
                  max_seq_length=MAX_TOKENS)
    (OUT / "golden.json").write_text(json.dumps(golden) + "\n")
    for name in ("generation_config.json", "README.md"):
        (OUT / name).unlink(missing_ok=True)
    print(losses[0], losses[-1])


if __name__ == "__main__":
    main()
