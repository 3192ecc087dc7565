#!/usr/bin/env bash
# Builds, tests and runs Capstan. `./do help` lists the commands.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

FUZZ_SECONDS=${FUZZ_SECONDS:-}
# Formatting differs between versions, so one is chosen; Debian 12 and Ubuntu 24.04 both have it.
readonly CLANG_FORMAT=clang-format-14

# Debian's and Ubuntu's names of what each part needs.
readonly BUILD_PACKAGES=(g++ cmake ninja-build libopenblas-dev libfmt-dev libspdlog-dev
  nlohmann-json3-dev libcli11-dev libyaml-cpp-dev libssl-dev libicu-dev libsentencepiece-dev
  libcurl4-openssl-dev)
readonly TEST_PACKAGES=(libgtest-dev python3 python3-venv libopenmpi-dev openmpi-bin)
readonly PACKAGE_PACKAGES=(libopenmpi-dev dpkg-dev file gzip)
readonly BENCH_PACKAGES=(libbenchmark-dev)
# The sanitizers' libraries carry Clang's version, which is the release's.
# shellcheck source=/dev/null
case $([[ -r /etc/os-release ]] && . /etc/os-release && echo "$ID $VERSION_ID") in
  "debian 12") clang_runtime=libclang-rt-14-dev ;;
  "ubuntu 24.04") clang_runtime=libclang-rt-18-dev ;;
  *) clang_runtime=libclang-rt-dev ;;
esac
readonly CLANG_PACKAGES=(clang "$clang_runtime" libomp-dev)
readonly FORMAT_PACKAGES=("$CLANG_FORMAT")

usage() {
  cat <<'END'
usage: ./do COMMAND

  demo             build the program and let it show what it does
  test             check format and layers, build, run every test, some of them and every parser's
                   fuzzer under AddressSanitizer and UBSan, and compile for CUDA where nvcc is
  asan             run the tests of everything that parses under AddressSanitizer and UBSan
  fuzz             run every fuzzer for a minute
  storm NAME [ARGUMENT…]
                   the long form of a test that chooses its cases at random, with the seed printed:
                   ends (signals at any system call of a training), trackers (their files damaged, runs
                   killed at their end), plans (whether what is said to fit does, on every rank);
                   --seed S repeats one
  gpu-test         build with CUDA and run the tests of ops, models and runs on this machine's GPU
  gpu-check        run the tests of ops on this machine's GPU under compute-sanitizer: memory, then
                   races; not those of measured products and numbers of threads; takes minutes
  gpu-bench [PEER] build with CUDA and time training steps on this machine's GPU, beside a program
                   of yours such as bench/gpu_compare.py describes
  package [cuda]   make Debian packages, for any processor of this architecture, in build/package;
                   cuda: for NVIDIA GPUs, with the CUDA toolkit that is here
  build [PRESET]   build everything of a preset: cpu (default), cuda, asan, tsan, fuzz
  bench            build and run the benchmarks
  format [--check] format the sources, or say which ones are not formatted
  clean            remove what was built
  help             print this

Missing packages are installed with apt-get, unless CAPSTAN_NO_APT is set. FUZZ_SECONDS is the time of each fuzzer: 60, in `test` 10.
END
}

say() { printf '\n== %s\n' "$*"; }
die() { printf 'do: %s\n' "$*" >&2; exit 1; }

