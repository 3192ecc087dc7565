#!/usr/bin/env bash
# Measures the ops, then whole steps beside PyTorch. Called by `./do bench`, which has built
# build/cpu. PyTorch comes into a Python environment of its own, once; PYTHON names another that
# has torch and transformers. CASES overrides what is compared.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly CASES=${CASES:-"15m:32-true:8:256:1 110m:32-true:8:256:1"}
readonly VENV=build/bench-python

build/cpu/bench/bench_ops --benchmark_min_time=0.2

if [[ -z ${PYTHON:-} ]]; then
  PYTHON=$VENV/bin/python
  if [[ ! -x $PYTHON ]]; then
    echo "installing torch and transformers into $VENV"
    python3 -m venv "$VENV"
    "$VENV/bin/pip" install --quiet torch transformers
  fi
fi
# shellcheck disable=SC2086  # cases are words
python3 bench/compare.py build/cpu/bench/bench_step "$PYTHON" $CASES
