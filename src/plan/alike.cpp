#include "plan/alike.h"

#include <algorithm>
#include <map>
#include <set>

#include "train/balance.h"

namespace capstan {
namespace {

constexpr int kMostDiffering = 64;  // ranks, by which more are judged

int data_ranks(const TrainOptions& options) {
  return options.ranks.size / options.mesh.pipeline / options.mesh.tensor;
}

// Those of these stages that have these shares of a layer and, of the ranks that share the data or
// a sequence, these and, if they have slices of a state, others: slices are of one size, but cut
// the tensors in different places.
std::vector<int> ranks_among(const TrainOptions& options, const std::set<int>& stages,
                             const std::set<int>& shares, std::set<int> data) {
  const int tensor = options.mesh.tensor, in_data = data_ranks(options);
  const int rest = kMostDiffering / static_cast<int>(stages.size() * shares.size());
  const int step =
      options.sharding.state == Hold::shard ? (in_data - 1) / std::max(1, rest) + 1 : in_data;
  for (int i = 0; i < in_data; i += step) data.insert(i);
  std::vector<int> ranks;
  for (const int stage : stages)
    for (const int i : data)
      for (const int share : shares) ranks.push_back((stage * in_data + i) * tensor + share);
  return ranks;
}

}  // namespace

std::vector<std::vector<int>> stages_alike(const TrainOptions& options) {
  const int stages = options.mesh.pipeline;
  const std::vector<int> cuts = cuts_of(options);
  std::vector<std::vector<int>> all;
  std::map<std::vector<int>, size_t> known;
  for (int stage = 0; stage < stages; ++stage) {
    // What it computes: the policy of each block, chunk by chunk.
    std::vector<int> blocks = {stage == 0 || stage + 1 == stages ? stage : stages};
    for (auto piece = static_cast<size_t>(stage); piece + 1 < cuts.size();
         piece += static_cast<size_t>(stages)) {
      blocks.push_back(-1);
      for (int block = cuts[piece]; block < cuts[piece + 1]; ++block)
        blocks.push_back(static_cast<int>(options.recompute.of(block)));
    }
    const auto [it, is_new] = known.try_emplace(blocks, all.size());
    if (is_new) all.emplace_back();
    all[it->second].push_back(stage);
  }
  return all;
}

std::vector<int> ranks_that_differ(const TrainOptions& options) {
  std::set<int> stages;
  for (const std::vector<int>& alike : stages_alike(options))
    stages.insert({alike.front(), alike.back()});
  return ranks_among(options, stages, {0, options.mesh.tensor - 1},
                     {0, options.mesh.context - 1, data_ranks(options) - 1});
}

std::vector<int> ranks_that_need_most(const TrainOptions& options) {
  std::set<int> stages;
  for (const std::vector<int>& alike : stages_alike(options)) stages.insert(alike.front());
  return ranks_among(options, stages, {0}, {0});
}

}  // namespace capstan
