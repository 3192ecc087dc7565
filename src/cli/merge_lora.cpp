#include <fmt/format.h>

#include <algorithm>

#include "base/json_text.h"
#include "base/log.h"
#include "base/units.h"
#include "checkpoint/convert_model.h"
#include "checkpoint/extra_file.h"
#include "checkpoint/manifest.h"
#include "cli/text_model.h"
#include "data/prompt/chat_template.h"
#include "data/tokenizer/tokenizer_folder.h"
#include "infer/certificate.h"
#include "plan/fit.h"

namespace capstan::cli {
namespace {

namespace fs = std::filesystem;

struct MergeOptions {
  std::string name, base, out, quantize, prompts_file;
  std::string accelerator = "auto";
  std::vector<std::string> prompts;
};

// The user's prompts: --prompt, then the lines of --prompts.
std::vector<std::string> user_prompts(const MergeOptions& o) {
  std::vector<std::string> texts = o.prompts;
  if (o.prompts_file.empty()) return texts;
  const std::string all = read_text(o.prompts_file);
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\n', at), all.size());
    std::string line = all.substr(at, end - at);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) texts.push_back(std::move(line));
    at = end + 1;
  }
  require(texts.size() > o.prompts.size(), Fault::file,
          "{}: expected one prompt per line, found nothing", o.prompts_file);
  return texts;
}

// The user's prompts, formatted as `generate` does, and random ones.
std::vector<Prompt> prompts_of(const MergeOptions& o, const ModelFiles& files) {
  std::vector<Prompt> prompts;
  if (const auto texts = user_prompts(o); !texts.empty()) {
    const TextModel text(files, "");
    for (const std::string& t : texts) {
      prompts.push_back({t, text.prompt_tokens(t)});
      const auto tokens = std::ssize(prompts.back().tokens);
      require(!t.empty() && tokens > 0, Fault::usage,
              "--prompt: {} has no tokens; give a longer text", in_quotes(t));
      require(tokens <= files.config.max_positions, Fault::usage,
              "--prompt: {} has {}, but the model has {}; give a shorter one", in_quotes(t),
              count(tokens, "token"), count(files.config.max_positions, "position"));
    }
  }
  for (Prompt& p : random_prompts(files.config)) prompts.push_back(std::move(p));
  return prompts;
}

void report_merge_target(const ModelFiles& files) {
  const std::string into(name_of(files.quantize));
  const auto& trained = files.base_quantization;
  if (trained && *trained != files.quantize)
    log::warn(
        "the adapter was trained with the model in {}, but is merged into {}: the result will "
        "answer differently than in training",
        name_of(*trained), files.quantize == Quantize::none ? "the original weights" : into);
  else if (files.quantize != Quantize::none)
    log::info("{} merged into the dequantized {} values, not into the weights of {}",
              trained ? fmt::format("the adapter was trained with the model in {}, so it is", into)
                      : "the adapter is",
              into.substr(into.find('.') + 1), files.base.string());
}

Manifest write_files(const ModelFiles& files, Inference& model, const fs::path& folder) {
  Manifest sums =
      model.write_merged(folder, files.config.dtype, read_text(files.base / "config.json"));
  const auto copy = [&](const fs::path& from) {
    const std::string name = from.filename().string();
    sums[name] = write_extra(folder, read_extra(from.parent_path(), name));
  };
  for (const fs::path& file : tokenizer_files(files.tokenizer())) copy(file);
  // Tokenizer settings that the adapter's folder lacks come from the base.
  const std::string config_name(kTokenizerConfig);
  const fs::path config_folder = sums.contains(config_name) ? files.tokenizer() : files.base;
  for (const std::string& name : {config_name, std::string("special_tokens_map.json")})
    if (!sums.contains(name) && fs::exists(config_folder / name)) copy(config_folder / name);
  if (const std::string config = config_with_bos(config_folder); !config.empty())
    sums[config_name] = write_text(folder / config_name, config);
  // Generation settings (sampling, padding) stay those of the base model.
  if (fs::exists(files.base / "generation_config.json"))
    copy(files.base / "generation_config.json");
  if (const fs::path file = files.folder / "hyperparameters.yaml"; fs::exists(file)) copy(file);
  // The prompt style or template of the adapter, else of its base.
  if (const fs::path file = files.prompting() / "prompt_style.yaml"; fs::exists(file)) copy(file);
  if (chat_template_of(files.prompting()))
    sums["chat_template.jinja"] =
        write_text(folder / "chat_template.jinja", chat_template_text(files.prompting()));
  write_manifest(folder, sums);
  return sums;
}

void report(const Certificate& certificate, const std::vector<Prompt>& prompts) {
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Agreement& a = certificate.prompts[i];
    log::info("{}: {}, logits differ by {:.2g}, {} next token",
              prompts[i].text.empty() ? "random prompt" : in_quotes(prompts[i].text),
              count(std::ssize(prompts[i].tokens), "token"), a.difference,
              a.same_next ? "the same" : "another");
  }
}

