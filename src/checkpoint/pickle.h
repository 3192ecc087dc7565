#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_file.h"

namespace capstan {

// A tensor described by a pickle: a view of a storage, which is another file of the archive.
struct PickledTensor {
  std::string name;     // its key in the dictionary
  std::string storage;  // the storage's key
  StoredType type;
  int64_t storage_values = 0;  // of that type
  int64_t first = 0;           // the view's first value
  std::vector<int64_t> shape, strides;
};

inline constexpr int64_t kLargestPickle = 64 << 20;  // bytes of a dictionary of tensors

// Reads the pickle of a state dictionary that torch.save wrote (protocols 2 to 5) without executing
// anything. The machine only knows dictionaries, lists, tuples, strings and numbers, and as names
// OrderedDict, torch's storages, types, Size and the two functions that rebuild tensors. Returns
// the tensors of the dictionary, or of its entry "model" or "state_dict" if that is a dictionary;
// ignores other entries. Checks that every view lies within its storage.
//
// Throws Fault::file, naming `where`: for any other name ("the pickle asks to run os.system"), for
// other instructions, for truncated or malformed pickles. Time and memory are linear in the size of
// the pickle.
std::vector<PickledTensor> read_pickle(std::span<const std::byte> pickle, std::string_view where);

}  // namespace capstan
