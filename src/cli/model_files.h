#pragma once

#include <filesystem>

#include "data/tokenizer.h"
#include "model/config.h"
#include "recipe/recipe.h"

namespace capstan::cli {

// The model that the recipe's sizes describe, for samples of train.max_seq_length. Throws
// Fault::usage for sizes that make none.
ModelConfig model_by_sizes(const Recipe& recipe, const Tokenizer& tokenizer);

// Throws Fault::file unless the folder's tokenizer.json is that of ByteTokenizer.
void require_byte_tokenizer(const std::filesystem::path& folder);

}  // namespace capstan::cli
