#pragma once

#include <filesystem>
#include <optional>

#include "data/data_source.h"
#include "recipe/choices.h"
#include "recipe/split_names.h"

namespace capstan {

// Where a text dataset is, in LitGPT's terms.
struct TextSetPlace {
  std::filesystem::path data_path;             // empty: LitGPT's default, under data/
  std::optional<SplitNames> split_names = {};  // for LitData; absent: no split
  bool use_starcoder = true;                   // for TinyLlama
};

// The datasets that LitGPT pretrains on by name: TinyStories, TinyLlama, MicroLlama, OpenWebText
// and LitData. Their folders hold texts (text_files) or the token chunks that LitGPT makes from
// them (is_litdata). Throws Fault::file if a folder is missing: the message says which, and what
// belongs there.
DataOptions text_set_options(DataClass set, const TextSetPlace& place);

}  // namespace capstan
