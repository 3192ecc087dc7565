"""Lets bench_step and torch_step.py take turns, step by step, and prints both sides and the ratio.

usage: compare.py [--pairs N] BENCH_STEP PYTHON CASE...      (PYTHON has torch and transformers)

Both programs stay alive, and one waits while the other computes: what slows the machine down slows
both down. The ratio is the median over the pairs of steps, with its quartiles.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess


class Program:
    """A program that does one step for each line that it reads."""

    def __init__(self, command: list[str]):
        environment = {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))), **os.environ}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, env=environment)
        self.read("ready")

    def read(self, expected: str = "") -> str:
        line = self.process.stdout.readline().strip()
        if not line or (expected and line != expected):
            raise SystemExit(f"{' '.join(self.process.args)}: expected {expected or 'a time'}, found '{line}'")
        return line

    def step(self) -> float:
        """Milliseconds."""
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        return float(self.read())

    def finish(self) -> dict:
        self.process.stdin.close()
        result = json.loads(self.read())
        self.process.wait()
        return result


def compare(case: str, ours: Program, peer: Program, pairs: int) -> None:
    times = [(ours.step(), peer.step()) for _ in range(pairs)]
    ratios = [b / a for a, b in times]
    low, middle, high = statistics.quantiles(ratios, n=4)
    results = (("capstan", ours.finish()), ("pytorch", peer.finish()))
    for name, r in results:
        start = f"{r['start_ms']:10.0f}" if "start_ms" in r else f"{'':>10}"
        print(f"{case:<24}{name:<10}{r['tok_s']:10.1f}{r['step_ms']:12.1f}{r['maxrss_gib']:10.2f}{start}")
    memory = results[0][1]["maxrss_gib"] / results[1][1]["maxrss_gib"]
    print(f"{case:<24}{'ratio':<10}{middle:9.2f}x{f'{low:.2f} to {high:.2f}':>12}{memory:9.2f}x", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("bench_step")
    parser.add_argument("python")
    parser.add_argument("cases", nargs="+")
    given = parser.parse_args()
    script = str(pathlib.Path(__file__).with_name("torch_step.py"))
    print(f"{'case':<24}{'program':<10}{'tok/s':>10}{'step ms':>12}{'peak GiB':>10}{'start ms':>10}")
    for case in given.cases:
        ours = Program([given.bench_step, "--turns", case])
        peer = Program([given.python, script, "--turns", case])
        compare(case, ours, peer, given.pairs)


if __name__ == "__main__":
    main()
