#!/usr/bin/env bash
# Tries what one GPU cannot show: ranks that have a GPU each, as threads of one process and as
# processes with NCCL. Every strategy must give the same weights on both, byte for byte, and two
# runs of each; `bench comm` and a larger model show the speed.
#
# usage: docs/two_gpus.sh [CAPSTAN] [GPUS]      by default build/cuda/capstan 0,1
#
# With GPUS 0,0 two ranks share one GPU: the script itself can be tried so. NCCL then goes through
# sockets, where 500 tokens of the larger model take a second, and so its runs have 2 steps instead of
# 20, and a quarter of their samples.
#
# Needs mpirun and NCCL. Prints a line for each check and ends with the number of those that failed.
set -u
capstan=$(realpath "${1:-build/cuda/capstan}")
gpus=${2:-0,1}
ranks=$(awk -F, '{ print NF }' <<< "$gpus")
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
cat "$root"/docs/*.md "$root"/README.md > text.txt
failed=0

check() { # NAME COMMAND...
  local name=$1
  shift
  if "$@" > last.log 2>&1; then
    echo "ok      $name"
  else
    echo "FAILED  $name:"
    tail -n 5 last.log | sed 's/^/          /'
    failed=$((failed + 1))
  fi
}

# NCCL refuses two ranks on one GPU unless each claims a host of its own.
shared=$(tr , '\n' <<< "$gpus" | sort | uniq -d)
by_threads() { "$capstan" "$@" --devices "[$gpus]"; }
by_nccl() {
  # shellcheck disable=SC2016  # expanded by each rank
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n "$ranks" \
    bash -c '[ -z "$0" ] || export NCCL_HOSTID=h$OMPI_COMM_WORLD_RANK NCCL_SOCKET_IFNAME=lo; exec "$@"' \
    "$shared" "$capstan" "$@" --devices "[$gpus]"
}
by_one() { "$capstan" "$@" --devices 1; }

tiny=(pretrain --data TextFiles --data.train_data_path text.txt --train.max_tokens null
  --train.max_steps 8 --train.global_batch_size 8 --train.micro_batch_size 1 --train.max_seq_length 64
  --train.lr_warmup_steps 2 --train.max_norm 1 --train.save_interval null --logger_name csv --timeout 30)
weights=final/model.safetensors
for strategy in ddp zero1 zero2 zero3 zero3_offload; do
  check "$strategy, threads" by_threads "${tiny[@]}" --strategy $strategy --out_dir "$strategy-threads"
  check "$strategy, threads, again" by_threads "${tiny[@]}" --strategy $strategy --out_dir "$strategy-again"
  check "$strategy, NCCL" by_nccl "${tiny[@]}" --strategy $strategy --out_dir "$strategy-nccl"
  check "$strategy: two runs are equal" cmp "$strategy-threads/$weights" "$strategy-again/$weights"
  check "$strategy: threads and NCCL are equal" cmp "$strategy-threads/$weights" "$strategy-nccl/$weights"
done
check "one rank" by_one "${tiny[@]}" --out_dir one
for schedule in 1f1b interleaved zero_bubble; do
  stages=(--pipeline_parallel "$ranks" --pipeline_schedule "$schedule")
  check "$schedule, threads" by_threads "${tiny[@]}" "${stages[@]}" --out_dir "$schedule-threads"
  check "$schedule, NCCL" by_nccl "${tiny[@]}" "${stages[@]}" --out_dir "$schedule-nccl"
  check "$schedule: threads and one rank are equal" cmp "$schedule-threads/$weights" "one/$weights"
  check "$schedule: threads and NCCL are equal" cmp "$schedule-threads/$weights" "$schedule-nccl/$weights"
done
for mesh in tensor overlapped context; do
  shares=(--"${mesh/overlapped/tensor}"_parallel "$ranks")
  [[ $mesh == overlapped ]] && shares+=(--tensor_parallel_overlap true)
  check "$mesh, threads" by_threads "${tiny[@]}" "${shares[@]}" --self_check true --out_dir "$mesh-threads"
  check "$mesh, NCCL" by_nccl "${tiny[@]}" "${shares[@]}" --out_dir "$mesh-nccl"
  check "$mesh: threads and NCCL are equal" cmp "$mesh-threads/$weights" "$mesh-nccl/$weights"
done
check "self_check on the ranks" by_threads "${tiny[@]}" --strategy zero3 --self_check true --out_dir self

steps=20 batch=32
[[ -n $shared ]] && steps=2 batch=8
large=(pretrain TinyLlama-1.1B --precision bf16-true --data TextFiles --data.train_data_path text.txt
  --train.max_tokens null --train.max_steps $steps --train.global_batch_size $batch --train.micro_batch_size $((batch / 4))
  --train.max_seq_length 512 --train.lr_warmup_steps 2 --eval.interval 1000 --train.save_interval null
  --logger_name csv)
for overlap in false true false true; do
  check "TinyLlama-1.1B, layers shared, overlap $overlap" by_nccl "${large[@]}" \
    --tensor_parallel "$ranks" --tensor_parallel_overlap $overlap --out_dir large
  grep -E "tok/s|slowest" last.log | sed 's/^/          /'
  rm -rf large
done
for way in by_one by_threads by_nccl; do
  for strategy in ddp zero3; do
    check "TinyLlama-1.1B, $strategy, $way" "$way" "${large[@]}" --strategy $strategy --out_dir large
    grep -E "tok/s|^ +[0-9]+ .*%|slowest" last.log | sed 's/^/          /'
    rm -rf large
  done
done
for mesh in tensor context; do
  for way in by_threads by_nccl; do
    check "TinyLlama-1.1B, $mesh, $way" "$way" "${large[@]}" --"$mesh"_parallel "$ranks" --out_dir large
    grep -E "tok/s|^ +[0-9]+ .*%|slowest" last.log | sed 's/^/          /'
    rm -rf large
  done
done
check "bench comm, threads" "$capstan" bench comm --quick --devices "[$gpus]"
grep -E "GB/s|MiB" last.log | sed 's/^/          /'
echo "$failed failed"
[ "$failed" = 0 ]
