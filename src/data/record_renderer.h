#pragma once

#include <string>

#include "data/data_options.h"
#include "data/prompt/prompt_style.h"
#include "data/prompt/rendering.h"

namespace capstan {

// A record's sample, or what is before its answer.
struct RenderedRecord {
  std::vector<Piece> pieces = {};
  int32_t flags = 0;     // SampleOrigin::Flags
  bool add_eos = false;  // the style leaves it to us; a template has its own end
  bool add_bos = false;  // likewise
  std::string instruction = {}, answer = {};  // the last of them
};

// Renders records as the options say. Const methods are safe from several threads.
class RecordRenderer {
 public:
  // Throws Fault::usage: an unknown style; a chat template where the model has none.
  explicit RecordRenderer(const DataOptions& options);

  // `where` is file:line for messages. Throws Fault::file: a conversation that the style cannot
  // hold.
  RenderedRecord sample(const Record& record, const std::string& where) const;
  RenderedRecord prompt(const Record& record, const std::string& where) const;

  // For records that are (not) conversations. Null: they use the other of the two.
  const PromptStyle* style() const { return style_; }
  const std::optional<ChatTemplate>& chat() const { return chat_; }
  // All that decides what sample gives, mask_prompt apart.
  std::string fingerprint() const;

 private:
  bool uses_chat(const Record& record, const std::string& where) const;
  RenderedRecord with_chat(const Record& record, bool answered) const;
  RenderedRecord with_style(const Record& record, bool answered) const;

  const PromptStyle* style_ = nullptr;
  std::optional<ChatTemplate> chat_;
  bool mask_prompt_ = false, first_turn_ = false;
};

// bos? pieces eos?, as the rendering says. bos is not added before pieces that begin with it by
// name; eos not after an eos.
EncodedPieces encode(const RenderedRecord& record, const Tokenizer& tokenizer);

}  // namespace capstan
