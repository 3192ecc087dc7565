#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "data/data_source.h"

namespace capstan {

// Where a set of texts lies, in LitGPT's words.
struct TextSetPlace {
  std::filesystem::path data_path;  // empty: where LitGPT looks for it, under data/
  std::string split_names;          // of LitData: "[train, val]"; empty: all of it is one set
  bool use_starcoder = true;        // of TinyLlama
};

// The sets that LitGPT pretrains on by name: TinyStories, TinyLlama, MicroLlama, OpenWebText and
// LitData. Their folders hold texts (text_files) or the chunks of tokens that LitGPT makes of them
// (is_litdata). Throws Fault::file where a folder is missing: says which, and what belongs there;
// Fault::usage for split_names that are not two, and for another name.
DataOptions text_set_options(std::string_view name, const TextSetPlace& place);

}  // namespace capstan
