#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/calibration.h"

// `capstan bench`: what a device reaches, and the calibration that follows from it.
namespace capstan {

// A training step: TinyLlama's kind of model, on documents of so many tokens.
struct BenchStep {
  ModelConfig model;
  int64_t documents = 0, length = 0;  // of a micro-batch
  Recomputation recompute = {};
  int64_t micro_batches = 1;  // several add their gradients up
};

// What is measured.
struct BenchSizes {
  std::vector<int64_t> squares;  // n: products of two n x n matrices
  int64_t few = 16;              // tokens of a product that reads more than it computes
  // A block of a transformer, and the rows that products and bandwidth-bound ops have.
  int64_t tokens = 0, hidden = 0, inner = 0;
  int64_t head_tokens = 0, vocab = 0;
  int64_t documents = 0, length = 0, heads = 0, kv_heads = 0, head_dim = 0;  // of attention
  int64_t copied = 0;                                                        // bytes
  std::vector<BenchStep> steps;  // on a GPU the first alone
  double seconds = 0;            // for each measurement
};
// TinyLlama's shapes on a GPU; smaller ones on a CPU, in a minute on two cores.
// `quick`: a quarter of that.
BenchSizes bench_sizes(Device device, bool quick);

struct BenchRow {
  enum class Unit { flops, bytes, seconds };  // per second, per second, of one
  std::string what;
  std::string type;  // "f32", "tf32", "bf16", "fp8", or empty
  Unit unit = Unit::flops;
  double value = 0;
};

struct BenchResult {
  std::vector<BenchRow> rows;
  Calibration calibration;
};

// `begin` is told each measurement before it is made, with its number (from 0) and how many there
// are. A training step that does not fit into the device's memory is left out.
using BenchProgress = std::function<void(std::string_view what, int64_t number, int64_t of)>;
BenchResult bench_machine(Device device, const BenchSizes& sizes, const BenchProgress& begin);

// What makers say that a device reaches, in FLOP/s and bytes/s; 0 where that is not known.
struct DevicePeak {
  double f32 = 0, tf32 = 0, bf16 = 0, fp8 = 0, bytes = 0;
};
std::optional<DevicePeak> known_peak(std::string_view name);

// The row's share of the device's peak (above 1 for what is read from a cache), or, where no peak
// is known, of the best of its type and unit that was measured. None for times and for the bus.
std::optional<double> share_of_peak(const BenchRow& row, const BenchResult& result);

// For people, with a bar for each share.
std::string bench_table(const BenchResult& result);

}  // namespace capstan
