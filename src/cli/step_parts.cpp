#include "cli/step_parts.h"

#include "plan/quick.h"

namespace capstan::cli {

std::vector<StepPart> parts_of(const StepEstimate& step) {
  const auto of = [&](OpKind kind) { return step.by_kind[static_cast<size_t>(kind)]; };
  std::vector<StepPart> all = {
      {"matrix products", of(OpKind::product)},
      {"output head", of(OpKind::head)},
      {"attention", of(OpKind::attention) + of(OpKind::attention_backward)},
      {"norms and the like", of(OpKind::elementwise)},
      {"optimizer", of(OpKind::optimizer)},
      {"copies", of(OpKind::copy)},
      {"exposed communication", step.exposed * step.seconds},
      {"waiting for other stages", step.waiting * step.seconds}};
  double rest = step.seconds;
  for (const StepPart& part : all) rest -= part.seconds;
  all.push_back({"other", rest});
  std::erase_if(all, [&](const StepPart& p) { return p.seconds < 5e-4 * step.seconds; });
  return all;
}

Utilization utilization_of(const StepEstimate& step, const ModelConfig& model, double sequence,
                           int ranks, double peak_flops) {
  const auto part = [&](FlopConvention convention) {
    return flops_per_token(model, sequence, convention) * step.tokens_per_second() /
           (ranks * peak_flops);
  };
  return {part(FlopConvention::whole), part(FlopConvention::causal), peak_flops};
}

}  // namespace capstan::cli
