#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/call_cost.h"
#include "train/trainer.h"

// Measurements of `capstan bench` on a machine, for predicting the time of a step: the rates of
// each kind of op by number type, and a known step compared with the sum of its ops.
namespace capstan {

// Kinds of ops whose rates are in FLOP/s, and those whose are in bytes/s.
inline constexpr std::array kFlopKinds = {OpKind::product, OpKind::head, OpKind::attention,
                                          OpKind::attention_backward};
inline constexpr std::array kByteKinds = {OpKind::elementwise, OpKind::optimizer};

// Rates for one number type, in FLOP/s, or bytes/s for elementwise ops and optimizers.
struct TypeRates {
  std::array<double, kOpKinds> rates{};  // by OpKind; for copies see Calibration::bytes_per_second
  // Bytes/s of attention. If they are known, its FLOPs and its bytes take time one after the other:
  // short documents have few FLOPs for each byte. 0: unknown.
  double attention_bytes = 0, attention_backward_bytes = 0;
  // A known training step: measured time, and the sum predicted from the rates above. Both 0 if
  // absent.
  double step_seconds = 0, step_predicted = 0;

  // As if ops of this kind took so many times as long.
  void slow(OpKind kind, double times);

  double& of(OpKind kind) { return rates[static_cast<size_t>(kind)]; }
  double of(OpKind kind) const { return rates[static_cast<size_t>(kind)]; }
  bool operator==(const TypeRates&) const = default;
};

// For one CPU precision: costs of the calls of each kind of op in training steps of several sizes.
// On a CPU, rates at one size do not predict another size, because of caches and conversions.
struct StepCosts {
  std::array<CallCost, kOpKinds> calls{};  // by OpKind
  double seconds = 0, predicted = 0;  // of all those steps: measured, and predicted from the calls

  bool operator==(const StepCosts&) const = default;
};

// By precision: "32-true", "bf16-mixed", "bf16-true".
using PrecisionCosts = std::map<std::string, StepCosts, std::less<>>;

struct Calibration {
  std::string name;              // machine_name
  Device device = Device::cpu;   // cpu or cuda
  std::string date;              // "2026-08-05", UTC
  bool from_data_sheet = false;  // it was not measured (data_sheet.h); no file says so
  std::string kernels;           // of a CPU: cpu::BlasLibrary's name; empty: not recorded
  double seconds_per_call = 0;
  double bytes_per_second = 0;                              // of a copy, counting reads and writes
  double to_device_per_second = 0, to_host_per_second = 0;  // bytes/s; GPU with pinned memory
  // Bytes/s in both directions together, of an update whose moments are in host memory. 0: unknown.
  double bus_per_second = 0;
  std::map<std::string, TypeRates, std::less<>>
      types;                  // "f32", "bf16"; a GPU's "tf32", "f16", "fp8"
  PrecisionCosts precisions;  // CPU only
  // `capstan bench comm`, by number of ranks: of one machine, and of several machines together.
  std::map<int, Network> networks, networks_across;
  // CPU only, by number of ranks of a machine: of each while all of them compute, which share its
  // memory and its power.
  std::map<int, PrecisionCosts> together;

  bool operator==(const Calibration&) const = default;
};

// Writes and parses the text of a calibration file (docs/formats.md). parse throws Fault::file as
// "where:line:column: …" for a key that is missing, unknown or of the wrong type, and for a rate
// outside 1e-12 to 1e21.
std::string calibration_json(const Calibration& calibration);
Calibration parse_calibration(std::string_view text, std::string_view where);

// The file for this machine name in the user's cache. Empty if there is no cache.
std::filesystem::path calibration_path(std::string_view name);

// All calibrations in the user's cache: of this machine, and those of others that were copied
// there. Warns once about what cannot be read, and leaves it out.
std::vector<Calibration> kept_calibrations();
// Of a file, or the one in the user's cache whose machine or file has this name: "h200.json",
// "NVIDIA H200", "nvidia-h200". Throws Fault::usage, with the names that are there, if there is
// none.
Calibration named_calibration(const std::string& file_or_name);

// Creates the folder if needed. Throws Fault::file.
void write_calibration(const std::filesystem::path& path, const Calibration& calibration);
Calibration read_calibration(const std::filesystem::path& path);
// The calibration of this machine's device, from the user's cache. None if the device was not
// measured or is absent; warns about a file that cannot be used.
std::optional<Calibration> find_calibration(Device device);
// Warns if it is one of this machine whose matrix products had other kernels than they have now,
// and so another speed. Not before a run has chosen its kernels: this asks for them.
void warn_of_other_kernels(const Calibration& calibration);

// "f32", "tf32", "bf16", "f16" or "fp8": the type of the run's matrix products in its blocks.
std::string_view type_of_products(const TrainOptions& options);

// What connects so many ranks, as measured among as many, or the nearest number; none if that was
// not measured. Of several machines only what was measured between machines counts.
std::optional<Network> network_of(const Calibration& calibration, int ranks, int machines);
// Whether a step of so many ranks is predicted from measurements alone, of their links as well.
bool all_measured(const Calibration& calibration, int ranks, int machines);
// Of a rank of so many on a machine: as measured with as many, or the nearest number; else, and of
// one rank, as it has the machine to itself. Null if this precision was not measured.
const StepCosts* costs_of(const Calibration& calibration, int ranks_on_machine,
                          Precision precision);

// The cost model with which `sim` imitates the machine for a run with these options. The state of a
// paged optimizer crosses the bus. Throws Fault::usage if the calibration is for another kind of
// device, or lacks the type of the run's matrix products.
CostModel cost_model(const Calibration& calibration, const TrainOptions& options);

}  // namespace capstan
