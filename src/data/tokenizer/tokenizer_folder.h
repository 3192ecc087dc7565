#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace capstan {

// The tokenizer of a model's folder: tokenizer.json, else tokenizer.model. A tokenizer.json that
// byte_tokenizer_json wrote gives a ByteTokenizer.
//
// eos comes from tokenizer_config.json, else special_tokens_map.json (by token), else
// generation_config.json, else config.json (by id; the first of a list); a tokenizer.model takes
// precedence. bos comes from the same files. Whether bos is used is decided by, in this order:
//   - no tokenizer_config.json: no;
//   - a folder named Meta-Llama-3… or Llama-3…, or SmolLM2…Instruct: yes;
//   - tokenizer_config.json's add_bos_token;
//   - its tokenizer_class LlamaTokenizer: yes;
//   - the post_processor of tokenizer.json: yes if it puts the bos token before a text.
// These are LitGPT's rules, except for the last, so that a Llama 3 folder may have any name.
//
// Throws Fault::file for missing or bad files, and if eos, or a bos that is used, is unknown.
// `beside`: a fallback folder for these settings, such as that of an adapter's base.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder,
                                          const std::filesystem::path& beside = {});

// The folder's tokenizer_config.json with add_bos_token added, if only the folder's name says that
// bos is used: for a copy under another name. Otherwise empty.
inline constexpr std::string_view kTokenizerConfig = "tokenizer_config.json";
std::string config_with_bos(const std::filesystem::path& folder);

// The tokenizer's files in a folder, which are copied with a checkpoint.
std::vector<std::filesystem::path> tokenizer_files(const std::filesystem::path& folder);

}  // namespace capstan
