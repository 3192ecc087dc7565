#pragma once

#include <memory>
#include <string>

#include "data/tokenizer/tokenizer_spec.h"

namespace capstan {

// What a tokenizer.json does to a text before it looks for words. Texts are valid UTF-8.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(std::string& text) const = 0;
};

// Of the file's "normalizer": Sequence, Prepend, Replace, NFC, NFD, NFKC, NFKD, Lowercase, Strip,
// StripAccents, ByteLevel. Others are refused with Fault::file.
std::unique_ptr<Normalizer> make_normalizer(const Spec& spec);

}  // namespace capstan
