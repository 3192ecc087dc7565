#pragma once

#include "checkpoint/tensor_file.h"

namespace capstan {

// A file of torch.save (.bin, .pth, .pt) that holds a dictionary of tensors: a zip archive with
// NAME/data.pkl, which pickle.h reads without executing any of it, and the storages NAME/data/KEY.
// Throws Fault::file for anything else, files of PyTorch before 1.6 included; messages tell the way
// out.
class TorchFile : public TensorFile {
 public:
  explicit TorchFile(const std::filesystem::path& path);
};

}  // namespace capstan
