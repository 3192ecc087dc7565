#!/usr/bin/env python3
"""The tests of trackers that choose their cases at random, for longer: files that are damaged, runs killed at their end.

    storm_trackers.py PROGRAM [--runs N] [--seed S]

The tests are in trackers_test.py. Other arguments of `./do storm` are for other storms.
"""

import argparse
import os
import pathlib
import random
import runpy
import sys

parser = argparse.ArgumentParser()
parser.add_argument("program")
parser.add_argument("others", nargs="*")
parser.add_argument("--mpiexec")
parser.add_argument("--runs", type=int, default=200)
parser.add_argument("--seed", type=int, default=random.randrange(2**32))
options = parser.parse_args()
print(f"seed {options.seed}, {options.runs} runs of each", flush=True)
os.environ.update(CAPSTAN_STORM=str(options.runs), CAPSTAN_SEED=str(options.seed))
test = str(pathlib.Path(__file__).with_name("trackers_test.py"))
sys.argv = [test, options.program, "-v", "TrackerTest.test_damage_at_random", "TrackerTest.test_killed_at_its_end"]
runpy.run_path(test, run_name="__main__")