// How many prompts were compared: "2 given and 4 random prompts".
std::string count_of(size_t given, size_t all) {
  const std::string random = count(static_cast<int64_t>(all - given), "random prompt");
  return given > 0 ? fmt::format("{} given and {}", given, random) : random;
}

MergeRecord record_of(const ModelFiles& files, size_t random_prompts) {
  return {.adapter = files.folder.lexically_normal().string(),
          .adapter_sha256 = sha256_of_file(files.folder / kAdapterFile),
          .base = files.base.lexically_normal().string(),
          .quantize = files.quantize,
          .dtype = files.config.dtype,
          .random_prompts = static_cast<int64_t>(random_prompts)};
}

// Merging needs little compute, and in f32 a model may be larger than a GPU. So auto picks the GPU
// only if both the model with its adapter and the merged model fit there.
Device device_for(const MergeOptions& o, const ModelFiles& files,
                  const std::vector<Prompt>& prompts) {
  const Device device = parse_accelerator(o.accelerator);
  if (o.accelerator != name_of(Accelerator::automatic) || device == Device::cpu) return device;
  InferenceOptions merged = options_for(prompts, files.config, device);
  merged.model = files.config;
  InferenceOptions merging = options_of(files, merged);
  merging.merge = true;
  const int64_t needed =
      std::max(Inference::plan(merged).total_bytes, Inference::plan(merging).total_bytes);
  if (needed <= available_memory(device)) return device;
  log::info("the model does not fit on the GPU in f32: merging and comparing on the CPU");
  return Device::cpu;
}

// Writes to a temporary folder, reads it back and compares. Renames it only if the check passes.
void merge(const MergeOptions& o, const ModelFiles& files) {
  const std::vector<Prompt> prompts = prompts_of(o, files);
  const auto given = static_cast<size_t>(std::count_if(
      prompts.begin(), prompts.end(), [](const Prompt& p) { return !p.text.empty(); }));
  report_merge_target(files);
  const Device device = device_for(o, files, prompts);
  NewFolder folder(o.out);
  Logits expected;
  Manifest sums;
  {
    InferenceOptions options = options_for(prompts, files.config, device);
    options.merge = true;
    LoadedModel loaded(files, options);
    expected = logits_of(loaded.model(), prompts);
    sums = write_files(files, loaded.model(), folder.path());
  }
  const DType dtype = files.config.dtype;
  const Certificate certificate = certify(find_model(folder.path().string()), prompts, expected,
                                          allowed_difference(dtype), device);
  report(certificate, prompts);
  require(certificate.holds(), Fault::file,
          "{}: not written: the merged model's logits differ by {:.2g} from those of model and "
          "adapter, more than the {} that rounding to {} explains; use the adapter unmerged{}",
          o.out, certificate.largest(), certificate.allowed, name_of(dtype),
          dtype == DType::f32 ? "" : ", or convert its model to f32 and merge into that");
  sums[kCertificateFile] =
      write_text(folder.path() / kCertificateFile,
                 certificate_json(certificate, record_of(files, prompts.size() - given)));
  write_manifest(folder.path(), sums);
  commit_apart(folder, o.out);
  log::info(
      "merged into {}; its logits on {} differ by {:.2g} (limit {} for {}), the next token is the "
      "same after {} of {}",
      o.out, count_of(given, prompts.size()), certificate.largest(), certificate.allowed,
      name_of(dtype), certificate.same_next(), prompts.size());
}

}  // namespace

int merge_lora(const Arguments& arguments) {
  CommandLine line(
      "Merges an adapter into its model and checks that the result answers like the two did.",
      "capstan merge_lora");
  MergeOptions o;
  line.required("checkpoint_dir", o.name, "folder of the adapter");
  line.option("--base_model", o.base,
              "folder of its base model (default: the one the adapter names)");
  line.option("--out_dir", o.out,
              "folder to write (default: the adapter's folder with -merged appended)");
  add_quantize(line, o.quantize);
  add_accelerator(line, o.accelerator,
                  "device to merge and compare on, both in f32; auto: a GPU if the model fits "
                  "there in f32, else the CPU");
  line.list("--prompt", o.prompts,
            "prompt to compare on, besides random ones; may be given several times");
  line.option("--prompts", o.prompts_file, "file of such prompts, one per line");
  if (!line.parse(arguments)) return 0;
  if (const fs::path folder = find_checkpoint_dir(o.name); !is_adapter(folder)) {
    log::info("{} is a whole model: there is nothing to merge", folder.string());
    return 0;
  }
  const ModelFiles files = find_model(o.name, o.base, o.quantize);
  if (o.out.empty())
    o.out = (files.folder / "").lexically_normal().parent_path().string() + "-merged";
  require_apart(o.out, {files.folder, files.base});
  merge(o, files);
  return 0;
}

}  // namespace capstan::cli
