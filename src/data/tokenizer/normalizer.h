#pragma once

#include <memory>
#include <string>

#include "data/tokenizer/tokenizer_spec.h"

namespace capstan {

// The first step of a tokenizer.json, before it splits into words. Texts are valid UTF-8.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(std::string& text) const = 0;
};

// From the file's "normalizer": Sequence, Prepend, Replace, NFC, NFD, NFKC, NFKD, Lowercase, Strip,
// StripAccents, ByteLevel. Throws Fault::file for others.
std::unique_ptr<Normalizer> make_normalizer(const Spec& spec);

}  // namespace capstan
