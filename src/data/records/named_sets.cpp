#include "data/records/named_sets.h"

#include "base/error.h"
#include "base/shell_words.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

const std::vector<NamedSet>& table() {
  static const std::vector<NamedSet> sets = {
      {.name = DataClass::alpaca,
       .folder = "alpaca",
       .file = "alpaca_data_cleaned_archive.json",
       .validation_fraction = 0.03865,
       .style = "alpaca",
       .source = "https://github.com/tloen/alpaca-lora",
       .url = "https://raw.githubusercontent.com/tloen/alpaca-lora/main/"
              "alpaca_data_cleaned_archive.json"},
      {.name = DataClass::alpaca2k,
       .folder = "alpaca2k",
       .file = "alpaca2k_data_cleaned_archive.json",
       .validation_fraction = 0.05,
       .style = "alpaca",
       .source = "https://huggingface.co/datasets/mhenrichsen/alpaca_2k_test",
       .hugging_face = "mhenrichsen/alpaca_2k_test"},
      {.name = DataClass::alpaca_gpt4,
       .folder = "alpacagpt4",
       .file = "alpacagpt4_data_cleaned_archive.json",
       .validation_fraction = 0.03847,
       .style = "alpaca",
       .source = "https://github.com/Instruction-Tuning-with-GPT-4/GPT-4-LLM",
       .url = "https://raw.githubusercontent.com/Instruction-Tuning-with-GPT-4/GPT-4-LLM/main/data/"
              "alpaca_gpt4_data.json"},
      {.name = DataClass::dolly,
       .folder = "dolly",
       .file = "databricks-dolly-15k.jsonl",
       .validation_fraction = 0.1,
       .style = "alpaca",
       .source = "https://huggingface.co/datasets/databricks/databricks-dolly-15k",
       .url = "https://huggingface.co/datasets/databricks/databricks-dolly-15k/resolve/main/"
              "databricks-dolly-15k.jsonl",
       .fields = {"instruction", "context", "response"}},
      {.name = DataClass::lima,
       .folder = "lima",
       .file = "train.jsonl",
       .validation_fraction = 0.1,
       .style = "alpaca",
       .source = "https://huggingface.co/datasets/GAIR/lima (requires an account and accepting its "
                 "licence)",
       .url = "https://huggingface.co/datasets/GAIR/lima/resolve/main/train.jsonl",
       .first_turn = true},
      {.name = DataClass::longform,
       .folder = "longform",
       .file = "train.json",
       .validation_file = "val.json",
       .style = "longform",
       .source = "https://github.com/akoksal/LongForm",
       .url = "https://raw.githubusercontent.com/akoksal/LongForm/main/dataset/train.json",
       .fields = {"input", "", "output"}},
      {.name = DataClass::flan,
       .folder = "flan",
       .file = "train.jsonl",
       .validation_file = "val.jsonl",
       .style = "flan",
       .source = "https://huggingface.co/datasets/Muennighoff/flan: join the subsets that you want "
                 "from its folders train and test",
       .fields = {"inputs", "", "targets"}},
      {.name = DataClass::deita,
       .folder = "deita",
       .file = "train.json",
       .validation_file = "val.json",
       .style = "alpaca",
       .source = "https://huggingface.co/datasets/HuggingFaceH4/deita-10k-v0-sft",
       .hugging_face = "HuggingFaceH4/deita-10k-v0-sft",
       .hugging_face_splits = {"train_sft", "test_sft"},
       .first_turn = true},
  };
  return sets;
}

// The file `stem` with one of the record extensions in a folder, or nothing.
fs::path find(const fs::path& folder, const std::string& stem) {
  for (const char* ending : {".json", ".jsonl"}) {
    std::error_code error;
    const fs::path path = folder / (stem + ending);
    if (fs::is_regular_file(path, error)) return path;
  }
  return {};
}

std::string load_dataset(std::string_view repository, std::string_view split, const fs::path& to) {
  return "python3 -c " +
         in_shell(fmt::format("from datasets import load_dataset; load_dataset('{}', "
                              "split='{}').to_json({})",
                              repository, split, in_python(to.string())));
}

// data/FOLDER; or, like LitGPT's download_dir, `root` itself if it has the dataset's name or file.
// (A file "train.json" may belong to another dataset.)
fs::path folder_of(const NamedSet& set, const fs::path& root) {
  std::error_code error;
  const bool is_own = (root / "").parent_path().filename() == set.folder;
  const bool has_file =
      !set.file.starts_with("train") && fs::is_regular_file(root / set.file, error);
  return is_own || has_file ? root : root / set.folder;
}

// Shell commands that download the files, if there are any.
std::string commands(const NamedSet& set, const fs::path& folder) {
  const fs::path train = folder / set.file;
  const fs::path validation = folder / set.validation_file;
  std::string lines = fmt::format("\n  mkdir -p {}", in_shell(folder.string()));
  if (!set.hugging_face.empty()) {
    lines += "\n  " + load_dataset(set.hugging_face, set.hugging_face_splits.train, train);
    if (!set.validation_file.empty())
      lines +=
          "\n  " + load_dataset(set.hugging_face, set.hugging_face_splits.validation, validation);
  } else if (!set.url.empty()) {
    lines += fmt::format("\n  curl -L -o {} {}", in_shell(train.string()), set.url);
    if (!set.validation_file.empty()) {
      const std::string url(set.url.substr(0, set.url.rfind('/') + 1));
      lines += fmt::format("\n  curl -L -o {} {}{}", in_shell(validation.string()), url,
                           set.validation_file);
    }
  } else {
    return "";
  }
  return lines;
}

}  // namespace

std::span<const NamedSet> named_sets() {
  return table();
}

const NamedSet* find_named_set(DataClass name) {
  for (const NamedSet& set : table())
    if (set.name == name) return &set;
  return nullptr;
}

NamedSetFiles locate(const NamedSet& set, const fs::path& root) {
  const fs::path folder = folder_of(set, root);
  const fs::path own = folder / set.file, validation = folder / set.validation_file;
  std::error_code error;
  const bool has_own = fs::is_regular_file(own, error);
  const bool has_validation =
      !set.validation_file.empty() && fs::is_regular_file(validation, error);
  if (has_own && (has_validation || set.validation_file.empty()))
    return {own, has_validation ? validation : fs::path()};
  if (const fs::path train = find(folder, "train"), val = find(folder, "val");
      !train.empty() && !val.empty())
    return {train, val};
  if (const fs::path single = find(root, std::string(set.folder)); !single.empty())
    return {single, {}};
  if (has_own) return {own, {}};

  const std::string files = set.validation_file.empty()
                                ? own.string()
                                : fmt::format("{} and {}", own.string(), validation.string());
  fail(Fault::file,
       "data {}: expected {}, found no such file. Get the dataset from {} and put it there{}\nor "
       "use your own file: --data JSON --data.json_path FILE",
       name_of(set.name), files, set.source, commands(set, folder));
}

}  // namespace capstan
