#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "comm/mesh.h"
#include "data/dataset/dataset.h"
#include "tensor/device.h"
#include "train/train_options.h"

// Fingerprints that show whether a resumed run has the same data, weights and machine.
namespace capstan {

// Fingerprint of the samples: all tokens, and which of them are targets.
std::string data_fingerprint(const Dataset& dataset, int64_t max_seq_length);

// Fingerprint of a model's weights: names and shapes of the tensors and some values of each,
// independent of how they are split into files. Ignores the copy of the embedding that a tied model
// may store as its head. None without a folder.
std::optional<std::string> weights_fingerprint(const std::filesystem::path& folder, bool tied);

// The compute device: the GPU's name, or "MODEL, N threads, OpenBLAS VERSION KERNEL"; then how many
// ranks share layers and sequences, if several do. The same devices give the same bits, if
// gradients are added in the same order.
std::string what_computes(Device device, const MeshShape& mesh = {});
// As earlier versions recorded it: with the number of ranks, if there are several.
std::string what_computes_by_ranks(Device device, int ranks, const MeshShape& mesh);

// The order in which the gradients of a step are added, for steps of so many micro-batches. Runs
// with the same text (and device) have the same bits; with another text they have others.
std::string order_of_sums(const TrainOptions& options, int64_t micro_batches);

// The kernels in what_computes: "OpenBLAS VERSION KERNEL". Empty for a GPU.
std::string kernels_in(std::string_view computed_on);

}  // namespace capstan
