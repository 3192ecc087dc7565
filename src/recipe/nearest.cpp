#include <algorithm>
#include <utility>
#include <vector>

#include "recipe/recipe.h"

namespace capstan {
namespace {

// Edits (insert, delete, replace) from one word to another.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> words) {
  const auto last_part = [](std::string_view key) { return key.substr(key.rfind('.') + 1); };
  // A key of any length can be given; what is this long is no misspelling.
  word = word.substr(0, 256);
  // What was left out ("lr" for "optimizer.lr", "hidden" for "hidden_size") or put under another
  // section ("train.lr") costs less than two wrong letters.
  const auto cost = [&](std::string_view candidate) -> size_t {
    if (word.size() > 2 && candidate.find(word) != std::string_view::npos) return 2;
    const size_t apart = last_part(word) == word ? 1 : 3;
    return std::min(2 * distance(word, candidate),
                    2 * distance(last_part(word), last_part(candidate)) + apart);
  };
  return *std::min_element(words.begin(), words.end(),
                           [&](auto a, auto b) { return cost(a) < cost(b); });
}

}  // namespace capstan
