#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tensor/device.h"
#include "tensor/nvml.h"

// What this machine can do for a run, and what is wrong with it: facts are gathered first and
// judged then, so that each can be looked at alone.
namespace capstan {

struct ProgramFacts {
  std::string version, commit;
  bool cuda = false;
  std::string architectures;  // that its kernels are built for: "90a", "80;90a"
  std::string blas;
  int threads = 0;  // that a loop runs on
  std::string icu;  // its version; empty: built without
};

struct CpuFacts {
  std::string model;
  int cores = 0;                      // of the machine, with those of hyperthreading
  int usable = 0;                     // by this process's affinity
  std::optional<double> quota;        // cores that its control group may use
  int64_t memory = 0, available = 0;  // bytes; available within the limit
  std::optional<int64_t> memory_limit;
};

// As the system names the processor; "unknown" where it does not.
std::string cpu_model();

struct GpuBoard {
  GpuFacts facts;
  bool computes = false;  // CUDA's current device: a run would be on it
};

// CUDA and the driver's management library, each of which may be missing.
struct GpuState {
  std::optional<CudaFacts> cuda;
  std::string cuda_why_not, nvml_why_not;  // empty: it is there
  std::string driver_version;
  std::vector<GpuBoard> boards;
};

struct DiskFacts {
  std::string folder;  // where it was tried: out_dir, or the nearest folder above that exists
  int64_t free = 0;
  double bytes_per_second = 0;
  std::string why_not;  // it could not be written
};

struct LimitFacts {
  std::optional<int64_t> locked_memory;  // bytes; none: no limit
  int64_t open_files = 0;
};

// A product of two matrices, against f64: ‖found - expected‖ / ‖expected‖.
struct ProductCheck {
  double error = 0;
  std::string why_not;  // it could not be computed
};

struct MachineFacts {
  ProgramFacts program;
  CpuFacts cpu;
  GpuState gpu;
  DiskFacts disk;
  LimitFacts limits;
  ProductCheck cpu_product;
  std::optional<ProductCheck> gpu_product;
};

enum class Severity { ok, note, problem };
std::string_view name_of(Severity severity);

// One line: what was looked at, what was found and, where it is not ok, what to do.
struct Finding {
  Severity severity = Severity::ok;
  std::string about, text, advice;
};

std::vector<Finding> judge(const MachineFacts& facts);

// Looks at this machine; takes a second or two. Nothing is left behind in `out_dir`, which need not
// exist. Of the program, version, commit and architectures are for the caller to fill in.
MachineFacts look_at_machine(const std::filesystem::path& out_dir);

// Whether kernels that were built for these architectures, as CMake lists them, run on a GPU of
// this compute capability: 90a on 9.0 alone; 80 on 8.0 and later 8.x, and, by its PTX, on all later
// ones; 80-real without the PTX.
bool runs_on(std::string_view architectures, std::pair<int, int> capability);

}  // namespace capstan
