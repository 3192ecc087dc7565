#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/records/record.h"
#include "recipe/choices.h"

namespace capstan {

// A public instruction dataset that LitGPT downloads by name and Capstan reads from disk.
struct NamedSet {
  struct Splits {
    std::string_view train = "train", validation = "test";
  };

  DataClass name;
  std::string_view folder;                // under data/
  std::string_view file;                  // in it, with LitGPT's name if it has one
  std::string_view validation_file = {};  // if the dataset has its own; else a fraction is held out
  double validation_fraction = 0;         // LitGPT's default
  std::string_view style;                 // LitGPT's default
  std::string_view source;                // its web page
  // How to download it: a file, or a repository for the datasets package.
  std::string_view url = {};
  std::string_view hugging_face = {};
  Splits hugging_face_splits = {};
  RecordFields fields = {};
  bool first_turn = false;  // LitGPT uses the first turn of each conversation
};

std::span<const NamedSet> named_sets();
// Null for a class of data that is not a named set.
const NamedSet* find_named_set(DataClass name);

struct NamedSetFiles {
  std::filesystem::path train, validation;  // validation may be empty
};
// The files of a dataset below `root` ("data"). Besides the dataset's own file, accepts
// FOLDER.json[l] in root, and train.json[l] with val.json[l] in the folder. Throws Fault::file if
// there is none: the message says where to get the dataset and which name to give it.
NamedSetFiles locate(const NamedSet& set, const std::filesystem::path& root = "data");

}  // namespace capstan
