#!/usr/bin/env bash
# Measures the ops, adapters beside whole models, then whole steps beside PyTorch. Called by
# `./do bench`, which has built build/cpu. PyTorch comes into a Python environment of its own, once;
# PYTHON names another that has torch and transformers. CASES overrides what is compared with
# PyTorch, ADAPTERS what is trained beside a whole model.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly CASES=${CASES:-"15m:32-true:8:256:1 110m:32-true:8:256:1"}
readonly ADAPTERS=${ADAPTERS:-"110m:32-true:8:256:1:lora+lora-all+qlora"}
readonly VENV=build/bench-python

build/cpu/bench/bench_ops --benchmark_min_time=0.2
# shellcheck disable=SC2086  # cases are words
build/cpu/bench/bench_step $ADAPTERS

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
