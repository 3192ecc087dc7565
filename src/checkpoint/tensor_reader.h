#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/tensor_file.h"
#include "tensor/queue.h"

namespace capstan {

// A tensor that files must have, and where it goes.
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
  bool same_type = false;  // the stored type must be that of the target; else f32, bf16 or f16
  std::function<bool(const std::string& name)> may_ignore;  // of tensors that nobody asked for
};

// "3 missing (a, b, c); 1 not expected (d); …": all that differs, or nothing.
std::string differences(const std::vector<TensorToRead>& wanted, const TensorEntries& found,
                        const ReadRules& rules);

// Reads all of them, converting where types differ. On sim it reads nothing. They must be there, as
// `differences` finds out.
void read_tensors(Queue& q, const std::vector<TensorToRead>& wanted, const TensorEntries& found);

}  // namespace capstan
