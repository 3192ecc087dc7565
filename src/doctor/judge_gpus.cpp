#include "doctor/judge_gpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

#include "base/units.h"

namespace capstan {
namespace {

std::string version(int cuda) {
  return fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10);
}

class GpuJudge {
 public:
  GpuJudge(const MachineFacts& facts, Findings& to) : m_(facts), to_(to) {}

  void all() {
    driver();
    for (const GpuBoard& b : m_.gpu.boards) board(b);
  }

 private:
  void driver() {
    const GpuState& g = m_.gpu;
    if (!g.nvml_why_not.empty())
      to_.note("NVIDIA driver", fmt::format("not available: {}", g.nvml_why_not),
               "only needed to run on an NVIDIA GPU");
    else
      to_.ok("NVIDIA driver",
             fmt::format("{}, {}", g.driver_version, count(std::ssize(g.boards), "card")));
    const bool cards = !g.boards.empty();
    if (!m_.program.cuda) {
      if (cards) to_.note("CUDA", "this program was built without it", "./do build cuda");
      return;
    }
    if (!g.cuda) {
      if (cards)
        to_.problem("CUDA", fmt::format("cannot be used: {}", g.cuda_why_not),
                    "check CUDA_VISIBLE_DEVICES, and whether the driver is new enough");
      else
        to_.note("CUDA", fmt::format("cannot be used: {}", g.cuda_why_not),
                 "runs will use the CPU");
      return;
    }
    versions(*g.cuda);
  }

  void versions(const CudaFacts& c) {
    const std::string text = fmt::format("built with {}, the driver supports {}",
                                         version(c.runtime_version), version(c.driver_version));
    if (c.driver_version / 1000 < c.runtime_version / 1000)
      to_.problem("CUDA", text, "install a newer driver, or build with an older CUDA toolkit");
    else if (c.driver_version < c.runtime_version)
      to_.note("CUDA", text, "works within one major version; a newer driver is safer");
    else
      to_.ok("CUDA", text);
  }

  void board(const GpuBoard& b) {
    const GpuFacts& f = b.facts;
    const std::string about =
        m_.gpu.boards.size() == 1 || f.bus_id.empty() ? "GPU" : fmt::format("GPU {}", f.bus_id);
    capability(about, b);
    if (f.memory) card_memory(about, f);
    health(about, f);
    clocks(about, f);
    if (f.pcie) link(about, f);
  }

  void capability(const std::string& about, const GpuBoard& b) {
    const GpuFacts& f = b.facts;
    std::string text = f.name;
    if (f.capability)
      text += fmt::format(", compute capability {}.{}", f.capability->first, f.capability->second);
    if (b.computes) text += "; runs use this card";
    const bool runs =
        !m_.program.cuda || !f.capability || runs_on(m_.program.architectures, *f.capability);
    if (runs) return to_.ok(about, text);
    const std::string advice =
        fmt::format("built for architecture {}: build with -DCMAKE_CUDA_ARCHITECTURES={}{}",
                    m_.program.architectures, f.capability->first, f.capability->second);
    to_.say(b.computes ? Severity::problem : Severity::note, about, text, advice);
  }

  void card_memory(const std::string& about, const GpuFacts& f) {
    std::vector<std::string> others;
    for (const GpuProcess& p : f.processes)
      if (p.pid != static_cast<uint32_t>(getpid()))
        others.push_back(p.bytes ? fmt::format("process {} has {}", p.pid, format_bytes(*p.bytes))
                                 : fmt::format("process {}", p.pid));
    constexpr size_t kNamed = 8;
    const size_t more = others.size() > kNamed ? others.size() - kNamed : 0;
    others.resize(std::min(others.size(), kNamed));
    std::string text =
        fmt::format("{} free of {}", format_bytes(f.memory->free), format_bytes(f.memory->total));
    if (!others.empty()) text += fmt::format("; {}", fmt::join(others, ", "));
    if (more > 0) text += fmt::format(" and {} more", more);
    if (!others.empty())
      to_.note(about + " memory", text, "other processes use this card: a run gets the rest");
    else if (f.memory->free < f.memory->total / 2)
      to_.note(about + " memory", text, "a process that is not visible from here uses the rest");
    else
      to_.ok(about + " memory", text);
  }

