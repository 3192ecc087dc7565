#!/usr/bin/env python3
"""Two hosts on one machine, whose link is as slow as wanted: how much of the communication of a step
do the ranks hide, and does the plan know?

    sudo bench/slow_link.py build/cpu/capstan [--rates 620,930] [--strategies ddp,zero3]

Each host is a network namespace with one rank of one thread; a token bucket limits what it sends, in
megabits per second. A step of one rank alone, with the same batch, is the computation. The model has 29
million parameters, of which 14% are in the embedding and the head, as in models of a billion: nothing
can hide the sum of the embedding's gradients, which are complete last.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HOSTS = {"10.99.0.2": "capstan-a", "10.99.0.3": "capstan-b"}
BRIDGE = "capstan-br"


def sh(*words, check=True, **more):
    return subprocess.run([str(w) for w in words], check=check, **more)


def make_hosts(rate):
    sh("ip", "link", "add", BRIDGE, "type", "bridge")
    sh("ip", "addr", "add", "10.99.0.1/24", "dev", BRIDGE)
    sh("ip", "link", "set", BRIDGE, "up")
    for i, (address, name) in enumerate(HOSTS.items()):
        outside, inside = f"cap{i}o", f"cap{i}i"
        sh("ip", "netns", "add", name)
        sh("ip", "link", "add", outside, "type", "veth", "peer", "name", inside)
        sh("ip", "link", "set", inside, "netns", name)
        sh("ip", "link", "set", outside, "master", BRIDGE, "up")
        sh("ip", "netns", "exec", name, "ip", "addr", "add", f"{address}/24", "dev", inside)
        sh("ip", "netns", "exec", name, "ip", "link", "set", inside, "up")
        sh("ip", "netns", "exec", name, "ip", "link", "set", "lo", "up")
        sh("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", inside, "root", "tbf", "rate",
           f"{rate}mbit", "burst", "32k", "latency", "3ms")


def remove_hosts():
    for name in HOSTS.values():
        sh("ip", "netns", "del", name, check=False, stderr=subprocess.DEVNULL)
    sh("ip", "link", "del", BRIDGE, check=False, stderr=subprocess.DEVNULL)


class Bench:
    def __init__(self, program, folder, steps):
        self.program, self.folder = pathlib.Path(program).resolve(), folder
        self.env = dict(os.environ, OMP_NUM_THREADS="1", CAPSTAN_CACHE=str(folder / "cache"),
                        OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        (folder / "text.txt").write_text("Once there was a llama. It ate grass.\n" * 20000)
        agent = folder / "agent"
        names = "\n".join(f"  {a}) name={n};;" for a, n in HOSTS.items())
        agent.write_text('#!/bin/bash\nhost=$1; shift\ncase $host in\n' + names + '\nesac\n'
                         'exec nsenter --net=/var/run/netns/$name bash -c "$*"\n')
        agent.chmod(0o755)
        self.mpirun = ["mpirun", "--host", ",".join(HOSTS), "-n", "2", "--mca", "plm", "rsh",
                       "--mca", "plm_rsh_agent", agent, "--mca", "btl", "tcp,self",
                       # Daemons that start together on one machine trip over its topology.
                       "--mca", "rtc", "^hwloc", "--mca", "hwloc_base_use_topo_shmem", "0",
                       "--mca", "oob_tcp_if_include", "10.99.0.0/24",
                       "--mca", "btl_tcp_if_include", "10.99.0.0/24",
                       "-x", "OMP_NUM_THREADS", "-x", "CAPSTAN_CACHE"]
        self.steps = steps

    def run(self, *words, ranks=1):
        before = self.mpirun if ranks == 2 else []
        r = sh(*before, self.program, *words, check=False, cwd=self.folder, env=self.env,
               capture_output=True, text=True)
        if r.returncode != 0:
            sys.exit(f"{' '.join(map(str, words))}: exit {r.returncode}\n{r.stderr[-2000:]}")
        return r.stdout

    def step_seconds(self, name, ranks, *more):
        """The mean step after the first, and the time that the plan predicted."""
        out = self.run("pretrain", "--accelerator=cpu", "--precision=32-true", "--data=TextFiles",
                       "--data.train_data_path=text.txt", "--model.hidden_size=512",
                       "--model.intermediate_size=1376", "--model.num_hidden_layers=8",
                       "--model.num_attention_heads=8", "--model.vocab_size=4096",
                       "--train.max_seq_length=256", "--train.micro_batch_size=4",
                       f"--train.global_batch_size={4 * ranks}", "--train.max_tokens=null",
                       f"--train.max_steps={self.steps}", "--train.lr_warmup_steps=1",
                       "--train.save_interval=null", "--eval.interval=100000",
                       "--data.packed=false", f"--out_dir={name}", "--logger_name=csv", *more,
                       ranks=ranks)
        found = re.search(r"Step Time +: +([0-9.]+) s(?: \(([0-9.]+) s predicted)?", out)
        return float(found[1]), float(found[2]) if found[2] else None, out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--rates", default="620,930", help="megabits per second")
    parser.add_argument("--strategies", default="ddp,zero3")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="a shorter calibration")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(o.program, pathlib.Path(folder), o.steps)
        bench.run("bench", "--accelerator=cpu", *(["--quick"] if o.quick else []))
        alone, predicted, _ = bench.step_seconds("alone", 1)
        print(f"one rank: {alone:.2f} s a step" + (f", predicted {predicted:.2f} s" if predicted else ""))
        for rate in o.rates.split(","):
            try:
                make_hosts(rate)
                table = bench.run("bench", "comm", "--accelerator=cpu", "--quick", ranks=2)
                print(f"{rate} Mbit/s:" + next(l for l in table.splitlines() if "among 2" in l))
                for strategy in o.strategies.split(","):
                    took, predicted, out = bench.step_seconds(f"{strategy}-{rate}", 2,
                                                              f"--strategy={strategy}")
                    print(f"  {strategy}: {took:.2f} s a step, {took / alone:.2f} of the computation"
                          + (f"; predicted {predicted:.2f} s, {predicted / took - 1:+.0%}"
                             if predicted else ""))
                    for line in out.splitlines():
                        if line.strip().startswith(("rank ", "0 ", "1 ")):
                            print("   ", line)
            finally:
                remove_hosts()


if __name__ == "__main__":
    main()
