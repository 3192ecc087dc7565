#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "comm/mesh.h"
#include "data/dataset/dataset.h"
#include "tensor/device.h"

// Fingerprints that show whether a resumed run has the same data, weights and machine.
namespace capstan {

// Fingerprint of the samples: all tokens, and which of them are targets.
std::string data_fingerprint(const Dataset& dataset, int64_t max_seq_length);

// Fingerprint of a model's weights: names and shapes of the tensors and some values of each,
// independent of how they are split into files. Ignores the copy of the embedding that a tied model
// may store as its head. None without a folder.
std::optional<std::string> weights_fingerprint(const std::filesystem::path& folder, bool tied);

// The compute device: the GPU's name, or "MODEL, N threads, OpenBLAS VERSION KERNEL"; then the
// number of ranks, if there are several, and how many share layers and sequences. The same devices
// give the same bits.
std::string what_computes(Device device, int ranks = 1, const MeshShape& mesh = {});

// The kernels in what_computes: "OpenBLAS VERSION KERNEL". Empty for a GPU.
std::string kernels_in(std::string_view computed_on);

}  // namespace capstan
