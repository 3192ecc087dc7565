#pragma once

#include "checkpoint/model_folder.h"
#include "checkpoint/tensor_reader.h"
#include "model/parameters.h"

namespace capstan {

// The tensors of a checkpoint that the stored parameters are made of.
std::vector<TensorToRead> stored_parts(const Parameters& params);

// Throws Fault::file unless the folder has the tensors of the model and no others.
void check_weights(const Parameters& params, const ModelFolder& folder,
                   const std::filesystem::path& dir);

}  // namespace capstan