  void health(const std::string& about, const GpuFacts& f) {
    if (f.ecc_uncorrected.value_or(0) > 0)
      to_.problem(about + " ECC", "uncorrected: " + count(*f.ecc_uncorrected, "error"),
                  "results may be wrong: reset the card (nvidia-smi -r), and have it replaced if "
                  "errors return");
    else if (f.ecc_corrected.value_or(0) > 0)
      to_.note(about + " ECC", "corrected: " + count(*f.ecc_corrected, "error"),
               "watch whether the count grows");
    else if (f.ecc_uncorrected)
      to_.ok(about + " ECC", "no errors");
    if (!f.celsius) return;
    const std::string text = fmt::format(
        "{} °C{}", *f.celsius,
        f.celsius_slowdown ? fmt::format(", slows down at {} °C", *f.celsius_slowdown) : "");
    if (f.celsius_slowdown && *f.celsius >= *f.celsius_slowdown - 5)
      to_.problem(about + " temperature", text, "check fans, filters and the room's cooling");
    else
      to_.ok(about + " temperature", text);
  }

  void clocks(const std::string& about, const GpuFacts& f) {
    if (f.watts_limit) {
      const std::string text = fmt::format(
          "{:.0f} W now, limit {:.0f} W{}", f.watts.value_or(0), *f.watts_limit,
          f.watts_default ? fmt::format(", {:.0f} W by default", *f.watts_default) : "");
      if (f.watts_default && *f.watts_limit < *f.watts_default - 0.5)
        to_.note(about + " power", text, "it was lowered: nvidia-smi -pl sets it");
      else
        to_.ok(about + " power", text);
    }
    const std::string most =
        f.mhz_most ? fmt::format("up to {} MHz", format_grouped(*f.mhz_most)) : "";
    if (!f.throttling) {
      if (f.mhz_most) to_.ok(about + " clocks", most);
      return;
    }
    const Throttling& t = *f.throttling;
    const auto text = [&](const char* held) { return f.mhz_most ? most + ", " + held : held; };
    if (t.thermal || t.hardware)
      to_.problem(about + " clocks",
                  text(t.thermal ? "limited by temperature"
                                 : "limited by the board (power supply or temperature)"),
                  "check cooling and power supply");
    else if (t.power || t.settings)
      to_.note(about + " clocks", text(t.power ? "at the power limit" : "set by a user"),
               t.power ? "normal under load" : "nvidia-smi -rac resets them");
    else
      to_.ok(about + " clocks", text("not limited"));
  }

  void link(const std::string& about, const GpuFacts& f) {
    std::string text =
        fmt::format("generation {}, {}", f.pcie->generation, count(f.pcie->width, "lane"));
    if (!f.pcie_most) return to_.ok(about + " PCIe", text);
    text += fmt::format("; supports generation {}, {}", f.pcie_most->generation,
                        count(f.pcie_most->width, "lane"));
    if (f.pcie->width < f.pcie_most->width)
      to_.note(about + " PCIe", text,
               "the slot has fewer lanes, or the card is not seated properly");
    else if (f.pcie->generation < f.pcie_most->generation)
      to_.note(about + " PCIe", text,
               "normal while the card idles; under load it is the slot's limit");
    else
      to_.ok(about + " PCIe", text);
  }

  const MachineFacts& m_;
  Findings& to_;
};

}  // namespace

bool runs_on(std::string_view architectures, std::pair<int, int> capability) {
  const int card = 10 * capability.first + capability.second;
  while (!architectures.empty()) {
    const std::string_view one = architectures.substr(0, architectures.find(';'));
    architectures.remove_prefix(std::min(architectures.size(), one.size() + 1));
    size_t digits = 0;
    int built = 0;
    for (; digits < one.size() && one[digits] >= '0' && one[digits] <= '9'; ++digits)
      built = 10 * built + (one[digits] - '0');
    const std::string_view rest = one.substr(digits);
    if (digits == 0) return true;  // "native", "all": the actual list is unknown
    const bool same_family = card / 10 == built / 10 && card >= built;
    if (rest.starts_with("a") ? card == built : rest.starts_with("f") ? same_family : false)
      return true;
    if (rest == "-real" && same_family) return true;
    if ((rest.empty() || rest == "-virtual") && card >= built) return true;
  }
  return false;
}

void judge_gpus(const MachineFacts& facts, Findings& to) {
  GpuJudge(facts, to).all();
}

}  // namespace capstan
