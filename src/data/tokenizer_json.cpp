#include "data/tokenizer_json.h"

#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "data/tokenizer.h"

namespace capstan {
namespace {

using json = nlohmann::ordered_json;

std::string utf8(int code) {  // up to U+07FF: all that is needed here
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

// GPT-2's names for bytes: printable Latin-1 characters stand for themselves, the others for
// U+0100, U+0101 … in order.
json byte_vocab() {
  json vocab = json::object();
  int unprintable = 0;
  for (int b = 0; b < 256; ++b) {
    const bool printable =
        (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
    vocab[utf8(printable ? b : 0x100 + unprintable++)] = b;
  }
  return vocab;
}

json special(int32_t id, const char* content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
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
          {"post_processor", nullptr},
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

bool is_byte_tokenizer(std::string_view text, std::string_view where) {
  const nlohmann::json found = parse_json(text, where);
  const nlohmann::json ours = byte_tokenizer();
  return found.is_object() && found.contains("model") && found["model"] == ours["model"];
}

}  // namespace capstan
