#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer_spec.h"
#include "data/tokenizer/unicode.h"

namespace capstan {

// A text (valid UTF-8) and the parts of it that are tokenized separately, in order, none empty.
struct Pieces {
  std::string text;
  std::vector<unicode::Range> parts;
  // Whether the first part starts the whole input: some tokenizers add a space there.
  bool at_start = false;

  std::string_view operator[](size_t i) const {
    return std::string_view(text).substr(parts[i].begin, parts[i].end - parts[i].begin);
  }
};

// How a tokenizer.json splits a text into words before merging.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
};

// From the file's "pre_tokenizer": Sequence, Split, ByteLevel, Metaspace, Digits, Whitespace,
// WhitespaceSplit, Punctuation. Throws Fault::file for others.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Spec& spec);

}  // namespace capstan
