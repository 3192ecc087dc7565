#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/tensor_reader.h"
#include "checkpoint/weight_sums.h"

namespace capstan {

class Optimizer;
class Parameters;
class Queue;
struct TrainingState;

// As the functions of the same name, with sums (null: none are made) of the weights that are read.
void read_tensors(Queue& q, const std::vector<SavedTensor>& wanted, const TensorEntries& found,
                  WeightSums* sums);
void load_parameters(Queue& q, Parameters& params, const std::filesystem::path& dir,
                     WeightSums* sums);
TrainingState load_checkpoint(Queue& q, Parameters& params, Optimizer& optimizer,
                              const std::filesystem::path& dir, WeightSums* sums);

}  // namespace capstan
