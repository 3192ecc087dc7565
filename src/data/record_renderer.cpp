#include "data/record_renderer.h"

#include <algorithm>

#include "base/error.h"
#include "base/json_text.h"
#include "base/units.h"

namespace capstan {
namespace {

// One turn, the form that prompt styles take.
struct Turn {
  std::string_view system, instruction, input, output;
};

Turn first_turn_of(const Record& record) {
  if (!record.is_chat()) return {record.system, record.instruction, record.input, record.output};
  Turn turn;
  size_t i = 0;
  if (record.messages[0].role == Role::system) turn.system = record.messages[i++].content;
  turn.instruction = record.messages[i].content;
  turn.output = record.messages[i + 1].content;
  return turn;
}

int64_t turns_of(const Record& record) {
  return std::count_if(record.messages.begin(), record.messages.end(),
                       [](const Message& m) { return m.role == Role::assistant; });
}

std::vector<Message> messages_of(const Record& record) {
  if (record.is_chat()) return record.messages;
  std::string user = record.instruction;
  if (!record.input.empty()) user.append(user.empty() ? "" : "\n\n").append(record.input);
  std::vector<Message> messages;
  if (!record.system.empty()) messages.push_back({Role::system, record.system});
  messages.push_back({Role::user, std::move(user)});
  messages.push_back({Role::assistant, record.output});
  return messages;
}

std::string template_names() {
  std::string names;
  for (const ChatTemplate& t : chat_templates())
    names += fmt::format("{}{}:{}", names.empty() ? "" : ", ", kChatTemplateStyle, t.name);
  return names;
}

// Renders a turn in a style. LitGPT drops a system message if its style has no place for it, and
// joins it without the style's trailing blank line. Here it precedes the instruction (joined_system
// in `flags`) and ends like the style's own.
std::vector<Piece> prompt_of(const PromptStyle& style, const Turn& turn, int32_t& flags) {
  if (turn.system.empty()) return render(style, turn.instruction, turn.input);
  const bool by_input = !turn.input.empty() && !style.with_input.empty();
  const std::string_view text = by_input ? style.with_input : style.text;
  std::string system(turn.system);
  if (text.find("{system_part}") == std::string_view::npos) {
    flags |= SampleOrigin::joined_system;
    system.append("\n\n").append(turn.instruction);
    return render(style, system, turn.input);
  }
  const std::string_view own = by_input ? style.system_with_input : style.system;
  const std::string_view end = own.substr(own.find_last_not_of(" \n") + 1);
  if (!system.ends_with(end)) system += end;
  return render(style, turn.instruction, turn.input, system);
}

// The first words of a text, as a prompt to continue.
std::string beginning_of(std::string_view text) {
  constexpr size_t kLongest = 64;  // bytes
  size_t end = std::min(text.size(), kLongest);
  const size_t space = text.substr(0, end).find_last_of(" \n");
  if (space != std::string_view::npos && space > 0) return std::string(text.substr(0, space));
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return std::string(text.substr(0, end));
}

// Plain text: all of it counts for the loss. Or its beginning, as a prompt.
RenderedRecord document(const std::string& text, bool whole) {
  RenderedRecord out;
  out.flags = SampleOrigin::document;
  out.add_bos = true;
  out.add_eos = whole;
  out.instruction = whole ? text : beginning_of(text);
  out.answer = text.substr(std::min(text.size(), out.instruction.size()));
  out.pieces.push_back({out.instruction, false, whole});
  return out;
}

ChatTemplate named_template(std::string_view style, const std::optional<ChatTemplate>& model) {
  if (style == kChatTemplateStyle) {
    require(model.has_value(), Fault::usage,
            "data.prompt_style {}: the model has no known chat template. Choose one: {}",
            kChatTemplateStyle, template_names());
    return *model;
  }
  const std::string_view name = style.substr(kChatTemplateStyle.size() + 1);
  const ChatTemplate* found = find_chat_template(name);
  require(found != nullptr, Fault::usage, "no chat template {}. The known ones are: {}",
          in_quotes(name), template_names());
  return *found;
}

}  // namespace

RecordRenderer::RecordRenderer(const DataOptions& options)
    : mask_prompt_(options.mask_prompt), first_turn_(options.first_turn) {
  const std::string_view style = options.style;
  if (style == kChatTemplateStyle || style.starts_with(std::string(kChatTemplateStyle) + ":")) {
    chat_ = named_template(style, options.chat_template);
  } else if (style.empty()) {
    style_ = &prompt_style("alpaca");
    chat_ = options.chat_template;
  } else {
    style_ = &prompt_style(style);
    // Conversations of several turns use the template of the same family, if there is one.
    if (const ChatTemplate* family = find_chat_template(style)) chat_ = *family;
  }
}

bool RecordRenderer::uses_chat(const Record& record, const std::string& where) const {
  if (style_ == nullptr) return true;
  if (!record.is_chat() || chat_) return record.is_chat();
  const int64_t turns = turns_of(record);
  require(turns == 1 || first_turn_, Fault::file,
          "{}: a conversation of {}, but the prompt style {} takes one. Use a chat template: "
          "--data.prompt_style {} (the model's own), or one of {}",
          where, count(turns, "turn"), style_->name, kChatTemplateStyle, template_names());
  return false;
}

RenderedRecord RecordRenderer::sample(const Record& record, const std::string& where) const {
  if (record.is_document()) return document(record.text, true);
  return uses_chat(record, where) ? with_chat(record, true) : with_style(record, true);
}

RenderedRecord RecordRenderer::prompt(const Record& record, const std::string& where) const {
  if (record.is_document()) return document(record.text, false);
  return uses_chat(record, where) ? with_chat(record, false) : with_style(record, false);
}

RenderedRecord RecordRenderer::with_chat(const Record& record, bool answered) const {
  const std::vector<Message> messages = messages_of(record);
  const auto shown = std::span(messages).first(messages.size() - (answered ? 0 : 1));
  RenderedRecord out;
  out.pieces = render(*chat_, shown, !answered);
  out.flags = SampleOrigin::chat;
  for (const Message& m : messages)
    if (m.role == Role::assistant && m.content.empty()) out.flags |= SampleOrigin::empty_response;
  out.instruction = messages[messages.size() - 2].content;
  out.answer = messages.back().content;
  return out;
}

RenderedRecord RecordRenderer::with_style(const Record& record, bool answered) const {
  const Turn turn = first_turn_of(record);
  RenderedRecord out;
  out.pieces = prompt_of(*style_, turn, out.flags);
  out.instruction = turn.instruction;
  out.answer = turn.output;
  out.add_bos = true;
  if (!turn.input.empty() && style_->with_input.empty()) out.flags |= SampleOrigin::joined_input;
  if (record.is_chat()) out.flags |= SampleOrigin::styled_chat;
  if (turns_of(record) > 1) out.flags |= SampleOrigin::first_turn;
  if (turn.output.empty()) out.flags |= SampleOrigin::empty_response;
  if (!answered) return out;
  for (Piece& piece : out.pieces) piece.learn = !mask_prompt_;
  out.pieces.push_back({out.answer, false, true});
  out.add_eos = true;
  return out;
}

std::string RecordRenderer::fingerprint() const {
  std::string all = fmt::format("records {} {}", kRecordReader, first_turn_);
  if (style_ != nullptr)
    for (const std::string_view text : {style_->text, style_->with_input, style_->system_part,
                                        style_->system, style_->system_with_input})
      all += fmt::format("|{}:{}", text.size(), text);
  if (chat_) all += "|" + capstan::fingerprint(*chat_);
  return all;
}

EncodedPieces encode(const RenderedRecord& record, const Tokenizer& tokenizer) {
  EncodedPieces out = encode(record.pieces, tokenizer);
  const auto bos = tokenizer.bos();
  const bool has_bos = !record.pieces.empty() && record.pieces[0].special && bos &&
                       tokenizer.id_of(record.pieces[0].text) == bos;
  if (record.add_bos && bos && !has_bos) {
    out.tokens.insert(out.tokens.begin(), *bos);
    for (TargetSpan& span : out.learned) ++span.begin, ++span.end;
  }
  const auto n = static_cast<int32_t>(out.tokens.size());
  if (record.add_eos && (n == 0 || out.tokens.back() != tokenizer.eos())) {
    out.tokens.push_back(tokenizer.eos());
    if (out.learned.empty() || out.learned.back().end < n)
      out.learned.push_back({n, n + 1});
    else
      ++out.learned.back().end;
  }
  return out;
}

}  // namespace capstan
