#include "data/tasks.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/rng.h"

namespace capstan {
namespace {

// The random choices of one example, in order.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t example)
      : rng_({.seed = seed, .sample = example, .site = site::tasks}) {}
  int below(int n) { return static_cast<int>(rng_.below(next_++, static_cast<uint64_t>(n))); }
  int between(int low, int high) { return low + below(high - low + 1); }
  char letter() { return static_cast<char>('a' + below(26)); }
  std::string word(int shortest, int longest) {
    std::string w(static_cast<size_t>(between(shortest, longest)), ' ');
    for (char& c : w) c = letter();
    return w;
  }

 private:
  Rng rng_;
  uint64_t next_ = 0;
};

Example reverse(Draws& d) {
  const std::string w = d.word(2, 5);
  return {"Reverse: " + w, {w.rbegin(), w.rend()}};
}

std::string capitals(std::string w) {
  for (char& c : w) c = static_cast<char>(c - 'a' + 'A');
  return w;
}

Example upper(Draws& d) {
  const std::string w = d.word(2, 5);
  return {"Upper: " + w, capitals(w)};
}

Example mirror(Draws& d) {
  const std::string w = d.word(2, 5);
  return {"Mirror: " + w, capitals({w.rbegin(), w.rend()})};
}

Example last(Draws& d) {
  const std::string w = d.word(2, 5);
  return {"Last: " + w, {w.back()}};
}

Example count_a(Draws& d) {
  std::string w = d.word(2, 5);
  // Uniform letters would hardly ever contain an a: the answer would be 0.
  for (char& c : w)
    if (d.below(5) < 2) c = 'a';
  return {"Count a: " + w, std::to_string(std::count(w.begin(), w.end(), 'a'))};
}

Example sort(Draws& d) {
  std::string digits(static_cast<size_t>(d.between(2, 4)), ' ');
  for (char& c : digits) c = static_cast<char>('0' + d.below(10));
  const auto spaced = [](const std::string& text) {
    std::string out;
    for (const char c : text) (out.empty() ? out : out += ' ') += c;
    return out;
  };
  std::string sorted = digits;
  std::sort(sorted.begin(), sorted.end());
  return {"Sort: " + spaced(digits), spaced(sorted)};
}

Example add(Draws& d) {
  const int a = d.below(100), b = d.below(10);
  return {"Add: " + std::to_string(a) + "+" + std::to_string(b), std::to_string(a + b)};
}

constexpr std::array kKinds = {reverse, upper, last, count_a, sort, add};

// `one` makes an example from its draws.
template <class One>
std::vector<Example> make(uint64_t seed, int64_t count, const One& one) {
  require(count >= 0, Fault::usage, "cannot make {} examples", count);
  std::vector<Example> examples;
  examples.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    Draws d(seed, static_cast<uint64_t>(i));
    examples.push_back(one(d));
    examples.back().prompt += '\n';
  }
  return examples;
}

}  // namespace

std::vector<Example> make_examples(uint64_t seed, int64_t count) {
  return make(seed, count,
              [](Draws& d) { return kKinds[static_cast<size_t>(d.below(std::ssize(kKinds)))](d); });
}

std::vector<Example> make_mirror_examples(uint64_t seed, int64_t count) {
  return make(seed, count, mirror);
}

bool held_out(std::string_view prompt) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : prompt) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  // The low bits mix badly for such short texts: multiply once more and use the top bits.
  return ((hash ^ (hash >> 32)) * 0x9e3779b97f4a7c15 >> 32) % 10 == 0;
}

ExampleSplit split(std::vector<Example> examples) {
  ExampleSplit parts;
  std::unordered_set<std::string> seen;
  for (Example& example : examples) {
    if (!held_out(example.prompt)) {
      parts.train.push_back(std::move(example));
    } else if (seen.insert(example.prompt).second) {
      parts.held_out.push_back(std::move(example));
    }
  }
  return parts;
}

}  // namespace capstan
