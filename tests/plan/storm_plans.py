#!/usr/bin/env python3
"""Judges runs drawn at random: what is said to fit must fit on every rank, and what is proposed, too.

    storm_plans.py TEST_PLAN [--cases N] [--seed S]

N cases begin with seed S, which is random if it is not given; a third of them or more are within a
tenth of the limit. A failure names the seed of its case: --seed THAT --cases 1 repeats it.
"""

import argparse
import os
import random
import subprocess
import sys

AT_ONCE = 50  # cases of a process, so that failures are told early


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    o = parser.parse_args()
    print(f"seed {o.seed}, {o.cases} cases", flush=True)
    failed = 0
    for first in range(0, o.cases, AT_ONCE):
        environment = {**os.environ, "CAPSTAN_STORM_SEED": str(o.seed + first),
                       "CAPSTAN_STORM_CASES": str(min(AT_ONCE, o.cases - first))}
        failed += subprocess.run([o.program, "--gtest_brief=1", "--gtest_filter=RandomVerdicts.*"],
                                 env=environment, check=False).returncode != 0
    print("all hold" if failed == 0 else f"{failed} groups of {AT_ONCE} cases have failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
