#pragma once

#include <string>
#include <vector>

#include "cli/planned.h"
#include "plan/mesh_search.h"

// Other ways to train that a user may allow: in another precision, with adapters, on fewer GPUs.
namespace capstan::cli {

struct Allowed {
  bool precision = false, lora = false, qlora = false, fewer = false;
};
// "precision,lora,qlora,fewer". Throws Fault::usage for another word.
Allowed parse_allowed(const std::string& text);

struct Variant {
  std::string what;  // "precision: bf16-true"
  Task task = Task::finetune_full;
  // What the recipe says otherwise.
  std::vector<std::pair<std::string, std::string>> keys;
  TrainOptions options;
};
// Those that are allowed and differ from the plan. FP8 only where `fp8` products are known.
// Pretraining has no adapters.
std::vector<Variant> variants_of(const Planned& planned, const Recipe& recipe, Task task,
                                 const Allowed& allowed, bool fp8);

// The best mesh of a variant on so many GPUs of so many machines.
struct VariantPlan {
  Variant variant;
  MeshPlan best;
  int devices = 1, machines = 1;

  int gpus() const { return devices * machines; }
  double gpu_seconds() const { return gpus() * best.step.seconds; }
  // The keys of a recipe that trains so.
  std::vector<std::pair<std::string, std::string>> keys() const;
};
// Powers of two of the question's GPUs that are fewer: devices and machines.
std::vector<std::pair<int, int>> fewer_than(const MeshQuestion& question);
// The best of each variant on the GPUs of each question, where one fits; the fastest first.
std::vector<VariantPlan> search_variants(const std::vector<MeshQuestion>& questions,
                                         const std::vector<Variant>& variants);

// The one whose steps cost least; null: there is none.
const VariantPlan* cheapest_of(const std::vector<VariantPlan>& plans);

std::string variants_text(const std::vector<VariantPlan>& plans);

}  // namespace capstan::cli
