#!/usr/bin/env python3
"""Times LitGPT's own encoding of a file of records: tokenize_peer.py FOLDER RECORDS.json

Needs the package litgpt. Walks litgpt.data.base.SFTDataset with the Alpaca style, which is what its
fine-tuning does for every sample; bench_tokenize measures ours on the same.
"""

import json
import sys
import time

from litgpt.data.base import SFTDataset
from litgpt.prompts import Alpaca
from litgpt.tokenizer import Tokenizer


def main(folder, records):
    start = time.perf_counter()
    tokenizer = Tokenizer(folder)
    load = time.perf_counter() - start
    with open(records, encoding="utf-8") as file:
        data = json.load(file)
    dataset = SFTDataset(data, tokenizer, Alpaca())
    for _ in range(3):
        start = time.perf_counter()
        tokens = sum(len(dataset[i]["input_ids"]) for i in range(len(dataset)))
        seconds = time.perf_counter() - start
        print(f"load {load:.3f} s, {len(data)} records in {seconds:.3f} s: "
              f"{len(data) / seconds:.0f} records/s, {tokens} tokens")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
