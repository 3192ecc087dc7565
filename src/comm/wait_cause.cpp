#include "comm/wait_cause.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace capstan {
namespace {

using StateKind = RankState::Kind;

std::string link(int from, int to, bool first) {
  return fmt::format("rank {} {}for rank {}", from, first ? "waits " : "", to);
}

std::string joined(const std::vector<std::pair<int, int>>& links) {
  std::string text;
  for (const auto& [from, to] : links)
    text += (text.empty() ? "" : ", ") + link(from, to, text.empty());
  return text;
}

// Who waits for whom, as far as it is known.
class Waits {
 public:
  Waits(int rank, const std::vector<int>& direct, const std::function<RankState(int)>& state_of)
      : rank_(rank) {
    for (const int r : direct) add(r, rank);
    for (size_t i = 0; i < order_.size(); ++i) {  // breadth first: ways are the shortest
      const int r = order_[i];
      RankState& state = states_[r] = state_of(r);
      if (state.waits_for.empty() && state.kind == StateKind::waits)
        state.kind = StateKind::unknown;
      if (state.kind != StateKind::waits) continue;
      for (const int other : state.waits_for) add(other, r);
    }
  }

  std::vector<int> all(StateKind kind) const {
    std::vector<int> found;
    for (const auto& [r, state] : states_)
      if (state.kind == kind) found.push_back(r);
    return found;
  }

  // The links that lead to it, without the first.
  std::vector<std::pair<int, int>> way_to(int r) const {
    std::vector<std::pair<int, int>> links;
    for (int from = waiting_.at(r); from != rank_; r = from, from = waiting_.at(r))
      links.emplace_back(from, r);
    std::reverse(links.begin(), links.end());
    return links;
  }

  // Where all wait: from the first rank of `direct` on, until a rank comes again.
  std::vector<std::pair<int, int>> ring() const {
    std::vector<std::pair<int, int>> links;
    std::vector<int> seen = {rank_};
    for (int r = order_[0]; std::find(seen.begin(), seen.end(), r) == seen.end();) {
      seen.push_back(r);
      const int next = states_.at(r).waits_for[0];
      links.emplace_back(r, next);
      r = next;
    }
    return links;
  }

 private:
  void add(int r, int waits) {
    if (r != rank_ && waiting_.emplace(r, waits).second) order_.push_back(r);
  }

  int rank_;
  std::vector<int> order_;      // in which they were found
  std::map<int, int> waiting_;  // by rank: who waits for it
  std::map<int, RankState> states_;
};

}  // namespace

WaitCause cause_of_wait(int rank, const std::vector<int>& direct,
                        const std::function<RankState(int)>& state_of) {
  const Waits waits(rank, direct, state_of);
  for (const StateKind kind : {StateKind::silent, StateKind::busy, StateKind::unknown}) {
    const std::vector<int> ranks = waits.all(kind);
    if (ranks.empty()) continue;
    const auto links = waits.way_to(ranks[0]);
    return {ranks, links.empty() ? "" : fmt::format(" ({})", joined(links))};
  }
  std::vector<int> ranks = direct;
  std::sort(ranks.begin(), ranks.end());
  return {ranks, ranks.empty() ? "" : fmt::format(" (in a ring: {})", joined(waits.ring()))};
}

}  // namespace capstan
