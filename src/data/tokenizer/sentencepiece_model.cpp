#include "data/tokenizer/sentencepiece_model.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "base/json_text.h"
#include "base/utf8.h"
#include "data/tokenizer/protobuf_reader.h"

namespace capstan {
namespace {

// Numbers of fields and values: sentencepiece_model.proto.
enum ModelField { kPieces = 1, kTrainer = 2, kNormalizer = 3, kSelfTest = 4, kDenormalizer = 5 };
enum PieceField { kPiece = 1, kScore = 2, kType = 3 };
enum PieceType { kUnknown = 2, kByte = 6, kLastType = 6 };
constexpr uint32_t kModelType = 3, kLastModelType = 4, kByteFallback = 35, kCharacterMap = 2;

constexpr size_t kMaxPieces = 1 << 22, kLongestPiece = 4096;

class Checker {
 public:
  Checker(std::string_view file, std::string_view where) : file_(file), where_(where) {}

  void check() {
    for (ProtobufReader model = read(file_); model.next();) {
      switch (model.field()) {
        case kPieces: check_piece(model.bytes()); break;
        case kTrainer: check_trainer(model.bytes()); break;
        case kNormalizer: check_normalizer(model.bytes()); break;
        case kDenormalizer: refuse_character_map(model.bytes()); break;
        case kSelfTest: refuse("it contains self-test data; export the model without it");
        default: break;
      }
    }
    if (pieces_.empty()) refuse("it has no pieces");
    if (unknown_ != 1) refuse("expected one unknown piece, found {}", unknown_);
    if (byte_fallback_ && bytes_ != 256) refuse("expected 256 pieces for bytes, found {}", bytes_);
  }

 private:
  ProtobufReader read(std::string_view message) const { return {message, file_, where_}; }

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(Fault::file, "{}: not a SentencePiece model that can be used: {}", where_,
         fmt::format(format, std::forward<Args>(args)...));
  }

  void check_piece(std::string_view message) {
    std::string_view text;
    uint64_t type = 1;
    float score = 0;
    for (ProtobufReader piece = read(message); piece.next();) {
      if (piece.field() == kPiece) text = piece.bytes();
      if (piece.field() == kScore) score = piece.real();
      if (piece.field() == kType) type = piece.integer();
    }
    const size_t id = pieces_.size();
    if (id == kMaxPieces) refuse("it has more than {} pieces", kMaxPieces);
    if (text.empty() || text.size() > kLongestPiece)
      refuse("piece {} has {} bytes; expected 1 to {}", id, text.size(), kLongestPiece);
    if (invalid_utf8(text) || text.find('\0') != text.npos)
      refuse("piece {}, {}, is not UTF-8 without zero bytes", id, in_quotes(text));
    if (type < 1 || type > kLastType) refuse("piece {} has the unknown type {}", id, type);
    if (!std::isfinite(score)) refuse("the score of piece {} is not finite", id);
    if (!pieces_.insert(text).second)
      refuse("{} appears twice, again as piece {}", in_quotes(text), id);
    unknown_ += type == kUnknown;
    bytes_ += type == kByte;
    if (type == kByte) check_byte(text, id);
  }

  void check_byte(std::string_view text, size_t id) const {
    const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
    const bool right = text.size() == 6 && text.starts_with("<0x") && text.ends_with('>') &&
                       is_digit(text[3]) && is_digit(text[4]);
    if (!right) refuse("piece {}, {}, is not a byte name like <0x0A>", id, in_quotes(text));
  }

  void check_trainer(std::string_view message) {
    for (ProtobufReader trainer = read(message); trainer.next();) {
      if (trainer.field() == kModelType &&
          (trainer.integer() < 1 || trainer.integer() > kLastModelType))
        refuse("its type {} is unknown", trainer.integer());
      if (trainer.field() == kByteFallback) byte_fallback_ = trainer.integer() != 0;
    }
  }

  void check_normalizer(std::string_view message) const {
    for (ProtobufReader normalizer = read(message); normalizer.next();)
      if (normalizer.field() == kCharacterMap) check_character_map(normalizer.bytes());
  }

  void refuse_character_map(std::string_view message) const {
    for (ProtobufReader denormalizer = read(message); denormalizer.next();)
      if (denormalizer.field() == kCharacterMap && !denormalizer.bytes().empty())
        refuse("it has a denormalizer, which is not supported");
  }

  // The size of a trie in bytes, the trie (a double array of Darts-clone), and the texts that its
  // values point to, each terminated by a zero byte.
  void check_character_map(std::string_view map) const {
    if (map.empty()) return;
    uint32_t trie_bytes = 0;
    if (map.size() < sizeof trie_bytes) refuse("its character map is truncated");
    std::memcpy(&trie_bytes, map.data(), sizeof trie_bytes);
    map.remove_prefix(sizeof trie_bytes);
    if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes >= map.size() || map.back() != '\0')
      refuse("the sizes in its character map are inconsistent");
    std::vector<uint32_t> units(trie_bytes / 4);
    std::memcpy(units.data(), map.data(), trie_bytes);
    check_trie(units, map.size() - trie_bytes);
  }

  // Visits every path that a search can take.
  void check_trie(const std::vector<uint32_t>& units, size_t value_bytes) const {
    const auto offset = [](uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); };
    const auto label = [](uint32_t unit) { return unit & 0x800000FFu; };
    const auto inside = [&](size_t at) {
      if (at >= units.size()) refuse("its character map points outside itself");
    };
    std::vector<bool> seen(units.size());
    std::vector<uint32_t> open = {0};
    seen[0] = true;
    while (!open.empty()) {
      const uint32_t at = open.back();
      open.pop_back();
      const uint32_t base = at ^ offset(units[at]);
      if (at != 0 && (units[at] & 0x100u) != 0) {
        inside(base);
        if ((units[base] & 0x7FFFFFFFu) >= value_bytes)
          refuse("its character map refers to a missing text");
      }
      for (uint32_t c = 0; c < 256; ++c) {
        const uint32_t child = base ^ c;
        inside(child);
        if (label(units[child]) != c || seen[child]) continue;
        seen[child] = true;
        open.push_back(child);
      }
    }
  }

  std::string_view file_, where_;
  std::unordered_set<std::string_view> pieces_;
  int unknown_ = 0, bytes_ = 0;
  bool byte_fallback_ = false;
};

}  // namespace

void check_sentencepiece_model(std::string_view file, std::string_view where) {
  Checker(file, where).check();
}

}  // namespace capstan