# need PACKAGE…: installs those that are missing. Touches no network when none is.
need() {
  local missing=() package
  [[ -n ${CAPSTAN_NO_APT:-} ]] && return
  command -v apt-get >/dev/null ||
    die "no apt-get here. Install the equivalents of: $* - then set CAPSTAN_NO_APT=1"
  for package in "$@"; do
    if [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) != installed ]]; then
      missing+=("$package")
    fi
  done
  ((${#missing[@]})) || return 0
  say "installing ${missing[*]}"
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get)
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "not root and no sudo. As root, run: apt-get install ${missing[*]}"
    apt=(sudo "${apt[@]}")
  fi
  if ! { "${apt[@]}" update -qq &&
         "${apt[@]}" install -y -qq --no-install-recommends "${missing[@]}"; }; then
    die "could not install ${missing[*]}. Is the network up, and do the package lists have them? If" \
      "you have them from elsewhere, set CAPSTAN_NO_APT=1"
  fi
}

# build PRESET [TARGET…]: configures and builds.
build() {
  local preset=$1; shift
  local targets=()
  (($#)) && targets=(--target "$@")
  local configure=("${CONFIGURE[@]}")
  # Sanitizers bring false warnings of their own.
  [[ -n $STRICT && $preset == c* ]] && configure+=(-DCAPSTAN_WERROR=ON)
  # A new tree is compiled several files at once, in half the time; one that is there stays as it is.
  case $preset in
    cpu | package) [[ -f build/$preset/CMakeCache.txt ]] || configure+=(-DCAPSTAN_UNITY=ON) ;;
  esac
  cmake --preset "$preset" --log-level=WARNING "${configure[@]}"
  # After an error it goes on with the rest, so that one broken file does not hide the other tests.
  cmake --build --preset "$preset" --parallel "$(nproc)" "${targets[@]}" -- -k 0 | show_build
}

# Turns ninja's "[3/196] Building …" into one line with the time that is left: redrawn on a terminal,
# a line for every tenth elsewhere. Everything else, errors above all, passes through.
show_build() {
  local start=$SECONDS shown= line text left spent
  clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }
  while IFS= read -r line; do
    if [[ ! $line =~ ^\[([0-9]+)/([0-9]+)\]\  ]]; then
      [[ -t 1 && -n $shown ]] && printf '\r\033[K'
      printf '%s\n' "$line"
      continue
    fi
    local done=${BASH_REMATCH[1]} of=${BASH_REMATCH[2]}
    ((done > 0)) || continue  # it looks for new files
    [[ ! -t 1 && $((10 * done / of)) == "$shown" ]] && continue
    shown=$((10 * done / of))
    spent=$((SECONDS - start))
    text="built $done of $of, $(clock $spent)"
    left=$((spent * (of - done) / done))
    ((spent > 2 && done < of)) && text+=", about $(clock $left) left"
    if [[ -t 1 ]]; then printf '\r\033[K%s' "$text"; else printf '%s\n' "$text"; fi
  done
  if [[ -t 1 && -n $shown ]]; then echo; fi
}
CONFIGURE=()  # further arguments of the configuration
STRICT=       # set: warnings are errors, for those who change the code; never for those who use it

# The targets of a configured preset whose names match, one per line.
targets_of() {
  cmake --build --preset "$1" --target help | sed -nE "s/^($2): .*/\1/p" | sort -u
}

sources() {
  find src tests bench tools -type f \( -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \)
}

check_format() {
  command -v "$CLANG_FORMAT" >/dev/null || { echo "skipped: no $CLANG_FORMAT"; return; }
  if ! sources | xargs -r -n 32 -P "$(nproc)" "$CLANG_FORMAT" --dry-run -Werror; then
    echo "format: run ./do format"
    return 1
  fi
  echo "format: in order"
}

do_format() {
  need "${FORMAT_PACKAGES[@]}"
  case ${1:-} in
    --check) check_format ;;
    '') sources | xargs -r "$CLANG_FORMAT" -i ;;
    *) die "format: '$1'? Only --check can follow" ;;
  esac
}

do_build() {
  need "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
  case ${1:-cpu} in
    cpu) need "${BENCH_PACKAGES[@]}" ;;
    tsan | fuzz) need "${CLANG_PACKAGES[@]}" ;;
  esac
  build "${1:-cpu}"
}

