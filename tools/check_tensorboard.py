#!/usr/bin/env python3
"""Compares what TensorBoard reads from a folder of event files with the metrics.csv of the run.

  check_tensorboard.py FOLDER METRICS_CSV

Every value of the csv must be a point at its step, equal as a float, in the csv's order, and there
must be no other points. Needs tensorboard (from PyPI). Exits with 1, after a line per difference.
"""

import csv
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

TAGS = ["epoch", "iter", "iter_time", "learning_rate", "loss", "tokens", "total_tokens", "val_loss",
        "val_ppl"]


def as_float32(text):
    return struct.unpack("f", struct.pack("f", float(text)))[0]


def points_of_csv(path):
    points = {tag: [] for tag in TAGS}
    with open(path, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for tag in TAGS:
                if row[tag] != "" and not (tag == "tokens" and row[tag] == "0"):
                    points[tag].append((int(row["step"]), as_float32(row[tag])))
    return points


def points_of_tensorboard(folder):
    events = EventAccumulator(folder, size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()["scalars"]
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] if tag in tags else []
            for tag in TAGS}


def main(arguments):
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    found, expected = points_of_tensorboard(arguments[0]), points_of_csv(arguments[1])
    differences = 0
    for tag in TAGS:
        if found[tag] != expected[tag]:
            differences += 1
            print(f"{tag}: the csv has {expected[tag]}, TensorBoard reads {found[tag]}")
    total = sum(len(points) for points in expected.values())
    print(f"tensorboard: {total} points, {differences} tag(s) differ")
    return 1 if differences or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
