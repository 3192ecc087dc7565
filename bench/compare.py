"""Runs bench_step and torch_step.py by turns on the same cases and prints both sides and the ratios.

usage: compare.py BENCH_STEP PYTHON CASE...      (PYTHON has torch and transformers)
"""

import json
import os
import pathlib
import subprocess
import sys


def last_json(command: list[str]) -> dict:
    """The result of a program that prints one JSON line; each runs alone, so peaks do not mix."""
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return json.loads(out.stdout.strip().splitlines()[-1])


def main() -> None:
    bench_step, python, *cases = sys.argv[1:]
    script = str(pathlib.Path(__file__).with_name("torch_step.py"))
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))
    header = f"{'case':<24}{'program':<10}{'tok/s':>10}{'step ms':>12}{'peak GiB':>10}{'start ms':>10}"
    print(header)
    for case in cases:
        ours = last_json([bench_step, case])
        peer = last_json([python, script, case])
        for name, r in (("capstan", ours), ("pytorch", peer)):
            start = f"{r['start_ms']:10.0f}" if "start_ms" in r else f"{'':>10}"
            print(f"{case:<24}{name:<10}{r['tok_s']:10.1f}{r['step_ms']:12.1f}{r['maxrss_gib']:10.2f}{start}")
        speed = ours["tok_s"] / peer["tok_s"]
        memory = ours["maxrss_gib"] / peer["maxrss_gib"]
        print(f"{case:<24}{'ratio':<10}{speed:9.2f}x{'':>12}{memory:9.2f}x", flush=True)


if __name__ == "__main__":
    main()
