#include "data/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "base/json_text.h"
#include "data/tokenizer/code_points.h"
#include "data/tokenizer/unicode.h"

namespace capstan {
namespace {

bool is_a(char32_t c, uint8_t classes) {
  return (unicode::classes()[c] & classes) != 0;
}

// Where the trailing spaces of the text begin, but not before `from`.
size_t spaces_before(std::string_view text, size_t end, size_t from) {
  while (end > from && is_a(last_character(text.substr(0, end)), unicode::kSpace))
    end = previous_start(text, end);
  return end;
}

size_t spaces_after(std::string_view text, size_t at) {
  while (at < text.size() && is_a(first_character(text.substr(at)), unicode::kSpace))
    at += character_bytes(text[at]);
  return at;
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  const bool left = begin == 0 || !is_a(last_character(text.substr(0, begin)), unicode::kWord);
  return left && (end == text.size() || !is_a(first_character(text.substr(end)), unicode::kWord));
}

}  // namespace

AddedTokens::AddedTokens(const Spec& list, const Bpe& model, const Normalizer* normalizer) {
  for (const Spec& spec : list.elements()) {
    Token t{.content = spec.text("content"),
            .id = static_cast<int32_t>(spec.number("id", Bpe::kLargestId)),
            .single_word = spec.flag("single_word", false),
            .strips_left = spec.flag("lstrip", false),
            .strips_right = spec.flag("rstrip", false),
            .special = spec.flag("special", false)};
    if (t.content.empty()) continue;
    if (t.single_word || t.strips_left || t.strips_right)
      unicode::require_available("an added token with single_word, lstrip or rstrip",
                                 spec.location());
    const std::optional<int32_t> in_model = model.id_of(t.content);
    if (in_model && *in_model != t.id)
      spec.refuse("{} has the id {} here and {} in the vocabulary", in_quotes(t.content), t.id,
                  *in_model);
    const std::string* other = model.token(t.id) ? model.token(t.id) : token(t.id);
    if (other && (*other != t.content || token(t.id)))
      spec.refuse("the id {} of {} is also that of {}", t.id, in_quotes(t.content),
                  in_quotes(*other));
    if (!ids_.emplace(t.content, t.id).second)
      spec.refuse("{} appears twice", in_quotes(t.content));

    if (spec.flag("normalized", !t.special)) {
      std::string name = t.content;
      if (normalizer) normalizer->apply(name);
      normalized_.add(name, tokens_.size());
    } else {
      written_.add(t.content, tokens_.size());
    }
    const auto id = static_cast<size_t>(t.id);
    if (id >= by_id_.size()) by_id_.resize(id + 1, -1);
    by_id_[id] = static_cast<int32_t>(tokens_.size());
    tokens_.push_back(std::move(t));
  }
}

std::optional<int32_t> AddedTokens::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string* AddedTokens::token(int32_t id) const {
  if (id < 0 || id >= size() || by_id_[static_cast<size_t>(id)] < 0) return nullptr;
  return &tokens_[static_cast<size_t>(by_id_[static_cast<size_t>(id)])].content;
}

bool AddedTokens::is_special(int32_t id) const {
  return token(id) && tokens_[static_cast<size_t>(by_id_[static_cast<size_t>(id)])].special;
}

void AddedTokens::Finder::add(std::string_view name, size_t token) {
  if (name.empty()) return;
  tokens.emplace(name, token);
  begins[static_cast<unsigned char>(name[0])] = true;
  if (std::find(lengths.begin(), lengths.end(), name.size()) == lengths.end())
    lengths.push_back(name.size());
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
}

std::optional<std::pair<size_t, size_t>> AddedTokens::Finder::at(std::string_view text) const {
  for (const size_t length : lengths) {
    if (length > text.size()) continue;
    const auto found = tokens.find(text.substr(0, length));
    if (found != tokens.end()) return {{found->second, length}};
  }
  return std::nullopt;
}

std::vector<TextSegment> AddedTokens::Finder::split(std::string_view text,
                                                    const std::vector<Token>& all) const {
  std::vector<TextSegment> segments;
  size_t done = 0;
  for (size_t i = 0; i < text.size();) {
    const auto found =
        begins[static_cast<unsigned char>(text[i])] ? at(text.substr(i)) : std::nullopt;
    if (!found) {
      ++i;
      continue;
    }
    const Token& token = all[found->first];
    size_t begin = i, end = i + found->second;
    i = end;
    if (token.single_word && !stands_alone(text, begin, end)) continue;
    if (token.strips_left) begin = spaces_before(text, begin, std::min(done, begin));
    if (token.strips_right) end = spaces_after(text, end);
    if (done < begin) segments.push_back({text.substr(done, begin - done)});
    segments.push_back({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < text.size()) segments.push_back({text.substr(done)});
  return segments;
}

}  // namespace capstan
