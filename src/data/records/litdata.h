#pragma once

#include <filesystem>

#include "data/dataset/dataset.h"
#include "data/tokenizer/tokenizer.h"

namespace capstan {

// Whether a folder was written by LitData's optimize(): it has an index.json with chunks.
bool is_litdata(const std::filesystem::path& folder);

// The tokens in such a folder, as LitGPT makes them from texts: each item is a document; its tokens
// are used unchanged and cut as in add_document. index.json names the chunks and the token type
// ("no_header_tensor:16" is int32). A chunk is, little-endian,
//
//   uint32 items N,  uint32 offset[N + 1] from the file's start,  the items' bytes.
//
// Throws Fault::file for an invalid index or chunk, for compressed or encrypted chunks, for items
// that are not tokens, and for ids that the tokenizer does not have: then the chunks were made with
// another.
Dataset load_litdata(const std::filesystem::path& folder, const Tokenizer& tokenizer,
                     int64_t max_seq_length);

}  // namespace capstan
