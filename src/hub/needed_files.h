#pragma once

#include <vector>

#include "hub/hub.h"

namespace capstan {

// Those of a repository's files that training or generating needs, sorted by name: configuration,
// tokenizer, licence, and the weights or the adapter. Weights are safetensors, or PyTorch's pickles
// if there are none, never both; other copies of them (original/, consolidated, GGUF) are left.
// Throws Fault::usage if there are no weights that can be read.
std::vector<HubFile> needed_files(const std::string& repository, const HubTree& tree,
                                  bool tokenizer_only = false);

}  // namespace capstan
