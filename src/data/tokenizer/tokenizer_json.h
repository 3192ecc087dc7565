#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace capstan {

// ByteTokenizer in the format of Hugging Face's tokenizers: byte-level BPE without merges.
std::string byte_tokenizer_json();
std::string byte_tokenizer_config_json();

// Whether a tokenizer.json is that of ByteTokenizer. Throws Fault::file, with line and column, for
// invalid JSON.
bool is_byte_tokenizer(std::string_view tokenizer_json, std::string_view where);
bool is_byte_tokenizer(const nlohmann::json& tokenizer_json);

}  // namespace capstan
