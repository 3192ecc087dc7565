#pragma once

#include <span>
#include <vector>

#include "checkpoint/tensor_writer.h"
#include "comm/host_channel.h"
#include "model/parameters.h"
#include "model/saved_tensor.h"

namespace capstan {

// A tensor of a checkpoint whose values are spread over the ranks of a group. Rank 0 writes it, in
// blocks, and receives what it does not have; the other ranks send what they have. So no rank needs
// room for more than a block of another's values.
struct SpreadTensor {
  SavedTensor tensor;  // its pieces are what this rank contributes
  struct Holder {
    int rank;
    int64_t first, count;  // of the values of that rank's share, which is…
    TensorCut cut;         // …there in the tensor
    int64_t share;         // of so many values
  };
  std::vector<Holder> holders;  // in the order of their first values; together they have all
};

// Each rank contributes what it owns (Parameters::owned).
std::vector<SpreadTensor> spread(const Parameters& params, const std::vector<SavedTensor>& tensors);

// For rank 0. Its values must be read in order, in blocks of kBlockValues. With a queue, values are
// fetched through it; without one, they are in host memory. Pointers must outlive the result.
TensorToWrite to_write(const SpreadTensor& tensor, Queue* q, HostChannel& channel);
// For the other ranks: sends their values of all tensors, as rank 0 writes them one after the
// other.
void send_values(std::span<const SpreadTensor> tensors, Queue* q, HostChannel& channel);

}  // namespace capstan
