#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/rng.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "cli/app.h"
#include "data/tokenizer_folder.h"
#include "train/inference.h"

namespace capstan::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPositions = 24;  // of the prompts that certify a merge
constexpr uint64_t kPrompts = 4;

// The logits after random prompts, one after the other.
std::vector<float> logits_of(LoadedModel& loaded, const ModelConfig& config) {
  std::vector<float> all;
  for (uint64_t p = 0; p < kPrompts; ++p) {
    const Rng rng({.seed = 1234, .sample = p, .site = site::sampling});
    std::vector<int32_t> prompt;
    for (uint64_t i = 0; i < kPositions; ++i)
      prompt.push_back(static_cast<int32_t>(rng.below(i, static_cast<uint64_t>(config.vocab))));
    loaded.model().decoder().clear();
    const auto logits = loaded.model().decoder().feed(loaded.queue(), prompt);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double apart = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    apart += std::pow(static_cast<double>(a[i]) - b[i], 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(apart / std::max(size, 1e-30));
}

// Weights that are stored in bf16 are rounded to it once more by a merge.
double tolerance(DType stored) {
  return stored == DType::f32 ? 1e-4 : 3e-2;
}

InferenceOptions options_for(const ModelFiles& files) {
  InferenceOptions o;
  o.precision = Precision::f32_true;
  o.positions = std::min(kPositions, files.config.max_positions);
  return o;
}

void write_merged(const ModelFiles& files, LoadedModel& loaded, const fs::path& out) {
  NewFolder folder(out);
  SaveOptions save;
  save.dtype = files.config.dtype;
  Manifest sums = write_model(loaded.queue(), loaded.model().params(), folder.path(), save);
  const auto copy = [&](const fs::path& from) {
    const std::string name = from.filename().string();
    sums[name] = write_copy(from, folder.path() / name);
  };
  for (const fs::path& file : tokenizer_files(files.tokenizer())) copy(file);
  for (const char* name : {"prompt_style.yaml", "hyperparameters.yaml"})
    if (fs::exists(files.folder / name)) copy(files.folder / name);
  write_manifest(folder.path(), sums);
  folder.commit();
}

}  // namespace

int merge_lora(const Arguments& arguments) {
  CLI::App app(
      "Folds an adapter into its model, and proves that the result answers as the two did.",
      "capstan merge_lora");
  std::string name, base, out;
  app.add_option("checkpoint_dir", name, "folder of the adapter")->required();
  app.add_option("--base_model", base, "folder of its model; else as the adapter says");
  app.add_option("--out_dir", out, "folder to write; else the adapter's own with -merged");
  if (!parse(app, arguments)) return 0;
  if (const fs::path folder = find_checkpoint_dir(name); !is_adapter(folder)) {
    log::info("{} is a whole model: nothing is left to merge", folder.string());
    return 0;
  }
  const ModelFiles files = find_model(name, base);
  if (out.empty()) out = files.folder.lexically_normal().string() + "-merged";
  std::vector<float> expected;
  {
    InferenceOptions options = options_for(files);
    options.merge = true;
    LoadedModel loaded(files, options);
    expected = logits_of(loaded, files.config);
    loaded.model().merge();
    write_merged(files, loaded, out);
  }
  const ModelFiles merged = find_model(out);
  LoadedModel again(merged, options_for(merged));
  const double apart = difference(logits_of(again, merged.config), expected);
  const double allowed = tolerance(files.config.dtype);
  require(
      apart <= allowed, Fault::file,
      "{}: the merged model's logits differ by {:.2g} from those of model and adapter, more than "
      "the {} that {} explains; do not use it",
      out, apart, allowed, name_of(files.config.dtype));
  log::info(
      "merged into {}; its logits on {} random prompts differ by {:.2g} (at most {} is "
      "allowed for {})",
      out, kPrompts, apart, allowed, name_of(files.config.dtype));
  return 0;
}

}  // namespace capstan::cli
