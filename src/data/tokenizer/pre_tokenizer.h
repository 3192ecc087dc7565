#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer_spec.h"
#include "data/tokenizer/unicode.h"

namespace capstan {

// A text (valid UTF-8) and the parts of it that become tokens on their own, in order, none empty.
struct Pieces {
  std::string text;
  std::vector<unicode::Range> parts;
  // Whether the first part is where the whole input begins: some tokenizers put a space there.
  bool at_start = false;

  std::string_view operator[](size_t i) const {
    return std::string_view(text).substr(parts[i].begin, parts[i].end - parts[i].begin);
  }
};

// How a tokenizer.json cuts a text into words before merging.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
};

// Of the file's "pre_tokenizer": Sequence, Split, ByteLevel, Metaspace, Digits, Whitespace,
// WhitespaceSplit, Punctuation. Others are refused with Fault::file.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Spec& spec);

}  // namespace capstan
