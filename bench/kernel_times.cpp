#include "kernel_times.h"

#ifdef CAPSTAN_WITH_CUPTI
#include <cupti.h>
#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/error.h"

namespace capstan::bench {
namespace {

#if CUPTI_API_VERSION >= 130000
using Record = CUpti_ActivityKernel10;
#else
using Record = CUpti_ActivityKernel9;
#endif

struct Kernel {
  uint64_t begin, end;  // ns
  std::string name;     // or what else the GPU did
};

std::mutex mutex;  // CUPTI gives its buffers back from a thread of its own
std::vector<Kernel> kernels;

void check(CUptiResult status, const char* doing) {
  const char* text = "";
  if (status != CUPTI_SUCCESS) cuptiGetResultString(status, &text);
  require(status == CUPTI_SUCCESS, Fault::device, "CUPTI: cannot {}: {}", doing, text);
}

void CUPTIAPI give_room(uint8_t** buffer, size_t* size, size_t* most_records) {
  *size = size_t{4} << 20;
  *most_records = 0;  // as many as it holds
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(ACTIVITY_RECORD_ALIGNMENT, *size));
  if (*buffer == nullptr) *size = 0;
}

void CUPTIAPI take(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard lock(mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      const auto* k = reinterpret_cast<const Record*>(record);
      kernels.push_back({k->start, k->end, k->name == nullptr ? "?" : k->name});
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      const auto* m = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      kernels.push_back({m->start, m->end, "memset"});
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const auto* m = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
      kernels.push_back({m->start, m->end, "memcpy"});
    }
  }
  std::free(buffer);
}

// Without its arguments, and without the namespaces that all of ours are in.
std::string short_name(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  std::string s = plain ? plain.get() : name;
  for (const char* part : {"void ", "capstan::", "cuda::", "(anonymous namespace)::"})
    for (size_t at = s.find(part); at != std::string::npos; at = s.find(part))
      s.erase(at, std::string(part).size());
  return s.substr(0, s.find('('));
}

struct Total {
  int64_t calls = 0;
  double busy = 0, idle = 0;  // us
};

std::string line(const std::string& name, const Total& t) {
  const auto n = static_cast<double>(t.calls);
  return fmt::format("  {:9.2f} ms {:7} x {:9.1f} us {:7.2f} us idle before  {}\n", t.busy / 1e3,
                     t.calls, t.busy / n, t.idle / n, name);
}

}  // namespace

void record_kernels() {
  check(cuptiActivityRegisterCallbacks(give_room, take), "be told of kernels");
  for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                        CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_MEMCPY})
    check(cuptiActivityEnable(kind), "record kernels");
}

void forget_kernels() {
  check(cuptiActivityFlushAll(0), "have the records");
  const std::lock_guard lock(mutex);
  kernels.clear();
}

std::string kernel_table() {
  check(cuptiActivityFlushAll(0), "have the records");
  const std::lock_guard lock(mutex);
  if (kernels.empty()) return "  no kernel was recorded\n";
  std::sort(kernels.begin(), kernels.end(),
            [](const Kernel& a, const Kernel& b) { return a.begin < b.begin; });
  std::map<std::string, Total> totals;
  Total all;
  uint64_t free_since = kernels.front().begin;
  for (const Kernel& k : kernels) {
    const double busy = static_cast<double>(k.end - k.begin) / 1e3;
    const double idle =
        k.begin > free_since ? static_cast<double>(k.begin - free_since) / 1e3 : 0.0;
    for (Total* t : {&totals[short_name(k.name)], &all}) {
      ++t->calls;
      t->busy += busy;
      t->idle += idle;
    }
    free_since = std::max(free_since, k.end);
  }
  std::vector<std::pair<std::string, Total>> rows(totals.begin(), totals.end());
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.second.busy > b.second.busy; });
  std::string s;
  for (const auto& [name, total] : rows) s += line(name, total);
  return s + line("all", all);
}

}  // namespace capstan::bench

#else

namespace capstan::bench {

void record_kernels() {}
void forget_kernels() {}
std::string kernel_table() {
  return "  kernels are recorded in builds with CUDA whose toolkit has CUPTI\n";
}

}  // namespace capstan::bench

#endif
