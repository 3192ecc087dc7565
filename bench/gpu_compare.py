"""Trains the same models with Capstan and with PyTorch on this machine's GPU, by turns, and prints both and the ratios.

usage: gpu_compare.py BENCH_STEP PEER [ROW...]

PEER is a script that takes cases model:implementation:mode:micro_batch:seq:accumulation and prints a line of JSON for
each (tok_s, step_ms, reserved_gib); implementations are hf (transformers, eager), hfc (compiled) and litc (LitGPT's
model, compiled: LitGPT must be on PYTHONPATH). ROW is the number of a row; all by default. The ratio is to the fastest
peer of the row. Each program runs alone, so memory does not mix. Capstan's memory is what it planned and allocated,
PyTorch's what its allocator reserved.
"""

import json
import subprocess
import sys

LIMIT = 240  # seconds for one program

# Capstan's case, which of its ways to train, and the peers' cases.
ROWS = [
    ("tinyllama:bf16-true:8:512:4", "full", ["tiny-1.1b:litc:bf16-true:8:512:4", "tiny-1.1b:hfc:bf16-true:8:512:4"]),
    ("tinyllama:bf16-true:8:2048:1", "full", ["tiny-1.1b:litc:bf16-true:8:2048:1", "tiny-1.1b:hfc:bf16-true:8:2048:1"]),
    ("openllama-7b:bf16-true:4:512:4", "full", ["open-7b:litc:bf16-true:4:512:4", "open-7b:hfc:bf16-true:4:512:4"]),
    ("openllama-7b:bf16-true:4:2048:4", "full", ["open-7b:litc:bf16-true:4:2048:4", "open-7b:hfc:bf16-true:4:2048:4"]),
    ("openllama-7b:bf16-true:4:512:1:lora-all", "lora-all", ["open-7b:litc:lora:4:512:1", "open-7b:hf:lora:4:512:1"]),
    ("openllama-7b:bf16-true:4:512:1:qlora-all", "qlora-all", []),
    ("openllama-7b:bf16-true:4:512:1:block:9:qlora-all", "qlora-all", []),
    ("tinyllama:bf16-mixed:8:512:4", "full", ["tiny-1.1b:hf:bf16-mixed:8:512:4"]),
    ("tinyllama:32-true:8:512:1", "full", ["tiny-1.1b:hf:32-true:8:512:1"]),
    ("tinyllama:bf16-true:2:8192:1", "full", ["tiny-1.1b:litc:bf16-true:2:8192:1", "tiny-1.1b:hfc:bf16-true:2:8192:1"]),
]


def results(command: list[str]) -> list[dict]:
    try:
        out = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return []
    return [json.loads(line) for line in out.stdout.splitlines() if line.startswith("{")]


def show(case: str, program: str, speed: float, step: float, memory: float) -> None:
    print(f"{case:<48}{program:<10}{speed:10.0f}{step:11.1f}{memory:11.2f}", flush=True)


def compare(bench_step: str, peer: str, row: tuple) -> None:
    case, way, peer_cases = row
    ours = [r for r in results([bench_step, case]) if r.get("trains", "full") == way]
    if not ours:
        print(f"{case:<48}capstan   failed, or took more than {LIMIT} s")
        return
    o = ours[0]
    show(case, "capstan", o["tok_s"], o["step_ms"], o["planned_gib"])
    best = None
    for peer_case in peer_cases:
        [t] = results([sys.executable, peer, peer_case]) or [{"error": f"failed, or took more than {LIMIT} s"}]
        if "error" in t:
            print(f"{peer_case:<48}pytorch   {t['error']}", flush=True)
            continue
        show(peer_case, "pytorch", t["tok_s"], t["step_ms"], t["reserved_gib"])
        best = max(best or t, t, key=lambda r: r["tok_s"])
    if best:
        print(f"{'':<48}{'ratio':<10}{o['tok_s'] / best['tok_s']:9.2f}x{'':>11}"
              f"{o['planned_gib'] / best['reserved_gib']:10.2f}x", flush=True)


def main() -> None:
    bench_step, peer, *chosen = sys.argv[1:]
    print(f"{'case':<48}{'program':<10}{'tok/s':>10}{'step ms':>11}{'GiB':>11}")
    for number in map(int, chosen or range(1, len(ROWS) + 1)):
        compare(bench_step, peer, ROWS[number - 1])


main()
