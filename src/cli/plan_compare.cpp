#include "cli/plan_compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/units.h"
#include "base/visible.h"
#include "base/wrapped.h"
#include "cli/command_line.h"
#include "cli/plan_answering.h"
#include "cli/plan_tables.h"

namespace capstan::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Compared {
  std::string name;
  Question question;
  Answers answers;

  double speed() const { return answers.time ? answers.time->step.tokens_per_second() : 0; }
};

// What a setting is, in the words of a recipe; those that all settings share are told once.
using Facts = std::vector<std::pair<std::string, std::string>>;

template <class T>
std::string text_of(const T& value) {
  return std::string(name_of(value));
}

Facts facts_of(const Compared& c) {
  const TrainOptions& o = c.answers.fit.options;
  const Recipe& r = c.question.recipe;
  const std::string gpu = c.answers.gpu ? c.answers.gpu->id : std::string(name_of(o.device));
  return {
      {"model", visible(c.question.planned.model)},
      {"command", text_of(c.question.task)},
      {"on", fmt::format(
                 "{}{} × {}",
                 c.answers.machines.count > 1 ? fmt::format("{} × ", c.answers.machines.count) : "",
                 c.answers.machines.devices, gpu)},
      {"mesh", o.ranks.size == 1 ? "one rank" : mesh_name(o)},
      {"precision", text_of(o.precision)},
      {"quantize", text_of(o.quantize)},
      {"optimizer", text_of(OptimizerClass{o.optimizer.kind, o.optimizer.paged})},
      {"activations", name_of(o.recompute)},
      {"micro-batch", std::to_string(r.micro_batch_size.size)},
      {"global batch", std::to_string(r.global_batch_size)},
      {"sequence", std::to_string(c.question.planned.options.limits.longest)}};
}

Compared planned(const PlanOptions& options, const Setting& setting) {
  Compared c;
  c.name = setting.name;
  Question& q = c.question;
  q.options = options;
  try {
    const bool understood = take_words(q, setting.words);
    require(understood, Fault::usage, "--compare prints no recipe; leave out --print_config");
    if (!options.gpu.empty()) take_named_gpu(q, gpu_catalogue().named(options.gpu));
    plan_recipe(q);
    settle_machine(q);
    c.answers = answer(q, {});
  } catch (const Error& e) {
    fail(e.fault(), "{}: {}", setting.name, e.what());
  }
  return c;
}

const Compared* fastest_of(const std::vector<Compared>& all) {
  const auto best =
      std::max_element(all.begin(), all.end(),
                       [](const Compared& a, const Compared& b) { return a.speed() < b.speed(); });
  return best->speed() > 0 ? &*best : nullptr;
}

void print_text(const std::vector<Compared>& all) {
  const Compared* const fastest = fastest_of(all);
  constexpr int kName = 24;
  std::string s =
      fmt::format("{:<{}} fits    GiB  of GiB       step  tokens/s        run\n", "", kName);
  for (const Compared& c : all) {
    std::string name = visible(c.name);
    if (columns_of(name) > kName) s += std::exchange(name, "") + "\n";
    const Fit& fit = c.answers.fit;
    s += fmt::format("{:<{}} {:<4} {:>6.1f} {:>7.1f}", name, kName, fit.fits() ? "yes" : "no",
                     static_cast<double>(fit.plan.device.total_bytes) / kGiB,
                     static_cast<double>(fit.available.device) / kGiB);
    if (const auto& time = c.answers.time)
      s += fmt::format(" {:>10} {:>9} {:>10}{}", about(time->step.seconds), three_digits(c.speed()),
                       time->run_seconds ? about(*time->run_seconds) : "-",
                       &c == fastest ? " *" : "");
    s += "\n";
  }
  fmt::print("{}", s);
  if (fastest != nullptr) fmt::print("*: the fastest that fits\n");
  fmt::print("\n");
  // What differs, for each; then what all share.
  std::vector<Facts> facts;
  for (const Compared& c : all) facts.push_back(facts_of(c));
  std::vector<std::string> shared;
  std::vector<std::vector<std::string>> own(all.size());
  for (size_t i = 0; i < facts[0].size(); ++i) {
    const bool same = std::all_of(facts.begin(), facts.end(),
                                  [&](const Facts& f) { return f[i] == facts[0][i]; });
    const auto text = [](const auto& fact) {
      return fmt::format("{} {}", fact.first, fact.second);
    };
    if (same) shared.push_back(text(facts[0][i]));
    for (size_t n = 0; n < all.size() && !same; ++n) own[n].push_back(text(facts[n][i]));
  }
  for (size_t n = 0; n < all.size(); ++n) {
    std::erase(own[n], "model " + visible(all[n].name));
    if (!own[n].empty())
      fmt::print(
          "{}", wrapped(fmt::format("{}: {}", visible(all[n].name), fmt::join(own[n], " · ")), ""));
    if (!all[n].answers.fit.fits()) fmt::print("{}", wrapped(all[n].answers.fit.verdict(), "  "));
  }
  fmt::print("{}", wrapped(fmt::format("all: {}", fmt::join(shared, " · ")), ""));
  if (const auto& time = all[0].answers.time)
    fmt::print("{}",
               wrapped(fmt::format("times {} {} of {}",
                                   time->calibration.from_data_sheet ? "by the data sheet of"
                                                                     : "from the calibration of",
                                   time->calibration.name, time->calibration.date),
                       ""));
}

Json json_of(const Compared& c) {
  const Answers& a = c.answers;
  Json out = {{"name", c.name},
              {"fits", a.fit.fits()},
              {"verdict", a.fit.verdict()},
              {"peak_bytes", a.fit.plan.device.total_bytes},
              {"disk_bytes", a.needs.disk_bytes}};
  if (a.fit.available.device != Room().host) out["available_bytes"] = a.fit.available.device;
  Json settings = Json::object();
  for (const auto& [key, value] : facts_of(c)) settings[key] = value;
  out["setting"] = settings;
  if (!a.time) return out;
  out["step_seconds"] = a.time->step.seconds;
  out["tokens_per_second"] = c.speed();
  if (a.time->run_seconds) out["run_seconds"] = *a.time->run_seconds;
  if (a.cost) out["dollars"] = a.cost->dollars.expected;
  return out;
}

}  // namespace

int plan_compare(const PlanOptions& options, const Arguments& words) {
  std::vector<Compared> all;
  for (const Setting& setting : settings_of(words)) all.push_back(planned(options, setting));
  const bool fits =
      std::any_of(all.begin(), all.end(), [](const Compared& c) { return c.answers.fit.fits(); });
  if (options.json) {
    Json rows = Json::array();
    for (const Compared& c : all) rows.push_back(json_of(c));
    print_json({{"format", "capstan-plan-compare-1"}, {"fits", fits}, {"settings", rows}});
  } else {
    print_text(all);
  }
  return fits ? 0 : static_cast<int>(Fault::does_not_fit);
}

}  // namespace capstan::cli
