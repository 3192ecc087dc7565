#include "data/tokenizer/bpe.h"

#include <algorithm>
#include <queue>

#include "base/json_text.h"
#include "data/tokenizer/code_points.h"

namespace capstan {
namespace {

using nlohmann::json;

uint64_t pair_of(uint32_t a, uint32_t b) {
  return uint64_t{a} << 32 | b;
}
uint64_t pair_of(int32_t a, int32_t b) {
  return pair_of(static_cast<uint32_t>(a), static_cast<uint32_t>(b));
}

void refuse_unless_empty(const Spec& model, const char* key) {
  if (model.has(key) && !(model.at(key).value().is_string() && model.text(key).empty()))
    model.at(key).refuse("{} {} is not supported: expected null or an empty text", key,
                         shown(model.at(key).value()));
}

// The two sides of a merge; files write it as "a b" or ["a", "b"].
std::optional<std::pair<std::string_view, std::string_view>> sides(const json& merge) {
  if (merge.is_string()) {
    const std::string_view both = merge.get_ref<const std::string&>();
    const size_t space = both.find(' ');
    if (space == both.npos || both.find(' ', space + 1) != both.npos) return std::nullopt;
    return {{both.substr(0, space), both.substr(space + 1)}};
  }
  if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string())
    return std::nullopt;
  return {{merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()}};
}

}  // namespace

struct Bpe::Symbol {
  int32_t id;
  int32_t before, after;  // neighbours; -1: none
  bool gone = false;      // merged into the previous one
};

Bpe::Bpe(const Spec& model) {
  const std::string type = model.has("type") ? model.type() : "BPE";
  if (type != "BPE")
    model.refuse("the tokenizer's model is {}; only BPE is supported", in_quotes(type));
  refuse_unless_empty(model, "continuing_subword_prefix");
  refuse_unless_empty(model, "end_of_word_suffix");
  if (model.has("dropout") && model.at("dropout").value() != 0)
    model.at("dropout").refuse("dropout {} is not supported: expected null",
                               shown(model.at("dropout").value()));
  ignore_merges_ = model.flag("ignore_merges", false);
  read_vocab(model);
  read_fallbacks(model);
  read_merges(model);
}

void Bpe::read_vocab(const Spec& model) {
  const Spec vocab = model.at("vocab");
  if (!vocab.is_object()) vocab.refuse("vocab: expected an object, found {}", shown(vocab.value()));
  vocab_.reserve(vocab.value().size());
  for (const auto& entry : vocab.value().items()) {
    const json& id = entry.value();
    const auto place = [&] { return vocab.location(entry.key()); };
    if (!id.is_number_integer() || id < 0 || id > kLargestId)
      fail(Fault::file, "{}: the id of {} must be an integer from 0 to {}, found {}", place(),
           in_quotes(entry.key()), kLargestId, shown(id));
    const auto i = id.get<size_t>();
    if (i >= tokens_.size()) tokens_.resize(i + 1, nullptr);
    if (tokens_[i])
      fail(Fault::file, "{}: the id {} of {} is also that of {}", place(), i,
           in_quotes(entry.key()), in_quotes(*tokens_[i]));
    tokens_[i] = &vocab_.emplace(entry.key(), static_cast<int32_t>(i)).first->first;
  }
  if (vocab_.empty()) vocab.refuse("vocab: is empty");
}

void Bpe::read_fallbacks(const Spec& model) {
  byte_fallback_ = model.flag("byte_fallback", false);
  fuse_unknown_ = model.flag("fuse_unk", false);
  if (model.has("unk_token")) {
    unknown_ = id_of(model.text("unk_token"));
    if (!unknown_)
      model.at("unk_token")
          .refuse("unk_token {} is not in the vocabulary", in_quotes(model.text("unk_token")));
  }
  for (size_t b = 0; b < 256; ++b) byte_ids_[b] = id_of(fmt::format("<0x{:02X}>", b)).value_or(-1);
  for (size_t c = 0; c < 128; ++c)
    ascii_ids_[c] = id_of(std::string(1, static_cast<char>(c))).value_or(-1);
}

void Bpe::read_merges(const Spec& model) {
  const Spec list = model.at("merges");
  if (!list.value().is_array()) list.refuse("merges: expected a list");
  merges_.reserve(list.value().size());
  uint32_t rank = 0;
  for (const json& merge : list.value()) {
    const auto both = sides(merge);
    if (!both)
      list.refuse("merges[{}]: expected \"left right\" or [\"left\", \"right\"], found {}", rank,
                  shown(merge));
    const auto& [left, right] = *both;
    std::string whole(left);
    whole += right;
    const auto from = id_of(left), with = id_of(right), to = id_of(whole);
    if (!from || !with || !to || left.empty() || right.empty())
      list.refuse("merges[{}]: {} is not in the vocabulary", rank,
                  in_quotes(!from   ? left
                            : !with ? right
                                    : std::string_view(whole)));
    if (!merges_.emplace(pair_of(*from, *with), Merge{rank, *to}).second)
      list.refuse("merges[{}]: {} and {} appear in an earlier merge already", rank, in_quotes(left),
                  in_quotes(right));
    note_neighbours(left, right);
    ++rank;
  }
}

void Bpe::note_neighbours(std::string_view left, std::string_view right) {
  const char32_t a = last_character(left), b = first_character(right);
  if (a < 128 && b < 128) {
    ascii_neighbours_.set(a * 128 + b);
  } else {
    neighbours_.insert(pair_of(uint32_t{a}, uint32_t{b}));
  }
}

