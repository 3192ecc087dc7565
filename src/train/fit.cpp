#include "train/fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "base/units.h"

namespace capstan {
namespace {

constexpr int64_t kUnknown = INT64_MAX;  // a system that does not say: let the allocation decide

int64_t machine_memory() {
  std::ifstream meminfo("/proc/meminfo");
  std::string name;
  int64_t kib = 0;
  while (meminfo >> name >> kib) {
    if (name == "MemAvailable:") return kib * 1024;
    meminfo.ignore(256, '\n');
  }
  return kUnknown;
}

// What the limits of this process's control group (version 2) and of those above it leave.
int64_t group_memory() {
  std::ifstream membership("/proc/self/cgroup");
  std::string line, path;
  while (std::getline(membership, line))
    if (line.starts_with("0::")) path = line.substr(3);
  int64_t least = kUnknown;
  for (; !path.empty(); path.resize(path.find_last_of('/'))) {
    const std::string folder = "/sys/fs/cgroup" + path + "/";
    int64_t limit = 0, used = 0;
    // The file says "max" where there is no limit; that is no number.
    if (std::ifstream(folder + "memory.max") >> limit &&
        std::ifstream(folder + "memory.current") >> used)
      least = std::min(least, std::max<int64_t>(0, limit - used));
  }
  return least;
}

bool fits(const TrainOptions& options, int64_t available) {
  return Trainer::plan(options).total_bytes <= available;
}

// With at most `micro_batch` documents at a time.
TrainOptions in_micro_batches(TrainOptions options, int64_t micro_batch) {
  BatchLimits& l = options.limits;
  l.documents = std::min(l.documents, micro_batch);
  l.tokens = std::min(l.tokens, l.documents * l.longest);
  options.single_micro_batch = false;
  return options;
}

// The largest smaller micro-batch that fits and divides `micro_batch`; 0 if none does.
int64_t fitting_micro_batch(const TrainOptions& options, int64_t micro_batch, int64_t available) {
  std::vector<int64_t> divisors;
  for (int64_t m = 1; m < options.limits.documents; ++m)
    if (micro_batch % m == 0) divisors.push_back(m);
  // More documents never need less, so those that fit come first.
  const auto end = std::partition_point(divisors.begin(), divisors.end(), [&](int64_t m) {
    return fits(in_micro_batches(options, m), available);
  });
  return end == divisors.begin() ? 0 : end[-1];
}

// Single changes that make the run fit, as "key: value".
std::vector<std::string> what_fits(const TrainOptions& options, int64_t micro_batch,
                                   const MemoryPlan& plan, int64_t available) {
  std::vector<std::string> changes;
  const int64_t kept = at(plan.highest, Category::weights) + at(plan.highest, Category::optimizer);
  if (kept <= available) {  // else no saving of activations is enough
    for (const auto policy : {Recompute::selective, Recompute::block}) {
      TrainOptions o = options;
      o.recompute = policy;
      if (policy > options.recompute && fits(o, available))
        changes.push_back(fmt::format("activations: {}", name_of(policy)));
    }
    if (const int64_t m = fitting_micro_batch(options, micro_batch, available); m > 0)
      changes.push_back(fmt::format("train.micro_batch_size: {}", m));
  }
  TrainOptions o = options;
  o.precision = Precision::bf16_true;
  if (options.precision != o.precision && fits(o, available))
    changes.emplace_back("precision: bf16-true");
  return changes;
}

}  // namespace

int64_t available_memory() {
  return std::min(machine_memory(), group_memory());
}

void require_fit(const TrainOptions& options, int64_t micro_batch, const MemoryPlan& plan,
                 int64_t available) {
  if (plan.total_bytes <= available) return;
  const std::vector<std::string> changes = what_fits(options, micro_batch, plan, available);
  fail(Fault::does_not_fit, "does not fit: needs {}, {} free. {}{}",
       format_bytes(static_cast<double>(plan.total_bytes)),
       format_bytes(static_cast<double>(available)),
       changes.empty() ? "No single change of activations, precision or micro-batch is enough: use "
                         "a smaller model or a shorter max_seq_length"
                       : "Fits with: ",
       fmt::join(changes, " · "));
}

}  // namespace capstan
