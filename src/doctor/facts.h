#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ops/cpu/blas_library.h"
#include "tensor/device.h"
#include "tensor/nvml.h"

// Facts about this machine, without judgement; findings are derived from them.
namespace capstan {

struct ProgramFacts {
  std::string version, commit;
  bool cuda = false;
  std::string architectures;  // architectures of its kernels: "90a", "80;90a"
  std::string blas;           // cpu::BlasLibrary's description, and…
  std::string faster_blas;    // …its faster()
  cpu::BlasLibrary::ChosenBy kernels_chosen_by = cpu::BlasLibrary::ChosenBy::library;
  int threads = 0;  // threads of a parallel loop
  std::string icu;  // its version; empty: built without
};

struct CpuFacts {
  std::string model;
  int cores = 0;                      // logical processors of the machine
  int usable = 0;                     // allowed by this process's affinity
  std::optional<double> quota;        // cores that its control group may use
  int64_t memory = 0, available = 0;  // bytes; available within the limit
  std::optional<int64_t> memory_limit;
};

struct GpuBoard {
  GpuFacts facts;
  bool computes = false;  // CUDA's current device, which a run would use
};

// CUDA and the driver's management library (NVML); each may be missing.
struct GpuState {
  std::optional<CudaFacts> cuda;
  std::string cuda_why_not, nvml_why_not;  // empty: available
  std::string driver_version;
  std::vector<GpuBoard> boards;
};

struct DiskFacts {
  std::string folder;  // the folder tested: out_dir, or its nearest existing parent
  int64_t free = 0;
  double bytes_per_second = 0;
  std::string why_not;  // why it could not be written
};

struct LimitFacts {
  std::optional<int64_t> locked_memory;  // bytes; none: no limit
  int64_t open_files = 0;
};

struct ContainerFacts {
  std::string kind;           // "Docker", "Podman", "Apptainer", "a container"; empty: none
  int64_t shared_memory = 0;  // bytes of /dev/shm; 0: there is none
  bool nvidia = false;        // an NVIDIA driver's devices are in it
};

// A matrix product compared with f64: ‖found - expected‖ / ‖expected‖.
struct ProductCheck {
  double error = 0;
  std::string why_not;  // why it could not be computed
};

struct MachineFacts {
  ProgramFacts program;
  CpuFacts cpu;
  GpuState gpu;
  DiskFacts disk;
  LimitFacts limits;
  ContainerFacts container;
  ProductCheck cpu_product;
  std::optional<ProductCheck> gpu_product;
};

// Inspects this machine in a second or two. Leaves nothing behind in `out_dir`, which need not
// exist. The caller fills in the program's version, commit and architectures.
MachineFacts look_at_machine(const std::filesystem::path& out_dir);

}  // namespace capstan
