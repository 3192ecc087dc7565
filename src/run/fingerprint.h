#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "data/dataset/dataset.h"
#include "tensor/device.h"

// What tells, when a run goes on, whether it is beside the same things as before.
namespace capstan {

// Of samples: all tokens of each, and what of them is learned.
std::string data_fingerprint(const Dataset& dataset, int64_t max_seq_length);

// Of a model's weights: the names and shapes of the tensors and some values of each, whatever files
// they lie in. A copy of the embedding that a tied model's files have as its head counts as little
// as its absence. Nothing without a folder.
std::optional<std::string> weights_fingerprint(const std::filesystem::path& folder, bool tied);

// Of what computes: the GPU's name, or "MODEL, N threads, OpenBLAS VERSION KERNEL". Where it is the
// same, so are the bits.
std::string what_computes(Device device);

}  // namespace capstan
