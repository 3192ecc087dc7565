#include "recipe/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "base/error.h"
#include "recipe/values.h"

namespace capstan {
namespace {

std::string batch_problem(int64_t global, int64_t micro) {
  const int64_t lower = global / micro * micro, common = std::gcd(global, micro);
  const auto upper = static_cast<uint64_t>(lower) + static_cast<uint64_t>(micro);
  return fmt::format("{} is not a multiple of train.micro_batch_size {}; use {}{}{}", global, micro,
                     lower > 0 ? fmt::format("{} or ", lower) : "", upper,
                     common > 1 ? fmt::format(", or train.micro_batch_size {}", common) : "");
}

// "{optimizer}" becomes the value of that key.
std::string with_values(std::string_view text, const Recipe& recipe) {
  std::string out;
  for (size_t open = text.find('{'); open != std::string_view::npos; open = text.find('{')) {
    const size_t close = text.find('}', open);
    out += text.substr(0, open);
    out += value_of(recipe, find_option(text.substr(open + 1, close - open - 1)));
    text.remove_prefix(close + 1);
  }
  return out.append(text);
}

}  // namespace

std::optional<std::string> unmet(const Option& option, Condition::Unmet consequence,
                                 const Recipe& recipe, Task task) {
  for (const Condition& c : option.needs)
    if (c.unmet == consequence && !c.holds(recipe, task)) return with_values(c.otherwise, recipe);
  return std::nullopt;
}

std::vector<Problem> problems_of(const Recipe& r, Task task) {
  std::vector<Problem> found;
  for (const Option& o : options())
    if (auto text = unmet(o, Condition::Unmet::refused, r, task))
      found.push_back({o.key, std::move(*text)});
  if (r.global_batch_size % r.micro_batch_size.size != 0)
    found.push_back(
        {"train.global_batch_size", batch_problem(r.global_batch_size, r.micro_batch_size.size)});
  return found;
}

void check_recipe(const Recipe& recipe, Task task) {
  std::vector<std::string> errors;
  for (const Problem& p : problems_of(recipe, task))
    errors.push_back(fmt::format("{}: {}", p.key, p.text));
  require(errors.empty(), Fault::usage, "{}", fmt::join(errors, "\n"));
}

}  // namespace capstan
