#include "data/text_sets.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/shell_words.h"
#include "data/records/litdata.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStories = "TinyStories_all_data";  // in LitGPT's folder
constexpr double kOpenWebTextFraction = 0.0005;  // LitGPT's default if there is no val

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

fs::path root_of(DataClass set, const fs::path& data_path) {
  if (!data_path.empty()) return data_path;
  if (set == DataClass::tinystories) return "data/tinystories";
  if (set == DataClass::openwebtext) return "data/openwebtext";
  return "data";
}

// Shell commands that download the dataset, if it is a single file.
std::string how_to_get(DataClass set, const fs::path& root) {
  if (set != DataClass::tinystories)
    return "put its .txt or .jsonl files ({\"text\": …} on each line) there, or the chunks that "
           "LitGPT made from them";
  const fs::path folder = root / kStories;
  return fmt::format(
      "get it with\n  mkdir -p {}\n  curl -L "
      "https://huggingface.co/datasets/roneneldan/TinyStories/resolve/main/"
      "TinyStories_all_data.tar.gz | tar xz -C {}",
      in_shell(folder.string()), in_shell(folder.string()));
}

struct Folders {
  std::vector<fs::path> train;
  fs::path validation;
};

Folders folders_of(DataClass set, const fs::path& root, const TextSetPlace& place) {
  if (set == DataClass::tinystories || set == DataClass::openwebtext) {
    // LitGPT makes chunks from the stories; the original texts are preferred.
    if (set == DataClass::tinystories && is_folder(root / kStories)) return {{root / kStories}, {}};
    if (is_folder(root / "train") && is_folder(root / "val"))
      return {{root / "train"}, root / "val"};
    return {{root}, {}};
  }
  if (set == DataClass::litdata) {
    if (!place.split_names) return {{root}, {}};
    return {{root / place.split_names->train}, root / place.split_names->validation};
  }
  require(set == DataClass::tinyllama || set == DataClass::microllama, Fault::bug,
          "{} is not a text dataset", name_of(set));
  Folders f{{root / "slimpajama" / "train"}, root / "slimpajama" / "val"};
  if (set == DataClass::tinyllama && place.use_starcoder) f.train.push_back(root / "starcoder");
  return f;
}

// The story files in a folder, each a list of {"story": …}; the first is held out, as in LitGPT.
// Empty if the folder has other files.
std::vector<fs::path> story_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  if (is_litdata(folder)) return files;
  for (fs::directory_iterator i(folder, error); !error && i != fs::directory_iterator();
       i.increment(error))
    if (i->path().extension() == ".json") files.push_back(i->path());
  std::sort(files.begin(), files.end());
  return files;
}

void take_stories(DataOptions& o, const std::vector<fs::path>& files) {
  if (files.empty()) return;
  o.fields.text = "story";
  const bool alone = files.size() == 1;
  o.path = files[alone ? 0 : 1];
  if (alone) return;
  o.validation_path = files[0];
  o.more_paths.assign(files.begin() + 2, files.end());
}

}  // namespace

DataOptions text_set_options(DataClass set, const TextSetPlace& place) {
  const fs::path root = root_of(set, place.data_path);
  require(root.string().find("://") == std::string::npos, Fault::usage,
          "data.data_path: {} is not on this machine, and Capstan downloads nothing; copy it to a "
          "local folder",
          root.string());
  const Folders folders = folders_of(set, root, place);
  std::vector<std::string> missing;
  for (const fs::path& folder : folders.train)
    if (!is_folder(folder)) missing.push_back(folder.string());
  if (!folders.validation.empty() && !is_folder(folders.validation))
    missing.push_back(folders.validation.string());
  require(missing.empty(), Fault::file,
          "data {}: expected the folder{} {}, found none; {}{}\nor use your own texts: --data "
          "TextFiles --data.train_data_path PATH",
          name_of(set), missing.size() > 1 ? "s" : "", fmt::join(missing, ", "),
          how_to_get(set, root),
          place.data_path.empty() ? "; or set --data.data_path to its folder" : "");

  DataOptions o;
  o.kind = DataOptions::Kind::text_files;
  o.path = folders.train.front();
  o.more_paths.assign(folders.train.begin() + 1, folders.train.end());
  o.validation_path = folders.validation;
  if (set == DataClass::openwebtext && folders.validation.empty())
    o.validation_fraction = kOpenWebTextFraction;
  if (set == DataClass::tinystories && folders.validation.empty())
    take_stories(o, story_files(o.path));
  return o;
}

}  // namespace capstan