bool Bpe::can_meet(char32_t left, char32_t right) const {
  if (left < 128 && right < 128) return ascii_neighbours_.test(left * 128 + right);
  return neighbours_.contains(pair_of(uint32_t{left}, uint32_t{right}));
}

std::optional<int32_t> Bpe::id_of(std::string_view token) const {
  const auto found = vocab_.find(token);
  if (found == vocab_.end()) return std::nullopt;
  return found->second;
}

const std::string* Bpe::token(int32_t id) const {
  return id >= 0 && id < size() ? tokens_[static_cast<size_t>(id)] : nullptr;
}

int32_t Bpe::id_of_character(std::string_view character) const {
  if (character.size() == 1) return ascii_ids_[static_cast<unsigned char>(character[0])];
  return id_of(character).value_or(-1);
}

void Bpe::encode(std::string_view text, std::vector<int32_t>& ids, const Encoded& encoded) const {
  constexpr size_t kBetween = size_t{1} << 16;
  WordCache& cache = WordCache::of(cache_owner_);
  size_t begin = 0, told = 0;
  const auto tell = [&](size_t done) {
    if (encoded) encoded(done - std::exchange(told, done));
  };
  // A text that is itself a token must not be cut.
  if (ignore_merges_) {
    encode_word(text, cache, ids);
    return tell(text.size());
  }
  for (size_t i = 0; i < text.size();) {
    const size_t left = i;
    const char32_t a = next_character(text, i);
    if (i == text.size()) break;
    if (can_meet(a, first_character(text.substr(i)))) continue;
    // The result for an unknown character depends on its neighbours: do not cut next to one.
    if (id_of_character(text.substr(left, i - left)) < 0) continue;
    if (id_of_character(text.substr(i, character_bytes(text[i]))) < 0) continue;
    encode_word(text.substr(begin, i - begin), cache, ids);
    begin = i;
    if (begin - told >= kBetween) tell(begin);
  }
  encode_word(text.substr(begin), cache, ids);
  tell(text.size());
}

void Bpe::encode_word(std::string_view word, WordCache& cache, std::vector<int32_t>& ids) const {
  if (word.size() == 1 && ascii_ids_[static_cast<unsigned char>(word[0])] >= 0) {
    ids.push_back(ascii_ids_[static_cast<unsigned char>(word[0])]);
    return;
  }
  const bool short_enough = word.size() <= WordCache::kLongestWord;
  const std::vector<int32_t>* known = short_enough ? cache.find(word) : nullptr;
  if (known) {
    ids.insert(ids.end(), known->begin(), known->end());
    return;
  }
  std::vector<int32_t> found = merged(word);
  ids.insert(ids.end(), found.begin(), found.end());
  if (short_enough) cache.put(word, std::move(found));
}

std::vector<Bpe::Symbol> Bpe::first_symbols(std::string_view word) const {
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  const auto add = [&](int32_t id) {
    const auto at = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, at - 1, at + 1});
  };
  bool unknown_waits = false;  // flushed when a known character follows, or at the end
  for (size_t i = 0; i < word.size();) {
    const size_t begin = i;
    i += character_bytes(word[i]);
    const std::string_view character = word.substr(begin, i - begin);
    const int32_t id = id_of_character(character);
    if (id >= 0) {
      if (unknown_waits) add(*unknown_);
      unknown_waits = false;
      add(id);
      continue;
    }
    const auto id_of_byte = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
    if (byte_fallback_ && std::all_of(character.begin(), character.end(),
                                      [&](char c) { return id_of_byte(c) >= 0; })) {
      for (const char c : character) add(id_of_byte(c));
    } else if (unknown_) {
      if (unknown_waits && !fuse_unknown_) add(*unknown_);
      unknown_waits = true;
    }
  }
  if (unknown_waits) add(*unknown_);
  if (!symbols.empty()) symbols.back().after = -1;
  return symbols;
}

const Bpe::Merge* Bpe::merge_of(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

std::vector<int32_t> Bpe::merged(std::string_view word) const {
  if (ignore_merges_)
    if (const auto whole = id_of(word)) return {*whole};

  struct Candidate {
    uint32_t rank;
    int32_t at, to;
    bool operator<(const Candidate& o) const {  // top of the queue: lowest rank, then leftmost
      return rank != o.rank ? rank > o.rank : at > o.at;
    }
  };
  std::vector<Symbol> symbols = first_symbols(word);
  const auto symbol = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  std::priority_queue<Candidate> queue;
  const auto offer = [&](int32_t left) {
    if (left < 0 || symbol(left).after < 0) return;
    if (const Merge* m = merge_of(symbol(left).id, symbol(symbol(left).after).id))
      queue.push({m->rank, left, m->to});
  };
  for (size_t i = 0; i < symbols.size(); ++i) offer(static_cast<int32_t>(i));

  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbol(best.at);
    if (left.gone || left.after < 0) continue;
    Symbol& right = symbol(left.after);
    // One of the two may have changed since. As in the reference, the token they merge to now
    // decides, not the queued rank.
    const Merge* now = merge_of(left.id, right.id);
    if (!now || now->to != best.to) continue;
    left.id = best.to;
    left.after = right.after;
    right.gone = true;
    if (right.after >= 0) symbol(right.after).before = best.at;
    offer(left.before);
    offer(best.at);
  }
  std::vector<int32_t> ids;
  for (const Symbol& s : symbols)
    if (!s.gone) ids.push_back(s.id);
  return ids;
}

}  // namespace capstan
