#pragma once

#include <array>
#include <optional>
#include <span>

#include "bench/op_timer.h"
#include "bench/sizes.h"
#include "data/dataset/dataset.h"
#include "machine/memory.h"
#include "plan/calibration.h"

// Times training steps of small models: what `capstan bench` measures last, and on a CPU what
// `capstan bench comm` measures on all ranks at once.
namespace capstan {

// The precisions of a CPU's calibration.
inline constexpr std::array kCpuPrecisions = {Precision::f32_true, Precision::bf16_mixed,
                                              Precision::bf16_true};

// Documents of this many random tokens, the same each time.
Dataset random_documents(int64_t count, int64_t length, int64_t vocab);

// How a step computes.
struct StepSetup {
  Device device = Device::cpu;
  Precision precision = Precision::f32_true;
  bool tf32 = false;
};

// The step that took the median time.
struct StepTimes {
  double seconds = 0;
  std::array<CallTotal, kOpKinds> calls;  // by OpKind; on a GPU nobody waits for each of them
};

bool step_fits(const StepSetup& setup, const BenchStep& step, const Room& room);
// Takes steps for about this long, and at least three after the first; the first alone if that took
// longer than the patience.
StepTimes time_step(const StepSetup& setup, const BenchStep& step, double seconds,
                    double patience = kEndlessPatience);

// The seconds of the step by a calibration.
double predict_step(const StepSetup& setup, const BenchStep& step, const Calibration& calibration);

// What calls cost, from the ops of several steps. None without a step.
std::optional<StepCosts> step_costs(std::span<const StepTimes> steps);

// "step, 1 x 4 x 256 tokens, 512 channels"
std::string name_of(const BenchStep& step);

}  // namespace capstan
