#include "recipe/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "base/error.h"

namespace capstan {
namespace {

std::string batch_problem(int64_t global, int64_t micro) {
  const int64_t lower = global / micro * micro, common = std::gcd(global, micro);
  const auto upper = static_cast<uint64_t>(lower) + static_cast<uint64_t>(micro);
  return fmt::format("{} is not a whole number of micro-batches of {}; {}{} would be{}", global,
                     micro, lower > 0 ? fmt::format("{} or ", lower) : "", upper,
                     common > 1 ? fmt::format(", or train.micro_batch_size {}", common) : "");
}

}  // namespace

std::vector<Problem> problems_of(const Recipe& r) {
  std::vector<Problem> found;
  const auto add = [&](const char* key, std::string text) {
    found.push_back({key, std::move(text)});
  };
  if (r.global_batch_size % r.micro_batch_size != 0)
    add("train.global_batch_size", batch_problem(r.global_batch_size, r.micro_batch_size));
  if (r.schedule != LrDecay::constant && r.min_lr > r.lr)
    add("train.min_lr", fmt::format("{} is above optimizer.lr {}: the rate would rise; give a "
                                    "train.min_lr of at most {}, or train.schedule constant",
                                    r.min_lr, r.lr, r.lr));
  if (!r.epochs && !r.max_steps && !r.max_tokens && !r.max_time)
    add("train.max_steps",
        "nothing says how long to train; give train.epochs, max_steps, max_tokens or max_time");
  const bool time_alone = !r.epochs && !r.max_steps && !r.max_tokens && r.max_time;
  if (time_alone && r.schedule != LrDecay::constant)
    add("train.max_time",
        fmt::format("does not say where the {} ends; give train.max_steps, epochs or max_tokens as "
                    "well, or train.schedule constant",
                    name_of(r.schedule)));
  if (time_alone && r.lr_warmup_fraction)
    add("train.lr_warmup_fraction",
        "of how many steps, train.max_time alone does not say; give train.lr_warmup_steps, or "
        "train.max_steps, epochs or max_tokens as well");
  if (r.rounding == Rounding::stochastic && r.precision != Precision::bf16_true)
    add("optimizer.rounding",
        fmt::format("stochastic is for weights that are bf16 alone, and with precision {} they are "
                    "f32; give precision bf16-true, or leave it out",
                    r.precision ? name_of(*r.precision) : "null"));
  if (r.num_nodes != 1)
    add("num_nodes",
        fmt::format("{} machines were asked for; there is 1 that it runs on", r.num_nodes));
  if (!r.devices.automatic && r.devices.count != 1)
    add("devices", fmt::format("{} were asked for; there is 1 that it runs on", r.devices.count));
  return found;
}

void check_recipe(const Recipe& recipe) {
  std::vector<std::string> errors;
  for (const Problem& p : problems_of(recipe))
    errors.push_back(fmt::format("{}: {}", p.key, p.text));
  require(errors.empty(), Fault::usage, "{}", fmt::join(errors, "\n"));
}

}  // namespace capstan
