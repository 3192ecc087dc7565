#include "cli/text_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/files.h"
#include "base/visible.h"
#include "checkpoint/checkpoint.h"
#include "data/tokenizer/tokenizer_folder.h"

namespace capstan::cli {
namespace {

ModelPrompting named_prompting(const std::string& style, const std::filesystem::path& folder) {
  if (style == kChatTemplateStyle) {
    auto found = chat_template_of(folder);
    require(found.has_value(), Fault::file,
            "{}: has no known chat template; give --prompt_style a name", folder.string());
    return {nullptr, std::move(found)};
  }
  const std::string prefix = std::string(kChatTemplateStyle) + ":";
  const std::string name = style.starts_with(prefix) ? style.substr(prefix.size()) : style;
  if (const ChatTemplate* chat = find_chat_template(name)) return {nullptr, *chat};
  return {&prompt_style(style), std::nullopt};
}

}  // namespace

void add_quantize(CommandLine& line, std::string& quantize) {
  line.option("--quantize", quantize,
              "quantization of the linear layers: none, bnb.nf4, bnb.nf4-dq, bnb.fp4, bnb.fp4-dq, "
              "bnb.int8 (default for an adapter: as in its training)");
}

void put_text(std::string_view text) {
  if (isatty(STDOUT_FILENO) != 0)
    fmt::print("{}", visible(text));
  else
    fmt::print("{}", text);
  std::fflush(stdout);
}

TextModel::TextModel(ModelFiles files, const std::string& style)
    : files_(std::move(files)), tokenizer_(load_tokenizer(files_.tokenizer(), files_.base)) {
  require_rows_for(*tokenizer_, config(), files_.tokenizer());
  // An adapter uses the prompt style of its training, else the template in its folder, else its
  // base's.
  const RecordedPrompting recorded = read_prompt_style(files_.folder);
  const std::filesystem::path folder = files_.prompting();
  prompting_ =
      style.empty() ? prompting_of(folder, folder_name(folder)) : named_prompting(style, folder);
  // The model's own template is in its folder, with its tokenizer, or with the base.
  if (style.empty() && recorded.own_template)
    if (auto chat = files_.chat_template()) prompting_ = {nullptr, std::move(chat)};
}

bool TextModel::is_plain() const {
  return prompting_.style != nullptr && prompting_.style->text == "{instruction}";
}

std::vector<int32_t> TextModel::with_bos(std::vector<int32_t> tokens) const {
  const auto bos = tokenizer_->bos();
  if (bos && (tokens.empty() || tokens.front() != *bos)) tokens.insert(tokens.begin(), *bos);
  return tokens;
}

std::vector<int32_t> TextModel::prompt_tokens(std::string_view instruction) const {
  auto tokens = encode(prompt_pieces(prompting_, instruction), *tokenizer_).tokens;
  // A template adds its own first tokens.
  return prompting_.chat_template ? tokens : with_bos(std::move(tokens));
}

std::vector<int32_t> TextModel::chat_tokens(std::span<const Message> messages) const {
  return encode(render(*prompting_.chat_template, messages, true), *tokenizer_).tokens;
}

void TextModel::set_stops(GenerateOptions& options) const {
  capstan::set_stops(options, config(), *tokenizer_, prompting_);
}

void TextModel::load(Device device, const PrecisionWords& precision, int64_t positions) {
  InferenceOptions options;
  options.device = device;
  options.precision = inference_precision(precision.precision, config(), device);
  options.tf32 = precision.tf32();
  options.positions = positions;
  tell_quantize(files_);
  loaded_ = std::make_unique<LoadedModel>(files_, options);
}

std::vector<int32_t> TextModel::stream(std::span<const int32_t> prompt,
                                       const GenerateOptions& options) {
  const auto text = tokenizer_->stream_after(prompt);
  auto tokens = capstan::generate(loaded_->queue(), loaded_->model().decoder(), prompt, options,
                                  [&](int32_t id) { put_text(text->push(id)); });
  put_text(text->finish());
  return tokens;
}

}  // namespace capstan::cli