do_package() {
  local preset=package${1:+-$1}
  [[ -z ${1:-} || $1 == cuda ]] || die "package: expected nothing or cuda, found '$1'"
  need "${BUILD_PACKAGES[@]}" "${PACKAGE_PACKAGES[@]}"
  build "$preset"
  cmake --build --preset "$preset" --target package_files
  tools/check_hardening.sh "build/$preset/capstan" "build/$preset"/libcapstan_*.so ||
    die "package: the compiler left out a protection"
  (cd "build/$preset" && rm -f ./*.deb && cpack --config CPackConfig.cmake >/dev/null)
  ls -1 "build/$preset"/*.deb
}

do_demo() {
  need "${BUILD_PACKAGES[@]}"
  # The tests would need packages of their own; a tree that has them already keeps them.
  [[ -f build/cpu/CMakeCache.txt ]] || CONFIGURE=(-DCAPSTAN_TESTS=OFF -DCAPSTAN_BENCH=OFF)
  say "building capstan (once; about 4 minutes on two cores)"
  build cpu capstan
  say "capstan demo"
  build/cpu/capstan demo
}

do_bench() {
  need "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}" "${BENCH_PACKAGES[@]}"
  say "building the benchmarks"
  build cpu
  [[ -x bench/run.sh ]] || die "bench/run.sh is not there"
  bench/run.sh
}

do_asan() {
  need "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
  run_asan 'base|checkpoint|model|data|recipe'
}

do_fuzz() {
  need "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}" "${CLANG_PACKAGES[@]}"
  run_fuzzers 60
}

need_gpu() {
  command -v nvcc >/dev/null || die "no nvcc: install the CUDA toolkit, version 12 or later"
  [[ -e /dev/nvidiactl ]] || die "no NVIDIA GPU on this machine"
}
do_gpu-test() {
  need "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
  need_gpu
  local program shard shards processes=()
  STRICT=1
  local programs=(test_tensor test_model test_checkpoint test_infer test_train test_plan test_run test_bench test_doctor)
  build cuda test_ops "${programs[@]}"
  export CAPSTAN_CACHE=$PWD/build/cuda/tests/cache
  # Most of the time of these tests is that of their references on the CPU.
  shards=$(nproc)
  ((shards <= 8)) || shards=8
  for ((shard = 0; shard < shards; ++shard)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard OMP_NUM_THREADS=2 \
      build/cuda/tests/test_ops --gtest_brief=1 --gtest_filter='*/cuda:*Sim*' &
    processes+=($!)
  done
  for shard in "${!processes[@]}"; do wait "${processes[shard]}" || die "test_ops: tests failed, see above"; done
  for program in "${programs[@]}"; do
    "build/cuda/tests/$program" --gtest_brief=1 --gtest_filter='*cuda*:*Gpu*:CopiesAhead*:Nvml.*:Doctor.*:Accelerators.*:MachineBench.*'
  done
}
# check_ops TOOL: the tests of ops under compute-sanitizer, several processes at a time. Some tests
# take a hundred times as long as others, so there are more parts than processes. Races in kernels of
# cuBLAS are not ours to judge.
check_ops() {
  local tool=$1 shard shards most processes=() log failed=0 passed all=0 reports why
  most=$(nproc)
  ((most <= 16)) || most=16
  shards=$((5 * most))
  say "$tool"
  for ((shard = 0; shard < shards; ++shard)); do
    while (($(jobs -rp | wc -l) >= most)); do sleep 0.2; done
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard OMP_NUM_THREADS=1 compute-sanitizer \
      --tool "$tool" build/cuda/tests/test_ops --gtest_filter='*/cuda:-*Products.*:*Threads*' \
      &>"build/log/$tool-$shard.txt" &
    processes+=($!)
  done
  for shard in "${!processes[@]}"; do
    log=build/log/$tool-$shard.txt why=
    # By default the exit status is that of the tests: races of cuBLAS do not change it.
    wait "${processes[shard]}" || why="exit status $?"
    passed=$(grep -c '^\[ *OK' "$log") || why="no test passed"
    all=$((all + passed))
    case $tool in
      memcheck) reports=$(sed -n 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p' "$log") ;;
      *) reports=$(awk '/Race reported.*capstan/ { ++n } /RACECHECK SUMMARY/ { print n + 0 }' "$log") ;;
    esac
    [[ $reports == 0 ]] || why="${reports:-unfinished, unknown} reports"
    grep -q '^\[  PASSED' "$log" || why=${why:-"tests failed"}
    grep -q 'Internal Sanitizer Error' "$log" && why="an error of the sanitizer itself"
    [[ -z $why ]] || { echo "$log: $why"; failed=1; }
  done
  echo "$all tests passed"
  return $failed
}
do_storm() {
  local name=${1:-} script
  (($#)) && shift
  script=$(find tests -name "storm_$name.py")
  [[ -n $script ]] || die "no storm '$name'; there are: $(find tests -name 'storm_*.py' -printf '%f ' | sed 's/storm_//g; s/\.py//g')"
  need "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
  if [[ $name == plans ]]; then
    build cpu test_plan
    python3 "$script" build/cpu/tests/test_plan "$@"
    return
  fi
  build cpu capstan signal_at
  python3 "$script" build/cpu/capstan build/cpu/tests/signal_at --mpiexec="$(command -v mpiexec || true)" "$@"
}
do_gpu-check() {
  need "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
  need_gpu
  command -v compute-sanitizer >/dev/null || die "no compute-sanitizer: it comes with the CUDA toolkit"
  build cuda test_ops
  mkdir -p build/log
  export CAPSTAN_CACHE=$PWD/build/cuda/tests/cache
  local failed=0
  check_ops memcheck || failed=1
  check_ops racecheck || failed=1
  ((failed == 0)) || die "compute-sanitizer found something: see build/log"
}
do_gpu-bench() {
  need "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}" "${BENCH_PACKAGES[@]}"
  need_gpu
  CONFIGURE=(-DCAPSTAN_BENCH=ON)
  build cuda bench_step
  if [[ -n ${1:-} ]]; then
    python3 bench/gpu_compare.py build/cuda/bench/bench_step "$@"
    return
  fi
  build/cuda/bench/bench_step tinyllama:bf16-true:8:512:4 tinyllama:bf16-true:8:2048:1 \
    openllama-7b:bf16-true:4:512:1:lora-all+qlora-all openllama-7b:bf16-true:4:512:1:block:9:qlora-all
}

# Python with the programs that must open what we write (transformers, peft, TensorBoard), in
# build/python. Tests that need it look for CAPSTAN_PYTHON and are skipped without.
readonly PEERS=(torch==2.6.0 transformers==5.22.2 peft==0.21.2 safetensors tensorboard numpy)
make_python() {
  if [[ -n ${CAPSTAN_PYTHON:-} ]]; then echo "using $CAPSTAN_PYTHON"; return; fi
  # The wheel for Arm computes on the CPU alone; that for x86-64 brings 3 GB of CUDA along.
  [[ $(uname -m) == aarch64 || -n ${CI:-} ]] ||
    { echo "skipped: set CAPSTAN_PYTHON to a Python with ${PEERS[*]}, or CI=1 to download them (3 GB)"; return; }
  [[ -x build/python/bin/python ]] || python3 -m venv build/python
  # A machine that is thrown away afterwards needs no cache; modules are compiled when they are used.
  build/python/bin/pip install --quiet --disable-pip-version-check --no-compile ${CI:+--no-cache-dir} "${PEERS[@]}" ||
    { rm -rf build/python; echo "skipped: could not install ${PEERS[*]}"; }
}

# While it comes, there is time to build: started before, and waited for after that.
start_python() {
  rm -f build/python.done
  (make_python &>build/python.txt; touch build/python.done) &
}
finish_python() {
  local second
  for ((second = 0; second < 900; ++second)); do
    [[ ! -e build/python.done ]] || break
    sleep 1
  done
  cat build/python.txt
}

# The stages of `test`.
check_layers() { python3 tools/check_layers.py --self-test && python3 tools/check_layers.py; }
run_ctest() {
  [[ -n ${CAPSTAN_PYTHON:-} || ! -x build/python/bin/python ]] ||
    export CAPSTAN_PYTHON=$PWD/build/python/bin/python
  # Those that mostly wait, for servers and for time to pass, run beside the others.
  local waiting status=0
  ctest --preset cpu -L waits --no-tests=ignore --output-junit "$PWD/build/log/ctest-waits.xml" &>build/log/waits.log &
  waiting=$!
  ctest --preset cpu -LE waits --parallel "$(nproc)" --output-junit "$PWD/build/log/ctest.xml" || status=$?
  wait "$waiting" || status=$?
  cat build/log/waits.log
  return "$status"
}

# run_asan LAYERS: the test programs of those layers, where they exist; LAYERS is a pattern.
run_asan() {
  local programs
  cmake --preset asan --log-level=ERROR >/dev/null
  mapfile -t programs < <(targets_of asan "test_($1)")
  build asan "${programs[@]}"
  local program filter failed=0
  for program in "${programs[@]}"; do
    filter='*'
    [[ $program == test_model ]] && filter='*Config*'
    # A thousand processes that die on purpose: nothing that a sanitizer would see, and minutes of it.
    [[ $program == test_checkpoint ]] && filter='-EveryCall/*'
    "build/asan/tests/$program" --gtest_brief=1 --gtest_filter="$filter" || failed=1
  done
  return "$failed"
}

# run_fuzzers SECONDS: as many at a time as there are cores, each on the seeds and on what it found earlier.
run_fuzzers() {
  local fuzzers fuzzer pids=() failed=0 corpus seconds=${FUZZ_SECONDS:-$1}
  cmake --preset fuzz --log-level=ERROR >/dev/null  # here, so that a failure is not lost
  mapfile -t fuzzers < <(targets_of fuzz '[a-z0-9_]+_fuzz')
  ((${#fuzzers[@]})) || { echo "skipped: no fuzzers"; return; }
  build fuzz "${fuzzers[@]}"
  python3 tests/fuzz/make_seeds.py build/fuzz
  echo "running ${fuzzers[*]}, $seconds s each"
  mkdir -p build/log
  for fuzzer in "${fuzzers[@]}"; do
    corpus=build/fuzz/corpus/${fuzzer%_fuzz}
    mkdir -p "$corpus"
    while (($(jobs -rp | wc -l) >= $(nproc))); do sleep 1; done
    "build/fuzz/tests/fuzz/$fuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
      -print_final_stats=1 -artifact_prefix="build/fuzz/$fuzzer-" "$corpus" &>"build/log/$fuzzer.txt" &
    pids+=($!)
  done
  for fuzzer in "${!fuzzers[@]}"; do
    wait "${pids[fuzzer]}" || failed=1
    echo "--- ${fuzzers[fuzzer]}"
    tail -n 6 "build/log/${fuzzers[fuzzer]}.txt"
  done
  return "$failed"
}

run_cuda() {
  command -v nvcc >/dev/null || { echo "skipped: no nvcc"; return; }
  cmake --preset cuda --log-level=ERROR >/dev/null  # here, so that a failure is not lost
  # What the stage `build` has compiled without CUDA and that does not know of it is left out.
  local objects
  mapfile -t objects < <(ninja -C build/cuda -t targets all |
    sed -nE 's,^(src/CMakeFiles/capstan_(tensor|ops)\.dir/.*\.o): .*,\1,p' | grep -v /ops/cpu/)
  ((${#objects[@]})) || die "cuda: found no objects of the layers tensor and ops"
  build cuda "${objects[@]}"
}

# stage NAME COMMAND…: runs it in a subshell of its own, notes time and outcome, and goes on.
stage() {
  local name=$1 begin=$SECONDS status log=build/log/$1.txt
  shift
  say "$name"
  mkdir -p build/log
  set +e
  (set -e; "$@") 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  set -e
  local outcome=ok
  if ((status)); then outcome=FAILED; stages_failed=$((stages_failed + 1)); fi
  grep -q '^skipped: ' "$log" && outcome=$(grep -m1 '^skipped: ' "$log")
  summary+=$(printf '  %-10s %5d s  %s' "$name" $((SECONDS - begin)) "$outcome")$'\n'
}

do_test() {
  stages_failed=0 summary=
  STRICT=1
  need "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}" "${BENCH_PACKAGES[@]}" "${FORMAT_PACKAGES[@]}" \
    "${CLANG_PACKAGES[@]}"
  rm -rf build/log
  mkdir -p build
  start_python
  stage format do_format --check
  stage layers check_layers
  stage build build cpu
  stage python finish_python
  stage tests run_ctest
  # The others that parse take minutes to build: `./do asan` has them, and the fuzzers their parsers.
  stage asan run_asan 'base|recipe'
  stage fuzz run_fuzzers 10
  stage cuda run_cuda
  printf '\n%s  %-10s %5d s\n' "$summary" total "$SECONDS"
  python3 tools/test_summary.py "$stages_failed" build/log
  ((stages_failed == 0))
}

command=${1:-help}
(($#)) && shift
case $command in
  build | test | asan | fuzz | storm | demo | package | bench | format | gpu-test | gpu-check | gpu-bench) "do_$command" "$@" ;;
  clean) rm -rf build ;;
  help | -h | --help) usage ;;
  *) usage >&2; die "'$command' is not a command" ;;
esac
