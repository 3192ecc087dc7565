#include "doctor/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "doctor/judge_gpus.h"

namespace capstan {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;
// Rounding of f32 sums of some hundred terms; bf16 values are compared as stored.
constexpr double kProductError = 1e-5;

class Judge {
 public:
  explicit Judge(const MachineFacts& facts) : m_(facts) {}

  std::vector<Finding> all() {
    program();
    cpu();
    memory();
    product("product on the CPU", m_.cpu_product,
            "the BLAS library or this build does not match the processor: build again here");
    judge_gpus(m_, to_);
    if (m_.gpu_product)
      product("product on the GPU", *m_.gpu_product,
              "check the driver and the card; --accelerator cpu trains without it");
    disk();
    limits();
    container();
    return std::move(to_.found);
  }

 private:
  void program() {
    const ProgramFacts& p = m_.program;
    to_.ok("program",
           fmt::format("capstan {} ({}), {}", p.version, p.commit,
                       p.cuda ? fmt::format("with CUDA for architecture {}", p.architectures)
                              : "without CUDA"));
    blas();
    if (p.icu.empty())
      to_.note("ICU", "not built in: a tokenizer.json that needs it will be rejected",
               "install libicu-dev and build again");
    else
      to_.ok("ICU", p.icu);
  }

  void blas() {
    using ChosenBy = cpu::BlasLibrary::ChosenBy;
    const ProgramFacts& p = m_.program;
    const std::string text = fmt::format("{}; {}", p.blas, count(p.threads, "thread"));
    constexpr const char* kSlow = "its products take several times as long as they could";
    const ChosenBy by = p.kernels_chosen_by;
    if (p.faster_blas.empty())
      to_.ok("BLAS", by == ChosenBy::us ? text +
                                              "; it does not know this processor, so capstan chose "
                                              "its kernels"
                                        : text);
    else if (by == ChosenBy::user)
      to_.note("BLAS", text,
               fmt::format("with the kernels that OPENBLAS_CORETYPE names, {}: unset it, or set it "
                           "to {}",
                           kSlow, p.faster_blas));
    else if (by == ChosenBy::process)
      to_.note("BLAS", text,
               fmt::format("it was loaded before capstan could choose its kernels, and {}: set "
                           "OPENBLAS_CORETYPE={}",
                           kSlow, p.faster_blas));
    else
      to_.note("BLAS", text,
               fmt::format("it does not know this processor, and {}: set OPENBLAS_CORETYPE={}, or "
                           "install a newer OpenBLAS",
                           kSlow, p.faster_blas));
  }

  void cpu() {
    const CpuFacts& c = m_.cpu;
    const double most = std::min<double>(c.usable, c.quota.value_or(c.usable));
    const std::string text =
        fmt::format("{}; {}, {} usable{}", c.model, count(c.cores, "core"), c.usable,
                    c.quota ? fmt::format(", control group limit {:.3g}", *c.quota) : "");
    if (m_.program.threads > std::ceil(most))
      to_.note("CPU", text,
               fmt::format("{} would share {:.3g} core{}: set OMP_NUM_THREADS={}",
                           count(m_.program.threads, "thread"), most, most == 1 ? "" : "s",
                           std::max(1, static_cast<int>(most))));
    else
      to_.ok("CPU", text);
  }

  void memory() {
    const CpuFacts& c = m_.cpu;
    const std::string text = fmt::format(
        "{} available of {}{}", format_bytes(c.available), format_bytes(c.memory),
        c.memory_limit ? fmt::format(", limited to {}", format_bytes(*c.memory_limit)) : "");
    if (c.available < kGiB)
      to_.problem("memory", text, "end other programs, or raise the limit");
    else
      to_.ok("memory", text);
  }

  void product(const char* about, const ProductCheck& p, const char* advice) {
    if (!p.why_not.empty()) return to_.problem(about, p.why_not, advice);
    const std::string text = fmt::format("differs by {:.1g} from f64", p.error);
    if (p.error <= kProductError)
      to_.ok(about, text);
    else
      to_.problem(about, text + ", more than rounding explains", advice);
  }

  void disk() {
    const DiskFacts& d = m_.disk;
    if (!d.why_not.empty())
      return to_.problem("disk", fmt::format("{}: {}", d.folder, d.why_not),
                         "choose a writable folder: --out_dir");
    const std::string text = fmt::format("{}: {} free, written at {}/s", d.folder,
                                         format_bytes(d.free), format_bytes(d.bytes_per_second));
    if (d.free < kGiB)
      to_.problem("disk", text, "free some space, or choose another folder: --out_dir");
    else if (d.free < 20 * kGiB)
      to_.note("disk", text, "capstan plan shows the size of a checkpoint");
    else if (d.bytes_per_second < 100e6)
      to_.note("disk", text, "slow: saving checkpoints will take long; a local disk is faster");
    else
      to_.ok("disk", text);
  }

  void limits() {
    const LimitFacts& l = m_.limits;
    if (!l.locked_memory)
      to_.ok("locked memory", "no limit");
    else if (m_.program.cuda && *l.locked_memory < 64 * kMiB)
      to_.note("locked memory", fmt::format("limit {}", format_bytes(*l.locked_memory)),
               "if pinning host memory fails, raise it: ulimit -l unlimited");
    else
      to_.ok("locked memory", fmt::format("limit {}", format_bytes(*l.locked_memory)));
    const std::string files = fmt::format("limit {}", l.open_files);
    if (l.open_files < 256)
      to_.problem("open files", files, "a model in many files needs more: ulimit -n 4096");
    else
      to_.ok("open files", files);
  }

  void container() {
    const ContainerFacts& c = m_.container;
    if (c.kind.empty()) return;
    to_.ok("container", c.kind);
    if (m_.program.cuda && !c.nvidia)
      to_.note("devices", "no NVIDIA devices in the container",
               "if the machine has a GPU, start it with --gpus all (Docker), --device "
               "nvidia.com/gpu=all (Podman) or --nv (Apptainer)");
    const std::string text = c.shared_memory > 0
                                 ? fmt::format("/dev/shm has {}", format_bytes(c.shared_memory))
                                 : "there is no /dev/shm";
    if (c.shared_memory < kGiB)
      to_.note("shared memory", text,
               "ranks that mpirun starts exchange data there: start the container with --shm-size "
               "8g or --ipc host");
    else
      to_.ok("shared memory", text);
  }

  const MachineFacts& m_;
  Findings to_;
};

}  // namespace

std::string_view name_of(Severity severity) {
  switch (severity) {
    case Severity::ok: return "ok";
    case Severity::note: return "note";
    case Severity::problem: return "problem";
  }
  return "?";
}

std::vector<Finding> judge(const MachineFacts& facts) {
  return Judge(facts).all();
}

}  // namespace capstan
