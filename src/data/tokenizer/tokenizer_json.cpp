#include "data/tokenizer/tokenizer_json.h"

#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/tokenizer.h"

namespace capstan {
namespace {

using json = nlohmann::ordered_json;

json byte_vocab() {
  json vocab = json::object();
  for (int b = 0; b < 256; ++b) vocab[name_of_byte(static_cast<unsigned char>(b))] = b;
  return vocab;
}

json special(int32_t id, const char* content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

// Texts begin with bos, as in training data.
json bos_first() {
  const json bos = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const auto text = [](const char* id, int type) {
    return json{{"Sequence", {{"id", id}, {"type_id", type}}}};
  };
  return {
      {"type", "TemplateProcessing"},
      {"single", {bos, text("A", 0)}},
      {"pair", {bos, text("A", 0), text("B", 1)}},
      {"special_tokens",
       {{"<s>",
         {{"id", "<s>"}, {"ids", {static_cast<int>(ByteTokenizer::kBos)}}, {"tokens", {"<s>"}}}}}}};
}

json byte_tokenizer() {
  const json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", false}};
  json vocab = byte_vocab();
  vocab["<s>"] = ByteTokenizer::kBos;
  vocab["</s>"] = ByteTokenizer::kEos;
  vocab["<pad>"] = ByteTokenizer::kPad;
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens",
           {special(ByteTokenizer::kBos, "<s>"), special(ByteTokenizer::kEos, "</s>"),
            special(ByteTokenizer::kPad, "<pad>")}},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", bos_first()},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"vocab", vocab},
            {"merges", json::array()}}}};
}

}  // namespace

std::string byte_tokenizer_json() {
  return byte_tokenizer().dump(1) + "\n";
}

std::string byte_tokenizer_config_json() {
  const json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                       {"bos_token", "<s>"},
                       {"eos_token", "</s>"},
                       {"pad_token", "<pad>"},
                       {"clean_up_tokenization_spaces", false}};
  return config.dump(2) + "\n";
}

bool is_byte_tokenizer(const nlohmann::json& found) {
  static const nlohmann::json ours = byte_tokenizer();
  return found.is_object() && found.contains("model") && found["model"] == ours["model"];
}

bool is_byte_tokenizer(std::string_view text, std::string_view where) {
  return is_byte_tokenizer(parse_json(text, where));
}

}  // namespace capstan
