#pragma once

#include <optional>
#include <string>
#include <utility>

#include "data/tokenizer/tokenizer.h"

namespace capstan {

// A tokenizer described by a file. bos and eos come from other files and are set once, before use.
class FileTokenizer : public Tokenizer {
 public:
  void set_ends(std::optional<int32_t> bos, int32_t eos) {
    bos_ = bos;
    eos_ = eos;
  }

  std::optional<int32_t> bos() const override { return bos_; }
  int32_t eos() const override { return eos_; }
  std::string fingerprint() const override;

 protected:
  // `content` names the format and contains a SHA-256 of the file.
  explicit FileTokenizer(std::string content) : content_(std::move(content)) {}

 private:
  std::string content_;
  std::optional<int32_t> bos_;
  int32_t eos_ = 0;
};

}  // namespace capstan
