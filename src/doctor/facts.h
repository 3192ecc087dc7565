#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tensor/device.h"
#include "tensor/nvml.h"

// What is known of this machine, without a judgement: findings come from it.
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

// Looks at this machine; takes a second or two. Nothing is left behind in `out_dir`, which need not
// exist. Of the program, version, commit and architectures are for the caller to fill in.
MachineFacts look_at_machine(const std::filesystem::path& out_dir);

}  // namespace capstan
