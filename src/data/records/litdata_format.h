#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace capstan {

// The contents of LitData's index.json for chunks of tokens.
struct LitDataIndex {
  std::vector<std::string> chunks;  // file names, in the same folder
  size_t token_bytes = 0;           // 2: uint16, 4: int32, 8: int64
};

// Throws Fault::file, with `where`, for other texts, for compressed or encrypted chunks, and for
// items that are not rows of tokens.
LitDataIndex parse_litdata_index(std::string_view text, std::string_view where);

// Calls `take` with the tokens of each item of a chunk, in order. Throws Fault::file, with `where`,
// for a truncated or damaged chunk, and for a token outside 0 … vocab - 1.
void read_litdata_chunk(std::string_view bytes, std::string_view where, size_t token_bytes,
                        int64_t vocab, const std::function<void(std::span<const int32_t>)>& take);

}  // namespace capstan
