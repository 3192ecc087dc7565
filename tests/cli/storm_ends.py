#!/usr/bin/env python3
"""Sends a signal to a training at any of its system calls: nothing that was trained may be lost.

    storm_ends.py PROGRAM SIGNAL_AT [--mpiexec MPIEXEC] [--runs N] [--seed S]

A training of a few steps is first left alone. Then it runs again and again, each time with a signal
at another system call, of one process or of one of two ranks under mpirun. Half of the calls are
between the last step and the exit, where there is most to lose; the others are anywhere, from the
program's first line on. Each run must end with exit code 0, or 128 + the signal and words on stderr,
never by the signal itself. The same command with --resume auto must then end with exit code 0 and
the same final model and validation losses, bit for bit, and leave nothing half-made.

N is the number of runs of each kind (all calls of one process after the last step, if it is 0), and S
chooses the calls; without it, it is random. 77: a process may not trace another one here.
"""

import argparse
import csv
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS = 4
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
COMMAND = ["pretrain", "--data.train_data_path=text.txt", "--data.val_split_fraction=0.2", "--out_dir=out",
           "--resume=auto", "--logger_name=csv", f"--train.max_steps={STEPS}", "--train.save_interval=3",
           "--train.lr_warmup_steps=0", "--train.max_seq_length=64", "--train.global_batch_size=4",
           "--train.micro_batch_size=2", "--eval.interval=2", "--eval.max_iters=100", "--model.hidden_size=16",
           "--model.intermediate_size=24", "--model.num_hidden_layers=1", "--model.num_attention_heads=2",
           "--model.num_key_value_heads=1", "--accelerator=cpu"]
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_plm_rsh_agent": "/bin/false",
               "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_btl": "self,vader"}
MODEL = "out/final/model.safetensors"


class Storm:
    def __init__(self, options, folder):
        self.o = options
        self.folder = folder
        self.random = random.Random(options.seed)
        self.failed = 0
        self.runs = 0
        text = "".join(f"Once there were {i} llamas. They ate grass.\n" for i in range(60))
        (folder / "text.txt").write_text(text)

    def train(self, ranks, wrapper=(), rank=None):
        """Runs the training; returns its exit code (negative: ended by a signal) and its stderr."""
        launcher = [self.o.mpiexec, "-n", str(ranks)] if ranks > 1 else []
        environment = {**os.environ, **ENVIRONMENT, "CAPSTAN_CACHE": str(self.folder / "cache"),
                       "SIGNAL_AT_COUNT": str(self.folder / "count")}
        if rank is not None:
            environment["SIGNAL_AT_RANK"] = str(rank)
        done = subprocess.run([*launcher, *wrapper, self.o.program, *COMMAND], cwd=self.folder, env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stderr

    def reset(self):
        shutil.rmtree(self.folder / "out", ignore_errors=True)

    def wrapper(self, number, call, start):
        return [self.o.signal_at, str(int(number)), str(call), start]

    def count(self):
        calls, met = (self.folder / "count").read_text().split()
        return int(calls), int(met)

    def validations(self):
        """The validation losses that the metrics have, as text, with their steps.

        Of the newest version: a run that was interrupted before its first step has begun one, too.
        """
        newest = max((self.folder / "out/logs/csv").iterdir(), key=lambda version: int(version.name.split("_")[1]))
        with open(newest / "metrics.csv", newline="") as file:
            return [(row["step"], row["val_loss"]) for row in csv.DictReader(file) if row["val_loss"]]

    def wrong(self, ranks, number, call, start, rank):
        """Says what is wrong with a run that gets the signal at the call; None if nothing is."""
        self.reset()
        code, words = self.train(ranks, self.wrapper(number, call, start), rank)
        met = self.count()[1] >= 0
        if code not in (0, 128 + number):
            return f"exit code {code}\n{words}"
        if code != 0 and "interrupted" not in words:
            return f"exit code {code} without a word\n{words}"
        # What comes in the last lines of the program changes nothing, and needs no answer.
        if code != 0 and rank in (None, 0) and f"{signal.Signals(number).name}: stopping ..." not in words:
            return f"no answer to the signal\n{words}"
        if not met and code != 0:
            return f"exit code {code} without a signal\n{words}"
        if code == 0 and not (self.folder / "out/report.html").exists():
            return "exit code 0 without a report"
        code, words = self.train(ranks)
        if code != 0:
            return f"resumed: exit code {code}\n{words}"
        if (self.folder / MODEL).read_bytes() != self.model:
            return "resumed: the final model has other bits"
        if self.validations() != self.losses:
            return f"resumed: validations {self.validations()}, not {self.losses}"
        left = [p.name for p in (self.folder / "out").iterdir()
                if p.name.startswith(".") or "capstan-part" in p.name]
        return f"left behind: {left}" if left else None

    def run(self, ranks, start):
        rank = None if ranks == 1 else self.random.randrange(ranks)
        least = 0.0
        if rank:  # it prints no steps: the last part of all of its calls
            least = 0.0 if start == "handlers" else 0.7
            start = "handlers"
        self.reset()
        code, words = self.train(ranks, self.wrapper(signal.SIGTERM, 0, start), rank)
        if code == 77:
            print("skipped: a process may not trace another one here")
            sys.exit(77)
        calls = self.count()[0]
        if code != 0 or calls == 0:
            sys.exit(f"counting calls after '{start}': exit code {code}, {calls} calls\n{words}")
        every = self.o.runs == 0 and ranks == 1 and start != "handlers"
        some = range(1, calls + 1) if every else [self.random.randint(1 + int(least * calls), calls)
                                                   for _ in range(self.o.runs or 200)]
        for call in some:
            number = self.random.choice(SIGNALS)
            self.runs += 1
            why = self.wrong(ranks, number, call, start, rank)
            if why:
                self.failed += 1
                print(f"{ranks} rank(s), {number.name} at call {call} of {calls} after '{start}', rank {rank}: {why}")

    def all(self):
        for ranks in (1, 2) if self.o.mpiexec else (1,):
            self.reset()
            code, words = self.train(ranks)
            if code != 0:
                sys.exit(f"exit code {code}\n{words}")
            self.model, self.losses = (self.folder / MODEL).read_bytes(), self.validations()
            for start in (f"step {STEPS} |", "handlers"):
                self.run(ranks, start)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("signal_at", type=os.path.abspath)
    parser.add_argument("--mpiexec")
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        storm = Storm(options, Path(folder))
        storm.all()
    print(f"storm: {storm.runs - storm.failed} of {storm.runs} runs lost nothing")
    return 1 if storm.failed else 0


if __name__ == "__main__":
    sys.exit(main())
