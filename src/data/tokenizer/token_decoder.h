#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer_spec.h"

namespace capstan {

// One step from tokens to text, for one sequence of tokens. Tokens arrive by push, one by one;
// output that is certain goes to the next step at once.
class DecodeStep {
 public:
  explicit DecodeStep(std::unique_ptr<DecodeStep> next) : next_(std::move(next)) {}
  virtual ~DecodeStep() = default;

  virtual void push(std::string_view token) = 0;
  // Flushes the buffered output as if no token followed; later tokens still continue the text.
  virtual void settle() {
    if (next_) next_->settle();
  }
  // The sequence has ended.
  virtual void finish() {
    if (next_) next_->finish();
  }

 protected:
  std::unique_ptr<DecodeStep> next_;
};

// How a tokenizer.json turns tokens into text ("decoder"). Immutable.
class TokenDecoder {
 public:
  // Joins tokens with spaces: the default of a file without a decoder.
  TokenDecoder();
  // Sequence, Replace, ByteFallback, Fuse, Strip, ByteLevel, Metaspace. Throws Fault::file for
  // others.
  explicit TokenDecoder(const Spec& spec);

  // Starts a sequence. Appends the text, in whole UTF-8 characters, to `text`, which must outlive
  // the result.
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
  bool fused_ = false;  // the input is pieces of one long token
};

}  // namespace capstan
