"""Writes tests/golden_finetune/fp16.json: the steps of golden.json as torch takes them in 16-mixed,
torch.autocast with float16 and torch.amp.GradScaler.

    python make_fp16.py [cpu|cuda]

    scales      of each step, before it
    skipped     whether the scaler left the step out
    losses, norms

The model is make_finetune.py's with its last norm divided by 32 and its head multiplied by it: the
first gradients that exceed f16 are then those of the head's input, which are f16 in every program.
(Those of weights are not: torch rounds them to f16 before it adds them to f32.) The scale starts too
high and is doubled soon, so that steps are left out at the start and on the way. The largest of those
gradients in a step that was taken is printed: it must not be near the end of f16.
"""

import json
import sys

import make_finetune as base
import torch
from transformers import LlamaForCausalLM

START, INTERVAL, FACTOR = 2.0**26, 5, 32.0


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    golden = json.loads((base.OUT / "golden.json").read_text())
    records = [json.loads(line) for line in open(base.OUT / "records.jsonl")]
    samples = [base.sample(r) for r in records]
    model = LlamaForCausalLM.from_pretrained(base.OUT, dtype=torch.float32).to(device)
    with torch.no_grad():
        model.model.norm.weight /= FACTOR
        model.lm_head.weight *= FACTOR
    largest = [0.0]
    model.lm_head.register_full_backward_hook(
        lambda _, grads, __: largest.__setitem__(0, max(largest[0], grads[0].abs().max().item())))
    optimizer = torch.optim.AdamW(model.parameters(), lr=base.LR, betas=base.BETAS, eps=base.EPS,
                                  weight_decay=base.DECAY)
    scaler = torch.amp.GradScaler(device, init_scale=START, growth_interval=INTERVAL)
    out: dict[str, list] = {"scales": [], "skipped": [], "losses": [], "norms": []}
    for step, ids_of_step in enumerate(golden["steps"]):
        optimizer.param_groups[0]["lr"] = base.rate(step)
        optimizer.zero_grad()
        targets = sum(len(samples[i][0]) - max(1, samples[i][1]) for i in ids_of_step)
        total, largest[0] = 0.0, 0.0
        for i in ids_of_step:
            ids, first = samples[i]
            with torch.autocast(device, torch.float16):
                logits = model(input_ids=torch.tensor([ids], device=device)).logits[0, :-1]
            labels = torch.tensor(ids[1:], device=device)
            labels[:first - 1] = -100
            loss = torch.nn.functional.cross_entropy(logits.float(), labels,
                                                     reduction="sum") / targets
            scaler.scale(loss).backward()
            total += loss.item()
        scale = scaler.get_scale()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), base.MAX_NORM).item()
        scaler.step(optimizer)
        scaler.update()
        skipped = scaler.get_scale() < scale
        out["scales"].append(scale)
        out["skipped"].append(skipped)
        out["losses"].append(total)
        out["norms"].append(None if skipped else norm)
        print(step, scale, skipped, total, norm, "largest", largest[0])
    settings = {"start": START, "interval": INTERVAL, "factor": FACTOR}
    (base.OUT / "fp16.json").write_text(json.dumps(settings | out) + "\n")


main()
