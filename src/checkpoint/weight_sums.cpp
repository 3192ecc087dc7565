#include "checkpoint/weight_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/place_sum.h"

namespace capstan {
namespace {

// Of the text itself: what tensors have in common must not cancel.
uint64_t sum_of(const std::string& text) {
  return place_sum(std::as_bytes(std::span(text)), 0) | 1;
}

}  // namespace

void WeightSums::Sum::add(int64_t at, std::span<const std::byte> some) {
  bytes += std::ssize(some);
  sum += place_sum(some, at);
}

std::string WeightSums::text() const {
  std::string text;
  for (const auto& [key, sum] : sums_)
    text += fmt::format("{}\n{}\n{} {} {}\n", key.first, key.second, sum.bytes, sum.of, sum.sum);
  return text;
}

WeightSums::Sums WeightSums::parse(const std::string& text) {
  Sums sums;
  std::istringstream lines(text);
  std::string tensor, piece, numbers;
  while (std::getline(lines, tensor) && std::getline(lines, piece) &&
         std::getline(lines, numbers)) {
    Sum& sum = sums[{tensor, piece}];
    std::istringstream(numbers) >> sum.bytes >> sum.of >> sum.sum;
  }
  return sums;
}

AllWeightSums compare_sums(const std::vector<WeightSums::Sums>& by_rank) {
  std::map<std::pair<std::string, std::string>, std::vector<std::pair<size_t, WeightSums::Sum>>>
      pieces;
  for (size_t r = 0; r < by_rank.size(); ++r)
    for (const auto& [key, sum] : by_rank[r]) pieces[key].emplace_back(r, sum);
  AllWeightSums all;
  uint64_t total = 0;
  std::map<std::string, int64_t> missing;  // bytes, by tensor
  for (const auto& [key, sums] : pieces) {
    const WeightSums::Sum& sum = sums[0].second;
    total += sum_of(key.first) * sum.sum;
    missing.try_emplace(key.first, sum.of).first->second -= sum.bytes;
    const auto agreeing = [&](const auto& one) {
      return std::count_if(sums.begin(), sums.end(),
                           [&](const auto& other) { return other.second == one.second; });
    };
    const auto by_agreement = [&](const auto& a, const auto& b) {
      return agreeing(a) < agreeing(b);
    };
    if (all.difference || agreeing(sums[0]) == std::ssize(sums)) continue;
    // Of two that differ it is the second; the first rank is more often the one that was tried.
    const auto fewest = std::min_element(sums.rbegin(), sums.rend(), by_agreement);
    const auto other = std::find_if(sums.begin(), sums.end(),
                                    [&](const auto& one) { return one.second != fewest->second; });
    all.difference = {key.first, fewest->first, other->first};
  }
  if (std::all_of(missing.begin(), missing.end(), [](const auto& m) { return m.second == 0; }))
    all.checksum = fmt::format("{:016x}", total);
  return all;
}

}  // namespace capstan
