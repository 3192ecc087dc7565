#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace capstan {

// The tokenizer of a model's folder: tokenizer.json, or tokenizer.model where there is none of the
// former. A tokenizer.json that byte_tokenizer_json wrote gives a ByteTokenizer.
//
// eos is named by tokenizer_config.json, else special_tokens_map.json (by token), else
// generation_config.json, else config.json (by id; the first of a list); a tokenizer.model names it
// first. So is bos, where one is used. Whether it is, is said by, in this order:
//   - no tokenizer_config.json: no;
//   - a folder named Meta-Llama-3… or Llama-3…, or SmolLM2…Instruct: yes;
//   - tokenizer_config.json's add_bos_token;
//   - its tokenizer_class LlamaTokenizer: yes;
//   - the post_processor of tokenizer.json: yes if it puts the bos token before a text.
// These are LitGPT's rules but for the last, which spares Llama 3 its folder's name.
//
// Throws Fault::file for missing or bad files, and where eos, or a bos that is used, is not known.
// `beside`: a folder that says all this where this one does not, as that of an adapter's base.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder,
                                          const std::filesystem::path& beside = {});

// The text of the folder's tokenizer_config.json with add_bos_token, where nothing but the folder's
// name says that bos is used: for a copy of it under another name. Else empty.
inline constexpr std::string_view kTokenizerConfig = "tokenizer_config.json";
std::string config_with_bos(const std::filesystem::path& folder);

// The files of a folder that belong to its tokenizer and go along with a checkpoint.
std::vector<std::filesystem::path> tokenizer_files(const std::filesystem::path& folder);

}  // namespace capstan
