"""PyTorch's training step on the CPU, for bench_step to be compared with: same shapes, same method.

usage: torch_step.py [--turns] CASE...      (a case is model:precision:micro_batch:seq:accumulation)
Prints one JSON line per case. Needs torch and transformers. --turns: as bench_step's.
"""

import json
import resource
import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

# hidden, intermediate, layers, heads, key heads, vocabulary: as in step_bench.cpp
MODELS = {
    "1m": (128, 352, 4, 4, 4, 259),
    "15m": (288, 768, 6, 6, 6, 32000),
    "110m": (768, 2048, 12, 12, 12, 32000),
}


def build(model: str, seq: int) -> LlamaForCausalLM:
    hidden, intermediate, layers, heads, kv_heads, vocab = MODELS[model]
    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=hidden,
            intermediate_size=intermediate,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            vocab_size=vocab,
            max_position_embeddings=max(2048, seq),
            attn_implementation="sdpa",
            use_cache=False,
        )
    ).train()


def measure(case: str, turns: bool) -> dict:
    model, precision, micro_batch, seq, accumulation = case.split(":")
    net = build(model, int(seq))
    if precision == "bf16-true":
        net = net.bfloat16()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, betas=(0.9, 0.95))
    x = torch.randint(0, MODELS[model][5], (int(micro_batch), int(seq)))
    mixed = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16-mixed")

    def step() -> None:
        for _ in range(int(accumulation)):
            with mixed:
                loss = net(input_ids=x, labels=x).loss / int(accumulation)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(3):
        step()
    times = []
    if turns:
        print("ready", flush=True)
    for _ in sys.stdin if turns else range(7):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
        if turns:
            print(f"{1e3 * times[-1]:.6f}", flush=True)
    median = sorted(times)[len(times) // 2]
    return {
        "case": case,
        "tok_s": int(micro_batch) * int(seq) * int(accumulation) / median,
        "step_ms": 1e3 * median,
        "maxrss_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


if __name__ == "__main__":
    cases = [argument for argument in sys.argv[1:] if argument != "--turns"]
    for argument in cases:
        print(json.dumps(measure(argument, "--turns" in sys.argv)), flush=True)
