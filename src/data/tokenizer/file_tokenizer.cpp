#include "data/tokenizer/file_tokenizer.h"

#include <fmt/format.h>

#include "base/checksum.h"

namespace capstan {

std::string FileTokenizer::fingerprint() const {
  return sha256_of(fmt::format("{} bos {} eos {}", content_, bos_.value_or(-1), eos_));
}

}  // namespace capstan
