#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer_spec.h"

namespace capstan {

// One step from tokens to text, at work on one sequence of tokens. Tokens come by push, one by one,
// and what is certain goes to the next step at once.
class DecodeStep {
 public:
  explicit DecodeStep(std::unique_ptr<DecodeStep> next) : next_(std::move(next)) {}
  virtual ~DecodeStep() = default;

  virtual void push(std::string_view token) = 0;
  // What is held back goes on as if no token followed; those that do continue the text.
  virtual void settle() {
    if (next_) next_->settle();
  }
  // No token follows.
  virtual void finish() {
    if (next_) next_->finish();
  }

 protected:
  std::unique_ptr<DecodeStep> next_;
};

// How a tokenizer.json makes text of tokens ("decoder"). Immutable.
class TokenDecoder {
 public:
  // Tokens with a space between each two: what a file without a decoder means.
  TokenDecoder();
  // Sequence, Replace, ByteFallback, Fuse, Strip, ByteLevel, Metaspace. Others are refused with
  // Fault::file.
  explicit TokenDecoder(const Spec& spec);

  // Begins a sequence. The text, in whole UTF-8 characters, is appended to `text`, which must
  // outlive the result.
  std::unique_ptr<DecodeStep> start(std::string& text) const;

 private:
  using Maker = std::function<std::unique_ptr<DecodeStep>(std::unique_ptr<DecodeStep>)>;

  void add(const Spec& spec);
  template <class Step, class... Args>
  void add_step(const Args&... args);
  void add_replace(const Spec& spec);
  void add_strip(const Spec& spec);
  void add_metaspace(const Spec& spec);
  void hold_if_fused();

  std::vector<Maker> makers_;
  bool fused_ = false;  // what comes are pieces of one long token
};

}  // namespace capstan
