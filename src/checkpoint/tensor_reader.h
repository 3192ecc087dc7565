#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/tensor_file.h"
#include "tensor/queue.h"

namespace capstan {

// A tensor that the files must have, and its destination.
struct TensorToRead {
  std::string name;
  Tensor to;  // contiguous
};

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
std::string differences(const std::vector<TensorToRead>& wanted, const TensorEntries& found,
                        const ReadRules& rules);

// Reads all of them and converts types if needed. On sim it reads nothing. Call `differences` first
// to check that they exist.
void read_tensors(Queue& q, const std::vector<TensorToRead>& wanted, const TensorEntries& found);

}  // namespace capstan
