#include "recipe/nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

namespace capstan {
namespace {

char lower(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

// Edits (insert, delete, replace) from one word to another, whatever their case.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (lower(a[i - 1]) != lower(b[j - 1]));
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

// What follows the section of a key. The dot of "Llama-3.2-1B" divides nothing.
std::string_view last_part(std::string_view key) {
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  for (size_t dot = key.rfind('.'); dot != std::string_view::npos && dot > 0;
       dot = key.rfind('.', dot - 1))
    if (dot + 1 < key.size() && is_letter(key[dot - 1]) && is_letter(key[dot + 1]))
      return key.substr(dot + 1);
  return key;
}

struct Likeness {
  size_t cost = 0;
  bool near = false;
};

// What was left out ("lr" for "optimizer.lr", "hidden" for "hidden_size") or put under another
// section ("train.lr") costs less than two wrong letters. A third of the letters may be wrong; a
// section that is right does not make another key of it a near one.
Likeness likeness(std::string_view word, std::string_view candidate) {
  if (word.size() > 2 && !word.ends_with('.') && candidate.find(word) != std::string_view::npos)
    return {2, true};
  const std::string_view last = last_part(word);
  const size_t apart = last == word ? 1 : 3;
  if (last.size() > 3 && last_part(candidate).find(last) != std::string_view::npos)
    return {2 + apart, true};
  const size_t most = last.size() < 3 ? 0 : std::max<size_t>(last.size() / 3, 1);
  // Words differ by at least the difference of their lengths: most candidates need no more work.
  const auto too_far = [&](std::string_view a, std::string_view b) {
    return std::max(a.size(), b.size()) - std::min(a.size(), b.size()) > most;
  };
  if (too_far(word, candidate) && too_far(last, last_part(candidate))) return {SIZE_MAX, false};
  const size_t whole = distance(word, candidate), of_last = distance(last, last_part(candidate));
  return {std::min(2 * whole, 2 * of_last + apart), std::min(whole, of_last) <= most};
}

}  // namespace

std::string did_you_mean(std::string_view word, std::span<const std::string_view> words) {
  // A key of any length can be given; what is this long is no misspelling.
  word = word.substr(0, 256);
  Likeness best{SIZE_MAX, false};
  std::string_view nearest;
  for (const std::string_view candidate : words) {
    const Likeness found = likeness(word, candidate);
    if (!found.near || found.cost >= best.cost) continue;
    best = found;
    nearest = candidate;
  }
  return best.near ? fmt::format(" (did you mean {}?)", nearest) : "";
}

}  // namespace capstan
