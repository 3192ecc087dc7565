#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "data/data_source.h"

namespace capstan {

// Where a text dataset is, in LitGPT's terms.
struct TextSetPlace {
  std::filesystem::path data_path;  // empty: LitGPT's default, under data/
  std::string split_names;          // for LitData: "[train, val]"; empty: no split
  bool use_starcoder = true;        // for TinyLlama
};

// The datasets that LitGPT pretrains on by name: TinyStories, TinyLlama, MicroLlama, OpenWebText
// and LitData. Their folders hold texts (text_files) or the token chunks that LitGPT makes from
// them (is_litdata). Throws Fault::file if a folder is missing (the message says which, and what
// belongs there), and Fault::usage if split_names is not two names, and for an unknown name.
DataOptions text_set_options(std::string_view name, const TextSetPlace& place);

}  // namespace capstan
