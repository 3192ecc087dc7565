#include "plan/ranks_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/alike.h"
#include "train/balance.h"

namespace capstan {
namespace {

// The options with the stages cut, so that the plan of each rank need not do it.
TrainOptions with_cuts(const TrainOptions& options) {
  TrainOptions cut = options;
  cut.pipeline.cuts = cuts_of(options);
  return cut;
}

RunPlan plan_of(TrainOptions& options, int rank) {
  options.ranks.rank = rank;
  return Trainer::plan(options);
}

RankNeed need_of(int rank, const RunPlan& plan) {
  return {rank, plan.device.total_bytes, plan.host.total_bytes};
}

// Of options with cuts: the first rank of each group of stages that are alike.
std::vector<int> first_ranks(const TrainOptions& options) {
  std::vector<int> ranks;
  for (const std::vector<int>& alike : stages_alike(options))
    ranks.push_back(alike.front() * (options.ranks.size / options.mesh.pipeline));
  return ranks;
}

}  // namespace

RankBytes bytes_of(const std::vector<RankNeed>& needs) {
  RankBytes bytes;
  for (const RankNeed& n : needs) {
    bytes.most = std::max(bytes.most, n.device);
    bytes.least = bytes.least == 0 ? n.device : std::min(bytes.least, n.device);
  }
  return bytes;
}

RanksPlan plan_ranks(const TrainOptions& options, const Room& available) {
  TrainOptions one = with_cuts(options);
  RanksPlan all;
  RunPlan fullest_host;
  size_t device = 0, host = 0;  // where in all.needs the most is
  for (const int rank : ranks_that_differ(one)) {
    RunPlan plan = plan_of(one, rank);
    all.needs.push_back(need_of(rank, plan));
    const RankNeed& need = all.needs.back();
    const size_t at = all.needs.size() - 1;
    if (at == 0 || need.host > all.needs[host].host) {
      host = at;
      fullest_host = plan;
    }
    if (at == 0 || need.device > all.needs[device].device) {
      device = at;
      all.plan = std::move(plan);
    }
  }
  all.neediest = all.needs[device].rank;
  if (all.needs[device].device <= available.device && all.needs[host].host > available.host) {
    all.neediest = all.needs[host].rank;
    all.plan = std::move(fullest_host);
  }
  return all;
}

bool stages_fit(const TrainOptions& options, const Room& available) {
  TrainOptions one = with_cuts(options);
  const std::vector<int> ranks = first_ranks(one);
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](int rank) { return fits(plan_of(one, rank), available); });
}

std::optional<int64_t> most_if_all_fit(const TrainOptions& options, const Room& available) {
  TrainOptions one = with_cuts(options);
  std::vector<int> ranks = first_ranks(one);  // which of them fit tells most
  for (const int rank : ranks_that_need_most(one))
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
  int64_t most = 0;
  for (const int rank : ranks) {
    const RunPlan plan = plan_of(one, rank);
    if (!fits(plan, available)) return std::nullopt;
    most = std::max(most, plan.device.total_bytes);
  }
  return most;
}

std::vector<RankClass> rank_classes(const TrainOptions& options,
                                    const std::vector<RankNeed>& needs) {
  const TrainOptions one = with_cuts(options);
  const int stages = options.mesh.pipeline, in_stage = options.ranks.size / stages;
  std::vector<RankClass> classes;
  std::vector<size_t> class_of(static_cast<size_t>(stages));
  for (const std::vector<int>& alike : stages_alike(one)) {
    const auto n = static_cast<int>(alike.size());
    for (const int stage : alike) class_of[static_cast<size_t>(stage)] = classes.size();
    classes.push_back({.name = stages == 1 ? "all ranks"
                               : n == 1    ? fmt::format("stage {}", alike[0])
                                           : fmt::format("stages {} to {}", alike[0], alike.back()),
                       .ranks = n * in_stage});
  }
  for (const RankNeed& need : needs) {
    int64_t& bytes = classes[class_of[static_cast<size_t>(need.rank / in_stage)]].bytes;
    bytes = std::max(bytes, need.device);
  }
  return classes;
}

}  // namespace capstan
