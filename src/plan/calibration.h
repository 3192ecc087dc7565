#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "plan/call_cost.h"
#include "train/trainer.h"

// What `capstan bench` measured of a machine, for predicting the time of a step: the rates of each
// kind of op by the type of its numbers, and how one known step compared with the sum of its ops.
namespace capstan {

// For one type of numbers. In FLOP/s, or bytes/s for elementwise ops and optimizers.
struct TypeRates {
  std::array<double, kOpKinds> rates{};  // by OpKind; a copy's is the machine's
  // A known training step: measured, and as the rates above add up. Both or neither are 0.
  double step_seconds = 0, step_predicted = 0;

  double& of(OpKind kind) { return rates[static_cast<size_t>(kind)]; }
  double of(OpKind kind) const { return rates[static_cast<size_t>(kind)]; }
  bool operator==(const TypeRates&) const = default;
};

// For one precision of a CPU: what calls of each kind of op cost in training steps of several
// sizes. Rates of one size say little of another there, where caches and conversions count.
struct StepCosts {
  std::array<CallCost, kOpKinds> calls{};  // by OpKind
  double seconds = 0, predicted = 0;       // of all those steps: measured, and as the calls add up

  bool operator==(const StepCosts&) const = default;
};

struct Calibration {
  std::string name;             // machine_name
  Device device = Device::cpu;  // cpu or cuda
  std::string date;             // "2026-08-05", UTC
  double seconds_per_call = 0;
  double bytes_per_second = 0;                              // of a copy, read and written
  double to_device_per_second = 0, to_host_per_second = 0;  // bytes, of a GPU through pinned memory
  std::map<std::string, TypeRates, std::less<>> types;      // "f32", "bf16"; a GPU's "tf32", "fp8"
  std::map<std::string, StepCosts, std::less<>> precisions;  // of a CPU: "32-true", "bf16-mixed" …

  bool operator==(const Calibration&) const = default;
};

// The text of a calibration file (docs/formats.md), and back. parse throws Fault::file as
// "where:line:column: …" for a key that is missing, unknown or of another type, and for a rate that
// is not from 1e-12 to 1e21.
std::string calibration_json(const Calibration& calibration);
Calibration parse_calibration(std::string_view text, std::string_view where);

// In the user's cache: one file for each name. Empty where there is no cache.
std::filesystem::path calibration_path(std::string_view name);

// Makes the folder if need be. Throws Fault::file.
void write_calibration(const std::filesystem::path& path, const Calibration& calibration);
Calibration read_calibration(const std::filesystem::path& path);
// Of the device in this machine, from the user's cache. None where it was not measured or is not
// here; a file that cannot be used is warned of.
std::optional<Calibration> find_calibration(Device device);

// "f32", "tf32", "bf16" or "fp8": what the products of such a run multiply, in its blocks.
std::string_view type_of_products(const TrainOptions& options);

// The machine as `sim` imitates it for a run with these options. A paged optimizer's state crosses
// the bus. Throws Fault::usage where the calibration is of another kind of device, or does not have
// the type of the run's products.
CostModel cost_model(const Calibration& calibration, const TrainOptions& options);

}  // namespace capstan
