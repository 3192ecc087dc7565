#include "doctor/doctor.h"
#include "doctor/judge_gpus.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "support/temp_folder.h"

namespace capstan {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// A machine with nothing wrong.
MachineFacts healthy() {
  MachineFacts m;
  m.program = {.version = "1.2.3",
               .commit = "abcdef",
               .cuda = true,
               .architectures = "90a",
               .blas = "OpenBLAS 0.3.21",
               .faster_blas = "",
               .kernels_chosen_by = cpu::BlasLibrary::ChosenBy::library,
               .threads = 16,
               .icu = "74.2"};
  m.cpu = {.model = "A processor",
           .cores = 16,
           .usable = 16,
           .quota = std::nullopt,
           .memory = 128 * kGiB,
           .available = 120 * kGiB,
           .memory_limit = std::nullopt};
  m.gpu.cuda = CudaFacts{"NVIDIA H200", "0000:19:00.0", {9, 0}, 13000, 13000};
  m.gpu.driver_version = "580.65.06";
  GpuFacts f;
  f.name = "NVIDIA H200";
  f.bus_id = "00000000:19:00.0";
  f.capability = {9, 0};
  f.memory = GpuMemory{140 * kGiB, 139 * kGiB, kGiB};
  f.watts = 120;
  f.watts_limit = f.watts_default = 700;
  f.celsius = 35;
  f.celsius_slowdown = 90;
  f.ecc_corrected = f.ecc_uncorrected = 0;
  f.mhz_most = 1980;
  f.throttling = Throttling{.idle = true};
  f.pcie = f.pcie_most = PcieLink{5, 16};
  m.gpu.boards = {{f, true}};
  m.disk = {.folder = "/data", .free = 500 * kGiB, .bytes_per_second = 2e9, .why_not = ""};
  m.limits = {.locked_memory = std::nullopt, .open_files = 1024};
  m.cpu_product.error = 1e-7;
  m.gpu_product = ProductCheck{.error = 2e-7, .why_not = ""};
  return m;
}

GpuFacts& card(MachineFacts& m) {
  return m.gpu.boards[0].facts;
}

Severity worst(const std::vector<Finding>& findings) {
  Severity most = Severity::ok;
  for (const Finding& f : findings) most = std::max(most, f.severity);
  return most;
}

// The one finding that is not ok is of this severity and about this, and its words are among these.
void expect_only(const MachineFacts& m, Severity severity, const std::string& about,
                 const std::string& text, const std::string& advice) {
  SCOPED_TRACE(about + ": " + text);
  int others = 0;
  for (const Finding& f : judge(m)) {
    if (f.severity == Severity::ok) {
      EXPECT_EQ(f.advice, "") << f.about;
      continue;
    }
    ++others;
    EXPECT_EQ(name_of(f.severity), name_of(severity));
    EXPECT_EQ(f.about, about);
    EXPECT_NE(f.text.find(text), std::string::npos) << f.text;
    EXPECT_NE(f.advice.find(advice), std::string::npos) << f.advice;
  }
  EXPECT_EQ(others, 1);
}

TEST(Judge, ABlasThatDoesNotKnowTheProcessorIsSlow) {
  using ChosenBy = cpu::BlasLibrary::ChosenBy;
  MachineFacts m = healthy();
  m.program.faster_blas = "SkylakeX";
  expect_only(m, Severity::note, "BLAS", "OpenBLAS 0.3.21; 16 threads",
              "set OPENBLAS_CORETYPE=SkylakeX");
  m.program.kernels_chosen_by = ChosenBy::process;
  expect_only(m, Severity::note, "BLAS", "OpenBLAS 0.3.21; 16 threads",
              "it was loaded before capstan could choose its kernels");
  m.program.kernels_chosen_by = ChosenBy::user;
  expect_only(m, Severity::note, "BLAS", "OpenBLAS 0.3.21; 16 threads",
              "unset it, or set it to SkylakeX");
}

TEST(Judge, KernelsThatCapstanChoseAreWell) {
  MachineFacts m = healthy();
  m.program.kernels_chosen_by = cpu::BlasLibrary::ChosenBy::us;
  EXPECT_EQ(worst(judge(m)), Severity::ok);
  for (const Finding& f : judge(m)) {
    if (f.about != "BLAS") continue;
    EXPECT_NE(f.text.find("it does not know this processor"), std::string::npos) << f.text;
  }
}

TEST(Judge, AContainerMayLackSharedMemoryAndDevices) {
  MachineFacts m = healthy();
  const auto about = [&](const char* what) -> std::optional<Finding> {
    for (const Finding& f : judge(m))
      if (f.about == what) return f;
    return std::nullopt;
  };
  EXPECT_FALSE(about("container"));
  EXPECT_FALSE(about("shared memory"));
  m.container = {.kind = "Docker", .shared_memory = 64 << 20, .nvidia = false};
  EXPECT_EQ(about("shared memory")->severity, Severity::note);
  EXPECT_NE(about("shared memory")->advice.find("--shm-size"), std::string::npos);
  EXPECT_NE(about("devices")->advice.find("--gpus all"), std::string::npos);
  m.container = {.kind = "Apptainer", .shared_memory = 8 * kGiB, .nvidia = true};
  EXPECT_EQ(about("shared memory")->severity, Severity::ok);
  EXPECT_FALSE(about("devices"));
  EXPECT_EQ(about("container")->text, "Apptainer");
}

TEST(Doctor, FindsNothingWrongWithAHealthyMachine) {
  const auto findings = judge(healthy());
  EXPECT_EQ(worst(findings), Severity::ok);
  std::vector<std::string> about;
  for (const Finding& f : findings) about.push_back(f.about);
  EXPECT_EQ(about, (std::vector<std::string>{
                       "program", "BLAS", "ICU", "CPU", "memory", "product on the CPU",
                       "NVIDIA driver", "CUDA", "GPU", "GPU memory", "GPU ECC", "GPU temperature",
                       "GPU power", "GPU clocks", "GPU PCIe", "product on the GPU", "disk",
                       "locked memory", "open files"}));
}

TEST(Doctor, ReportsWhatIsWrongWithTheHost) {
  MachineFacts m = healthy();
  m.program.icu = "";
  expect_only(m, Severity::note, "ICU", "not built in", "libicu-dev");
  m = healthy();
  m.cpu.quota = 2.5;
  expect_only(m, Severity::note, "CPU", "control group limit 2.5", "OMP_NUM_THREADS=2");
  m = healthy();
  m.cpu.usable = 4;
  expect_only(m, Severity::note, "CPU", "16 cores, 4 usable", "OMP_NUM_THREADS=4");
  m = healthy();
  m.cpu.memory_limit = kGiB;
  m.cpu.available = kGiB / 2;
  expect_only(m, Severity::problem, "memory", "512 MiB available of 128 GiB, limited to 1.00 GiB",
              "raise the limit");
  m = healthy();
  m.disk.why_not = "Permission denied";
  expect_only(m, Severity::problem, "disk", "/data: Permission denied", "--out_dir");
  m = healthy();
  m.disk.free = kGiB / 4;
  expect_only(m, Severity::problem, "disk", "256 MiB free", "free some space");
  m = healthy();
  m.disk.bytes_per_second = 30e6;
  expect_only(m, Severity::note, "disk", "/s", "slow");
  m = healthy();
  m.limits.locked_memory = 8 << 20;
  expect_only(m, Severity::note, "locked memory", "8.00 MiB", "ulimit -l");
  m = healthy();
  m.limits.open_files = 64;
  expect_only(m, Severity::problem, "open files", "limit 64", "ulimit -n");
}

TEST(Doctor, AWrongProductIsAProblem) {
  for (const double wrong : {1e-3, double{NAN}}) {
    MachineFacts m = healthy();
    m.cpu_product.error = wrong;
    expect_only(m, Severity::problem, "product on the CPU", "more than rounding explains", "BLAS");
    m = healthy();
    m.gpu_product->error = wrong;
    expect_only(m, Severity::problem, "product on the GPU", "more than rounding", "driver");
  }
  MachineFacts m = healthy();
  m.gpu_product->why_not = "GPU: cannot multiply: no kernel image";
  expect_only(m, Severity::problem, "product on the GPU", "no kernel image", "--accelerator cpu");
}

TEST(Doctor, ReportsWhatIsWrongWithADriver) {
  MachineFacts m = healthy();
  m.gpu.cuda->driver_version = 12040;
  expect_only(m, Severity::problem, "CUDA", "built with 13.0, the driver supports 12.4",
              "newer driver");
  m = healthy();
  m.gpu.cuda->runtime_version = 13020;
  expect_only(m, Severity::note, "CUDA", "built with 13.2", "one major version");
  m = healthy();
  m.gpu.cuda.reset();
  m.gpu_product.reset();
  m.gpu.cuda_why_not = "no CUDA-capable device is detected";
  expect_only(m, Severity::problem, "CUDA", "no CUDA-capable device", "CUDA_VISIBLE_DEVICES");
  m = healthy();
  m.program.cuda = false;
  m.gpu.cuda.reset();
  m.gpu_product.reset();
  expect_only(m, Severity::note, "CUDA", "built without it", "./do build cuda");
}

TEST(Doctor, AMachineWithoutACardHasNoProblem) {
  for (const bool cuda : {true, false}) {
    MachineFacts m = healthy();
    m.program.cuda = cuda;
    m.gpu = {};
    m.gpu.cuda_why_not = "no GPU was found";
    m.gpu.nvml_why_not = "libnvidia-ml.so.1: cannot open shared object file";
    m.gpu_product.reset();
    const auto findings = judge(m);
    EXPECT_EQ(worst(findings), Severity::note);
    const auto said = [&](const std::string& text) {
      return std::any_of(findings.begin(), findings.end(),
                         [&](const Finding& f) { return f.text.find(text) != std::string::npos; });
    };
    EXPECT_TRUE(said("not available: libnvidia-ml.so.1"));
    EXPECT_EQ(said("no GPU was found"), cuda);
  }
}

TEST(Doctor, ReportsWhatIsWrongWithACard) {
  MachineFacts m = healthy();
  card(m).capability = {8, 0};
  expect_only(m, Severity::problem, "GPU", "compute capability 8.0",
              "built for architecture 90a: build with -DCMAKE_CUDA_ARCHITECTURES=80");
  m = healthy();
  card(m).memory->free = 20 * kGiB;
  expect_only(m, Severity::note, "GPU memory", "20.0 GiB free of 140 GiB", "not visible");
  m = healthy();
  card(m).processes = {{1, 30 * kGiB}, {2, std::nullopt}, {static_cast<uint32_t>(getpid()), kGiB}};
  expect_only(m, Severity::note, "GPU memory", "; process 1 has 30.0 GiB, process 2",
              "other processes use this card");
  m = healthy();
  card(m).ecc_uncorrected = 2;
  expect_only(m, Severity::problem, "GPU ECC", "uncorrected: 2 errors", "nvidia-smi -r");
  m = healthy();
  card(m).ecc_corrected = 7;
  expect_only(m, Severity::note, "GPU ECC", "corrected: 7 errors", "watch");
  m = healthy();
  card(m).celsius = 86;
  expect_only(m, Severity::problem, "GPU temperature", "86 °C, slows down at 90 °C", "fans");
  m = healthy();
  card(m).watts_limit = 400;
  expect_only(m, Severity::note, "GPU power", "limit 400 W, 700 W by default", "nvidia-smi -pl");
  m = healthy();
  card(m).throttling->thermal = true;
  expect_only(m, Severity::problem, "GPU clocks", "temperature", "cooling");
  m = healthy();
  card(m).throttling->power = true;
  expect_only(m, Severity::note, "GPU clocks", "power limit", "normal");
  m = healthy();
  card(m).pcie->width = 4;
  expect_only(m, Severity::note, "GPU PCIe", "4 lanes; supports generation 5, 16 lanes", "slot");
  m = healthy();
  card(m).pcie->generation = 1;
  expect_only(m, Severity::note, "GPU PCIe", "generation 1", "idles");
}

TEST(Doctor, SaysWhatPowerAndClockACardMayHave) {
  const auto said = [](const MachineFacts& m, const std::string& about) {
    for (const Finding& f : judge(m))
      if (f.about == about) return f.text;
    return std::string();
  };
  MachineFacts m = healthy();
  EXPECT_EQ(said(m, "GPU power"), "120 W now, limit 700 W, 700 W by default");
  EXPECT_EQ(said(m, "GPU clocks"), "up to 1,980 MHz, not limited");
  card(m).throttling->power = true;
  EXPECT_EQ(said(m, "GPU clocks"), "up to 1,980 MHz, at the power limit");
  card(m).mhz_most.reset();
  EXPECT_EQ(said(m, "GPU clocks"), "at the power limit");
  card(m).throttling.reset();
  EXPECT_EQ(said(m, "GPU clocks"), "");
  card(m).mhz_most = 1980;
  EXPECT_EQ(said(m, "GPU clocks"), "up to 1,980 MHz");
}

TEST(Doctor, ACardThatDoesNotTellIsNotBlamed) {
  MachineFacts m = healthy();
  const std::string name = card(m).name;
  card(m) = {};
  card(m).name = name;
  EXPECT_EQ(worst(judge(m)), Severity::ok);
}

TEST(Doctor, SeveralCardsAreToldApart) {
  MachineFacts m = healthy();
  GpuBoard old = m.gpu.boards[0];
  old.computes = false;
  old.facts.bus_id = "00000000:2A:00.0";
  old.facts.capability = {7, 0};
  m.gpu.boards.push_back(old);
  // Kernels that do not run on a card which no run is on are worth a note.
  expect_only(m, Severity::note, "GPU 00000000:2A:00.0", "7.0", "architecture 90a");
}

TEST(Doctor, KnowsWhichCardsABuildIsFor) {
  EXPECT_TRUE(runs_on("90a", {9, 0}));
  EXPECT_FALSE(runs_on("90a", {10, 0})) << "Hopper's own instructions are nobody else's";
  EXPECT_FALSE(runs_on("90a", {8, 9}));
  EXPECT_TRUE(runs_on("80;90a", {8, 6}));
  EXPECT_TRUE(runs_on("80", {12, 1})) << "by its PTX";
  EXPECT_FALSE(runs_on("80-real", {9, 0}));
  EXPECT_TRUE(runs_on("80-real", {8, 9}));
  EXPECT_FALSE(runs_on("89-real", {8, 6}));
  EXPECT_TRUE(runs_on("80-virtual", {9, 0}));
  EXPECT_TRUE(runs_on("100f", {10, 3}));
  EXPECT_FALSE(runs_on("100f", {12, 0}));
  EXPECT_TRUE(runs_on("native", {9, 0}));
  EXPECT_FALSE(runs_on("", {9, 0}));
}

TEST(Doctor, LooksAtThisMachineAndLeavesNothingBehind) {
  const TempFolder folder;
  const MachineFacts m = look_at_machine(folder.path() / "not" / "there");
  EXPECT_EQ(m.disk.folder, folder.path().string());
  EXPECT_EQ(m.disk.why_not, "");
  EXPECT_GT(m.disk.free, 0);
  EXPECT_GT(m.disk.bytes_per_second, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_GT(m.cpu.cores, 0);
  EXPECT_GT(m.cpu.usable, 0);
  EXPECT_NE(m.cpu.model, "");
  EXPECT_GT(m.cpu.memory, 0);
  EXPECT_GT(m.cpu.available, 0);
  EXPECT_NE(m.program.blas, "");
  EXPECT_EQ(m.cpu_product.why_not, "");
  EXPECT_LT(m.cpu_product.error, 1e-6);
  EXPECT_EQ(m.gpu_product.has_value(), cuda_present());
  if (m.gpu_product) {
    EXPECT_EQ(m.gpu_product->why_not, "");
    EXPECT_LT(m.gpu_product->error, 1e-6);
    EXPECT_TRUE(m.gpu.cuda);
  }
}

}  // namespace
}  // namespace capstan
