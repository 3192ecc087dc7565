#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace capstan {

class Tokenizer;

// A tokenizer that can be watched while it encodes a long text.
class LongEncoder {
 public:
  virtual ~LongEncoder() = default;

  // What Tokenizer::encode gives. Calls `progress` from time to time, on this thread, with how many
  // bytes it has encoded since the last call, of a text as normalization makes it; it may throw to
  // end the work.
  virtual std::vector<int32_t> encode_long(std::string_view text,
                                           const std::function<void(int64_t)>& progress) const = 0;
};

// encode_document() while somebody watches. A tokenizer that is no LongEncoder tells of the whole
// text at its end.
std::vector<int32_t> encode_document(const Tokenizer& tokenizer, std::string_view text,
                                     const std::function<void(int64_t)>& progress);

}  // namespace capstan
