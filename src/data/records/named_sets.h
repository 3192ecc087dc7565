#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/records/record.h"

namespace capstan {

// A public set of instructions that LitGPT downloads by name and that Capstan reads from the disk.
struct NamedSet {
  struct Splits {
    std::string_view train = "train", validation = "test";
  };

  std::string_view name;                  // "Alpaca2k"
  std::string_view folder;                // under data/
  std::string_view file;                  // in it, with LitGPT's name where it has one
  std::string_view validation_file = {};  // where the set has its own; else a fraction is held out
  double validation_fraction = 0;         // LitGPT's default
  std::string_view style;                 // LitGPT's default
  std::string_view source;                // where people find it
  // How to fetch it: a file to download, or a repository that the datasets package reads.
  std::string_view url = {};
  std::string_view hugging_face = {};
  Splits hugging_face_splits = {};
  RecordFields fields = {};
  bool first_turn = false;  // LitGPT takes the first turn of each conversation
};

std::span<const NamedSet> named_sets();
// Null for a name that is not among them. Case counts, as for LitGPT's classes.
const NamedSet* find_named_set(std::string_view name);

struct NamedSetFiles {
  std::filesystem::path train, validation;  // validation may be empty
};
// The files of a set below `root` ("data"). Besides the set's own file, FOLDER.json[l] in root and
// train.json[l] with val.json[l] in the folder are taken. Throws Fault::file where there is none:
// says where to get the set and under which name to put it.
NamedSetFiles locate(const NamedSet& set, const std::filesystem::path& root = "data");

}  // namespace capstan
