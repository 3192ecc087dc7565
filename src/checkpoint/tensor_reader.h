#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/tensor_file.h"
#include "model/saved_tensor.h"
#include "tensor/queue.h"

namespace capstan {

// A tensor of one of several files.
struct TensorEntry {
  const TensorFile* file = nullptr;
  const StoredTensor* tensor = nullptr;
};
using TensorEntries = std::map<std::string, TensorEntry, std::less<>>;

struct ReadRules {
  bool same_type = false;  // the stored type must equal the target's; else f32, bf16 or f16
  std::function<bool(const std::string& name)> may_ignore;  // number of unexpected tensors
};

// "3 missing (a, b, c); 1 unexpected (d); …": all differences, or nothing.
std::string differences(const std::vector<SavedTensor>& wanted, const TensorEntries& found,
                        const ReadRules& rules);

// Reads their pieces and converts types if needed. On sim it reads nothing. Call `differences`
// first to check that they exist.
void read_tensors(Queue& q, const std::vector<SavedTensor>& wanted, const TensorEntries& found);

}  // namespace capstan
