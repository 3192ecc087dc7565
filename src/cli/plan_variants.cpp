#include "cli/plan_variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "base/wrapped.h"

namespace capstan::cli {
namespace {

void add_precisions(std::vector<Variant>& all, const Planned& planned, Task task, bool fp8) {
  const TrainOptions& o = planned.options;
  std::vector<Precision> others = {Precision::bf16_true, Precision::bf16_mixed};
  if (!o.has_bf16) others = {Precision::f16_true, Precision::f16_mixed};
  if (fp8 && !o.lora) others.push_back(Precision::fp8_mixed);
  for (const Precision precision : others) {
    if (precision == o.precision) continue;
    Variant v{.what = fmt::format("precision: {}", name_of(precision)),
              .task = task,
              .keys = {{"precision", std::string(name_of(precision))}},
              .options = o};
    v.options.precision = precision;
    all.push_back(std::move(v));
  }
}

Variant with_adapters(const Planned& planned, Recipe recipe, Quantize quantize) {
  recipe.quantize = quantize;
  const TrainOptions lora = train_options(recipe, Task::finetune_lora, planned.options.model);
  std::string what = "command: finetune_lora";
  if (planned.options.lora) what = "";
  if (quantize != Quantize::none)
    what += fmt::format("{}quantize: {}", what.empty() ? "" : " with ", name_of(quantize));
  Variant v{.what = what, .task = Task::finetune_lora, .keys = {}, .options = planned.options};
  if (quantize != Quantize::none) v.keys = {{"quantize", std::string(name_of(quantize))}};
  v.options.lora = lora.lora;
  v.options.quantize = lora.quantize;
  return v;
}

}  // namespace

Allowed parse_allowed(const std::string& text) {
  Allowed allowed;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const std::pair<std::string_view, bool*> known[] = {{"precision", &allowed.precision},
                                                        {"lora", &allowed.lora},
                                                        {"qlora", &allowed.qlora},
                                                        {"fewer", &allowed.fewer}};
    const auto found = std::find_if(std::begin(known), std::end(known),
                                    [&](const auto& row) { return row.first == word; });
    require(found != std::end(known), Fault::usage,
            "plan: --allow takes precision, lora, qlora and fewer, joined by commas; found '{}'",
            word);
    *found->second = true;
  }
  return allowed;
}

std::vector<Variant> variants_of(const Planned& planned, const Recipe& recipe, Task task,
                                 const Allowed& allowed, bool fp8) {
  std::vector<Variant> all;
  if (allowed.precision) add_precisions(all, planned, task, fp8);
  const bool tunes = task != Task::pretrain;
  if (allowed.lora && tunes && !planned.options.lora)
    all.push_back(with_adapters(planned, recipe, Quantize::none));
  if (allowed.qlora && tunes && planned.options.quantize == Quantize::none)
    all.push_back(with_adapters(planned, recipe, Quantize::nf4));
  return all;
}

std::vector<std::pair<int, int>> fewer_than(const MeshQuestion& q) {
  std::vector<std::pair<int, int>> fewer;
  for (int gpus = 1; gpus < q.devices * q.machines; gpus *= 2)
    if (gpus <= q.devices || gpus % q.devices == 0)
      fewer.emplace_back(std::min(gpus, q.devices), std::max(1, gpus / q.devices));
  return fewer;
}

std::vector<VariantPlan> search_variants(const std::vector<MeshQuestion>& questions,
                                         const std::vector<Variant>& variants) {
  std::vector<VariantPlan> plans;
  for (const Variant& variant : variants)
    for (MeshQuestion q : questions) {
      q.options = variant.options;
      const MeshSearch found = search_meshes(q, 1);
      if (!found.best.empty()) plans.push_back({variant, found.best[0], q.devices, q.machines});
    }
  std::stable_sort(plans.begin(), plans.end(), [](const VariantPlan& a, const VariantPlan& b) {
    return a.best.step.seconds < b.best.step.seconds;
  });
  return plans;
}

std::vector<std::pair<std::string, std::string>> VariantPlan::keys() const {
  auto all = best.keys();
  all.insert(all.begin(), variant.keys.begin(), variant.keys.end());
  all.emplace_back("devices", std::to_string(devices));
  all.emplace_back("num_nodes", std::to_string(machines));
  return all;
}

const VariantPlan* cheapest_of(const std::vector<VariantPlan>& plans) {
  const auto cheapest = std::min_element(
      plans.begin(), plans.end(),
      [](const VariantPlan& a, const VariantPlan& b) { return a.gpu_seconds() < b.gpu_seconds(); });
  return cheapest == plans.end() ? nullptr : &*cheapest;
}

std::string variants_text(const std::vector<VariantPlan>& plans) {
  constexpr int kWhat = 22;  // columns
  if (plans.empty()) return "";
  const VariantPlan* const cheapest = cheapest_of(plans);
  std::string s =
      "\nwith what is allowed   GPUs  dp  tp cp pp micro   GiB    step tokens/s  GPU-s\n";
  for (const VariantPlan& p : plans) {
    const MeshChoice& c = p.best.choice;
    std::string what = p.variant.what;
    if (columns_of(what) > kWhat) s += fmt::format("{}\n", std::exchange(what, ""));
    s += fmt::format(
        "{:<{}} {:>4} {:>3} {:>3} {:>2} {:>2} {:>5} {:>5.1f} {:>7.3g} {:>8.0f} {:>6.3g}{}\n", what,
        kWhat, p.gpus(), p.best.data_ranks, c.tensor, c.context, c.pipeline, c.micro_batch_size,
        static_cast<double>(p.best.bytes) / 0x1p30, p.best.step.seconds, p.best.tokens_per_second,
        p.gpu_seconds(), &p == cheapest ? " *" : "");
  }
  return s + "GPU-s: GPUs × seconds of a step, which is what it costs; *: the cheapest\n";
}

}  // namespace capstan::cli
