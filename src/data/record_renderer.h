#pragma once

#include <string>

#include "data/data_options.h"
#include "data/prompt/prompt_style.h"
#include "data/prompt/rendering.h"

namespace capstan {

// A rendered record: the whole sample, or the part before its answer.
struct RenderedRecord {
  std::vector<Piece> pieces = {};
  int32_t flags = 0;                          // SampleOrigin::Flags
  bool add_eos = false;                       // set for prompt styles; a template has its own end
  bool add_bos = false;                       // likewise
  std::string instruction = {}, answer = {};  // the last of them
};

// Renders records according to the options. Const methods are thread safe.
class RecordRenderer {
 public:
  // Throws Fault::usage: an unknown style, or a chat template if the model has none.
  explicit RecordRenderer(const DataOptions& options);

  // `where` is file:line for messages. Throws Fault::file: a conversation that the style cannot
  // represent.
  RenderedRecord sample(const Record& record, const std::string& where) const;
  RenderedRecord prompt(const Record& record, const std::string& where) const;

  // For records that are (not) conversations. Null: they use the other one.
  const PromptStyle* style() const { return style_; }
  const std::optional<ChatTemplate>& chat() const { return chat_; }
  // Everything that determines the result of sample, except mask_prompt.
  std::string fingerprint() const;

 private:
  bool uses_chat(const Record& record, const std::string& where) const;
  RenderedRecord with_chat(const Record& record, bool answered) const;
  RenderedRecord with_style(const Record& record, bool answered) const;

  const PromptStyle* style_ = nullptr;
  std::optional<ChatTemplate> chat_;
  bool mask_prompt_ = false, first_turn_ = false;
};

// Adds bos and eos to the pieces as the rendering says, but no bos before pieces that begin with
// it, and no eos after an eos.
EncodedPieces encode(const RenderedRecord& record, const Tokenizer& tokenizer);

}  // namespace capstan
