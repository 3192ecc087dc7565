#pragma once

#include "checkpoint/tensor_file.h"

namespace capstan {

// A torch.save file (.bin, .pth, .pt) with a dictionary of tensors: a zip archive with
// NAME/data.pkl, which pickle.h reads without executing it, and the storages NAME/data/KEY. Throws
// Fault::file for anything else, including files from PyTorch before 1.6; messages say how to
// convert them.
class TorchFile : public TensorFile {
 public:
  explicit TorchFile(const std::filesystem::path& path);
};

}  // namespace capstan
