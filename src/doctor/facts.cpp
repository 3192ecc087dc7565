#include "doctor/facts.h"

#include <fcntl.h>
#include <omp.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/control_group.h"
#include "base/error.h"
#include "base/process_limits.h"
#include "base/rng.h"
#include "data/tokenizer/unicode.h"
#include "machine/memory.h"
#include "machine/name.h"
#include "ops/cpu/blas.h"
#include "ops/linear.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

CpuFacts cpu_facts() {
  CpuFacts c;
  c.model = cpu_model();
  c.cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  c.usable = usable_cores();
  c.memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  c.available = available_memory(Device::cpu);
  const GroupLimits limits = group_limits();
  c.memory_limit = limits.memory;
  if (const auto own = process_limits().memory)
    c.memory_limit = std::min(*own, c.memory_limit.value_or(*own));
  c.quota = limits.cores;
  return c;
}

GpuState gpu_state() {
  GpuState g;
  std::string_view why;
  if (cuda_present(&why)) {
    try {
      g.cuda = cuda_facts();
    } catch (const Error& e) {
      g.cuda_why_not = e.what();
    }
  } else {
    g.cuda_why_not = why;
  }
  const Nvml nvml;
  g.nvml_why_not = nvml.why_not();
  g.driver_version = nvml.driver_version();
  const auto current = g.cuda ? nvml.find(g.cuda->bus_id) : std::nullopt;
  for (int i = 0; i < nvml.count(); ++i) g.boards.push_back({nvml.facts(i), current == i});
  return g;
}

// A file that the destructor removes.
struct Trial {
  std::string path;
  int file;
  explicit Trial(const fs::path& folder)
      : path((folder / ".capstan-doctor-XXXXXX").string()), file(mkstemp(path.data())) {}
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
  ~Trial() {
    if (file < 0) return;
    close(file);
    unlink(path.c_str());
  }
};

DiskFacts disk_facts(fs::path folder) {
  constexpr size_t kBlock = 1 << 20;
  constexpr int kBlocks = 64;
  std::error_code error;
  folder = fs::absolute(folder, error);
  while (!fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  DiskFacts d{.folder = folder.string(), .free = 0, .bytes_per_second = 0, .why_not = ""};
  if (!fs::is_directory(folder, error)) {
    d.why_not = "is a file";
    return d;
  }
  if (const auto space = fs::space(folder, error); !error)
    d.free = static_cast<int64_t>(space.available);
  const Trial trial(folder);
  // Not zeros, which some file systems do not store.
  std::vector<uint64_t> block(kBlock / sizeof(uint64_t));
  const Rng rng({.seed = 1});
  for (size_t i = 0; i < block.size(); ++i) block[i] = rng.draws(i)[0] * 0x100000001ull;
  const auto start = std::chrono::steady_clock::now();
  bool written = trial.file >= 0;
  for (int i = 0; written && i < kBlocks; ++i)
    written = write(trial.file, block.data(), kBlock) == static_cast<ssize_t>(kBlock);
  written = written && fsync(trial.file) == 0;
  if (!written) d.why_not = std::strerror(errno != 0 ? errno : ENOSPC);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (written) d.bytes_per_second = static_cast<double>(kBlock) * kBlocks / took.count();
  return d;
}

ContainerFacts container_facts() {
  ContainerFacts c;
  std::error_code error;
  const auto is_there = [&](const char* path) { return std::filesystem::exists(path, error); };
  if (is_there("/.dockerenv"))
    c.kind = "Docker";
  else if (is_there("/run/.containerenv"))
    c.kind = "Podman";
  else if (is_there("/.singularity.d"))
    c.kind = "Apptainer";
  else if (std::getenv("container") != nullptr)
    c.kind = "a container";
  const auto space = std::filesystem::space("/dev/shm", error);
  if (!error) c.shared_memory = static_cast<int64_t>(space.capacity);
  c.nvidia = is_there("/dev/nvidiactl") || is_there("/dev/dxg");
  return c;
}

LimitFacts limit_facts() {
  LimitFacts l;
  rlimit r{};
  if (getrlimit(RLIMIT_MEMLOCK, &r) == 0 && r.rlim_cur != RLIM_INFINITY)
    l.locked_memory = static_cast<int64_t>(r.rlim_cur);
  if (getrlimit(RLIMIT_NOFILE, &r) == 0)
    l.open_files = r.rlim_cur == RLIM_INFINITY ? INT64_MAX : static_cast<int64_t>(r.rlim_cur);
  return l;
}

constexpr int64_t kRows = 96, kInner = 160, kColumns = 112;

std::vector<float> drawn(int64_t n, uint64_t seed) {
  const Rng rng({.seed = seed});
  std::vector<float> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i) v[i] = 2 * rng.uniform(i) - 1;
  return v;
}

// y = x wᵀ with x in f32 and w in bf16: on a GPU our kernel converts w, and cuBLAS multiplies.
ProductCheck check_product(Device device) {
  try {
    const std::vector<float> x = drawn(kRows * kInner, 1), wide = drawn(kColumns * kInner, 2);
    std::vector<bf16> w;
    for (const float value : wide) w.emplace_back(value);
    std::vector<float> found(static_cast<size_t>(kRows * kColumns));
    Arena arena(Arena::Heap{}, device);
    Queue q(device, arena);
    const auto make = [&](DType type, int64_t rows, int64_t cols) {
      return arena.make(Category::workspace, type, {rows, cols}, "matrix");
    };
    const Buffer x_TI = make(DType::f32, kRows, kInner), w_OI = make(DType::bf16, kColumns, kInner);
    const Buffer y_TO = make(DType::f32, kRows, kColumns);
    q.upload(x_TI, x.data());
    q.upload(w_OI, w.data());
    linear(q, y_TO, x_TI, w_OI, {});
    q.download(found.data(), y_TO);
    double apart = 0, size = 0;
    for (int64_t i = 0; i < kRows * kColumns; ++i) {
      double expected = 0;
      for (int64_t k = 0; k < kInner; ++k)
        expected += double{x[static_cast<size_t>(i / kColumns * kInner + k)]} *
                    double{float{w[static_cast<size_t>(i % kColumns * kInner + k)]}};
      apart += std::pow(found[static_cast<size_t>(i)] - expected, 2);
      size += expected * expected;
    }
    return {.error = std::sqrt(apart / size), .why_not = ""};
  } catch (const Error& e) {
    return {.error = 0, .why_not = e.what()};
  }
}

}  // namespace

MachineFacts look_at_machine(const fs::path& out_dir) {
  MachineFacts m;
  m.program.cuda = kWithCuda;
  const cpu::BlasLibrary& blas = cpu::blas();
  m.program.blas = blas.description();
  m.program.faster_blas = blas.faster();
  m.program.kernels_chosen_by = blas.chosen_by();
  m.program.threads = omp_get_max_threads();
  m.program.icu = unicode::version();
  m.cpu = cpu_facts();
  m.cpu_product = check_product(Device::cpu);
  // Before querying the cards: this wakes a bus link that was saving power.
  if (cuda_present()) m.gpu_product = check_product(Device::cuda);
  m.gpu = gpu_state();
  m.disk = disk_facts(out_dir);
  m.limits = limit_facts();
  m.container = container_facts();
  return m;
}

}  // namespace capstan
