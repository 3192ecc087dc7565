#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_file.h"

namespace capstan {

// A tensor that a pickle describes: a view of a storage, which is another file of the archive.
struct PickledTensor {
  std::string name;     // its key in the dictionary
  std::string storage;  // the storage's key
  StoredType type;
  int64_t storage_values = 0;  // of that type
  int64_t first = 0;           // the view's first value
  std::vector<int64_t> shape, strides;
};

inline constexpr int64_t kLargestPickle = 64 << 20;  // bytes of a dictionary of tensors

// Reads the pickle of a state dictionary as torch.save writes it (protocols 2 to 5) and executes
// nothing: a machine that knows dictionaries, lists, tuples, strings, numbers, and of all names
// OrderedDict, torch's storages, types, Size and the two functions that put tensors together.
// Returns the tensors of the dictionary, or of its entry "model" or "state_dict" where that is one;
// other entries are left out. Every view is proved to lie within its storage.
//
// Throws Fault::file, naming `where`: for any other name ("the pickle asks to run os.system"), for
// other instructions, for truncated or senseless pickles. Takes time and memory in proportion to
// the pickle.
std::vector<PickledTensor> read_pickle(std::span<const std::byte> pickle, std::string_view where);

}  // namespace capstan
