#pragma once

#include "recipe/condition.h"

// The conditions of the rows in options.cpp, under the names of what they need.
namespace capstan::condition {

using enum Condition::Unmet;

// the optimizer's arguments
inline constexpr Condition kIsAdamW = {
    [](const Recipe& r, Task) { return r.optimizer.kind != OptimizerKind::sgd; }, refused_if_given,
    "only AdamW has it; the optimizer is {optimizer}", true};
inline constexpr Condition kIsSgd = {
    [](const Recipe& r, Task) { return r.optimizer.kind == OptimizerKind::sgd; }, refused_if_given,
    "only SGD has it; the optimizer is {optimizer}", true};
inline constexpr Condition kHasMomentum = {[](const Recipe& r, Task) { return r.momentum > 0; },
                                           refused_if_given, "needs optimizer.momentum above 0"};
inline constexpr Condition kNesterovOrDampening = {
    [](const Recipe& r, Task) { return !r.nesterov || r.dampening == 0; }, refused_if_given,
    "optimizer.nesterov and optimizer.dampening exclude each other"};
inline constexpr Condition kBf16Weights = {
    [](const Recipe& r, Task) {
      return r.rounding == Rounding::nearest || r.precision == Precision::bf16_true;
    },
    refused,
    "stochastic rounds bf16-true weights, and precision is {precision}; set precision bf16-true, "
    "or remove optimizer.rounding"};

inline constexpr Condition kAdamW[] = {kIsAdamW};
inline constexpr Condition kSgd[] = {kIsSgd};
inline constexpr Condition kSgdMomentum[] = {kIsSgd, kHasMomentum, kNesterovOrDampening};
inline constexpr Condition kRounding[] = {kBf16Weights};

// the model, which is described in one way
inline constexpr Condition kNoWeights = {
    [](const Recipe& r, Task) { return !r.initial_checkpoint_dir; }, refused_if_given,
    "initial_checkpoint_dir has its own config.json; give only one of the two"};
inline constexpr Condition kNoConfig = {[](const Recipe& r, Task) { return !r.model_config; },
                                        refused_if_given,
                                        "model_config sets it too; give only one of the two"};
inline constexpr Condition kNoName = {[](const Recipe& r, Task) { return !r.model_name; },
                                      refused_if_given,
                                      "model_name sets it too; give only one of the two"};

inline constexpr Condition kModelConfig[] = {kNoWeights, kNoName};
inline constexpr Condition kModelSize[] = {kNoWeights, kNoConfig, kNoName};

// the data's arguments
constexpr bool has_records(const Recipe& r, Task) {
  return !is_text(r.data);
}
template <DataClass data>
bool is_data(const Recipe& r, Task) {
  return r.data == data;
}
inline constexpr Condition kIsJson = {is_data<DataClass::json>, allowed, "", true};

inline constexpr Condition kJsonPath[] = {
    kIsJson,
    {has_records, refused_if_given, "only records have it; data is {data}; use --data JSON"}};
inline constexpr Condition kColumn[] = {
    kIsJson,
    {has_records, refused_if_given,
     "only records have it; data is {data}, whose only column is data.columns.text"}};
inline constexpr Condition kTextColumn[] = {
    {[](const Recipe& r, Task) { return r.data == DataClass::json || is_text(r.data); }, allowed,
     "", true}};
inline constexpr Condition kDownloadDir[] = {
    {[](const Recipe& r, Task) { return r.data != DataClass::json && !is_text(r.data); }, allowed,
     "", true}};
inline constexpr Condition kMaskPrompt[] = {
    {has_records, refused_if_given, "only records have prompts; data is {data}; use --data JSON"}};
inline constexpr Condition kPromptStyle[] = {
    {has_records, noted, "data is {data}, which has no prompts"}};
inline constexpr Condition kTextFiles[] = {{is_data<DataClass::text_files>, refused_if_given,
                                            "only TextFiles has it; data is {data}", true}};
inline constexpr Condition kTextSet[] = {
    {[](const Recipe& r, Task) { return is_text_set(r.data); }, refused_if_given,
     "only TinyStories, TinyLlama, MicroLlama, OpenWebText and LitData have it; data is {data}",
     true}};
inline constexpr Condition kLitData[] = {
    {is_data<DataClass::litdata>, refused_if_given, "only LitData has it; data is {data}", true}};
inline constexpr Condition kTinyLlama[] = {{is_data<DataClass::tinyllama>, refused_if_given,
                                            "only TinyLlama has it; data is {data}", true}};

// the machine
inline constexpr Condition kPrecision[] = {
    {[](const Recipe& r, Task task) {
       return r.precision != Precision::fp8_mixed || task == Task::pretrain ||
              task == Task::finetune_full;
     },
     refused,
     "fp8-mixed trains all weights, so it needs pretrain or finetune_full; use bf16-mixed with "
     "adapters"}};
inline constexpr Condition kF32Products[] = {
    {[](const Recipe& r, Task) {
       return r.matmul_precision.value_or(MatmulPrecision::highest) == MatmulPrecision::highest ||
              r.precision.value_or(Precision::f32_true) == Precision::f32_true;
     },
     noted, "{precision} multiplies in 16 bits or less already"}};
inline constexpr Condition kLossScale[] = {{[](const Recipe& r, Task) {
                                              return !r.precision ||
                                                     r.precision == Precision::f16_true ||
                                                     r.precision == Precision::f16_mixed;
                                            },
                                            noted, "{precision} needs no loss scale"}};
inline constexpr Condition kDevices[] = {
    {[](const Recipe& r, Task) {
       return r.devices.automatic || (r.devices.count >= 1 && r.devices.count <= kMostRanks);
     },
     refused, "{devices} requested; expected 1 to 64"}};
inline constexpr Condition kNodes[] = {
    {[](const Recipe& r, Task) { return r.num_nodes <= kMostPlannedRanks; }, refused,
     "{num_nodes} requested; expected 1 to 4096"}};

inline constexpr Condition kStages[] = {
    {[](const Recipe& r, Task) { return r.pipeline_parallel <= kMostRanks; }, refused,
     "{pipeline_parallel} requested; expected 1 to 64"}};
inline constexpr Condition kLayerShares[] = {
    {[](const Recipe& r, Task) { return r.tensor_parallel <= kMostRanks; }, refused,
     "{tensor_parallel} requested; expected 1 to 64"}};
inline constexpr Condition kOverlap[] = {
    {[](const Recipe& r, Task) {
       return r.tensor_parallel > 1 || r.tensor_parallel_overlap != Overlap::on;
     },
     noted, "no ranks share each layer; set tensor_parallel"},
    {[](const Recipe& r, Task) {
       return r.precision != Precision::fp8_mixed || r.tensor_parallel_overlap != Overlap::on;
     },
     refused,
     "fp8-mixed scales each operand by all of its values, so it cannot be multiplied in halves; "
     "use auto or false"}};
inline constexpr Condition kSequenceShares[] = {
    {[](const Recipe& r, Task) { return r.context_parallel <= kMostRanks; }, refused,
     "{context_parallel} requested; expected 1 to 64"}};
inline constexpr Condition kPipelineSchedule[] = {
    {[](const Recipe& r, Task) {
       return r.pipeline_parallel > 1 || r.pipeline_schedule == PipelineChoice();
     },
     noted, "there is one stage; set pipeline_parallel"}};

// what a run writes
inline constexpr Condition kTraceStep[] = {
    {[](const Recipe& r, Task) {
       return r.log_trace || r.log_trace_step == Recipe().log_trace_step;
     },
     refused_if_given, "there is no trace; set log.trace to a file"}};

// the length of the run, and what depends on it
constexpr bool counts_steps(const Recipe& r) {
  return r.epochs || r.max_steps || r.max_tokens;
}
inline constexpr Condition kLength[] = {
    {[](const Recipe& r, Task) { return counts_steps(r) || r.max_time; }, refused,
     "the recipe does not say how long to train; set train.epochs, max_steps, max_tokens or "
     "max_time"}};
inline constexpr Condition kScheduleEnds[] = {
    {[](const Recipe& r, Task) {
       return counts_steps(r) || !r.max_time || r.schedule == LrDecay::constant;
     },
     refused,
     "does not fix the number of steps, so the {train.schedule} schedule has no end; also set "
     "train.max_steps, epochs or max_tokens, or use train.schedule constant"}};
inline constexpr Condition kWarmUpSteps[] = {
    {[](const Recipe& r, Task) { return counts_steps(r) || !r.max_time || !r.lr_warmup_fraction; },
     refused,
     "train.max_time does not fix the number of steps, so a warm-up fraction is undefined; set "
     "train.lr_warmup_steps instead, or also train.max_steps, epochs or max_tokens"}};
inline constexpr Condition kMinLr[] = {
    {[](const Recipe& r, Task) { return r.schedule == LrDecay::constant || r.min_lr <= r.lr; },
     refused,
     "{train.min_lr} is above optimizer.lr {optimizer.lr}, so the learning rate would rise; set "
     "train.min_lr to at most {optimizer.lr}, or use train.schedule constant"},
    // The record of a run with a constant rate has that rate here.
    {[](const Recipe& r, Task) { return r.schedule != LrDecay::constant || r.min_lr == r.lr; },
     noted, "the schedule is constant"}};
inline constexpr Condition kSkips[] = {
    {[](const Recipe& r, Task) { return r.on_nan == OnNan::skip; }, noted,
     "train.on_nan is {train.on_nan}"}};

}  // namespace capstan::condition
