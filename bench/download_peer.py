#!/usr/bin/env python3
"""Times `capstan download` and `hf download` by turns, from a hub on loopback into memory.

usage: download_peer.py CAPSTAN [--gigabytes G] [--turns N]     (with huggingface_hub installed)

Capstan verifies every byte (SHA-256); the peer compares sizes alone. The hub is a Python program that
shares the machine with both.
"""

import argparse
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "hub"))
from test_hub import Hub, Repository  # noqa: E402

PEER = ("import sys, huggingface_hub as h; h.snapshot_download(sys.argv[1], local_dir=sys.argv[2])")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("capstan")
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()
    shards = 4
    size = int(args.gigabytes * 1e9 / shards)
    files = {"config.json": b"{}", "model.safetensors.index.json": b"{}"}
    for s in range(shards):
        files[f"model-{s + 1:05}-of-{shards:05}.safetensors"] = random.Random(s).randbytes(1 << 20) * (size >> 20)
    hub = Hub()
    hub.repositories["maker/large"] = Repository(files)
    bytes_in_all = sum(map(len, files.values()))
    rates = {"capstan": [], "hf": []}
    for turn in range(args.turns + 1):
        for who in rates:
            with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
                environment = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HOME": folder + "/home",
                               "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
                command = ([str(pathlib.Path(args.capstan).resolve()), "download", "maker/large"] if who == "capstan"
                           else [sys.executable, "-c", PEER, "maker/large", folder + "/theirs"])
                start = time.perf_counter()
                subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
                if turn > 0:  # the first warms up
                    rates[who].append(bytes_in_all / 1e6 / (time.perf_counter() - start))
    for who, all_of_it in rates.items():
        print(f"{who}: median {statistics.median(all_of_it):.0f} MB/s of {[round(r) for r in all_of_it]}")
    print(f"ratio: {statistics.median(rates['capstan']) / statistics.median(rates['hf']):.2f}")


if __name__ == "__main__":
    main()
