#include "data/tokenizer/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "base/json_text.h"
#include "data/tokenizer/sentencepiece_model.h"

namespace capstan {
namespace {

void check(const sentencepiece::util::Status& status, std::string_view where, const char* doing) {
  require(status.ok(), Fault::file, "{}: SentencePiece failed while {}: {}", where, doing,
          status.ToString());
}

// The library throws if it cannot build its trie.
template <class Body>
void guarded(std::string_view where, const Body& body) {
  try {
    body();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    fail(Fault::file, "{}: SentencePiece failed: {}", where, e.what());
  }
}

}  // namespace

struct SentencePieceTokenizer::Library {
  sentencepiece::SentencePieceProcessor processor;
  std::string where;
};

// Byte tokens are buffered until their run ends, because the library decodes a run as one text.
// Before the first output, all ids are decoded together, since the library drops a leading space;
// later, an anchor id in front keeps that space. Without an anchor, everything is buffered until
// the end, and the part already returned is removed from the front.
class SentencePieceTokenizer::Stream final : public TextStream {
 public:
  explicit Stream(const SentencePieceTokenizer& tokenizer) : tokenizer_(tokenizer) {
    if (tokenizer.anchor_) {
      const int32_t id = *tokenizer.anchor_;
      anchor_bytes_ = tokenizer.decode({&id, 1}).size();
    }
  }

  std::string push(int32_t id) override {
    waiting_.push_back(id);
    if (!tokenizer_.anchor_ || tokenizer_.is_byte(id)) return {};
    return flush();
  }
  std::string settle() override {
    if (tokenizer_.anchor_) return flush();
    std::string text = tokenizer_.decode(waiting_);
    text.erase(0, std::exchange(settled_, text.size()));
    return text;
  }
  std::string finish() override { return tokenizer_.anchor_ ? flush() : settle(); }

 private:
  std::string flush() {
    std::string text = tokenizer_.decode(waiting_);
    if (started_) text.erase(0, anchor_bytes_);
    if (started_ || !text.empty()) {
      started_ = true;
      waiting_ = {*tokenizer_.anchor_};
    }
    return text;
  }

  const SentencePieceTokenizer& tokenizer_;
  std::vector<int32_t> waiting_;
  bool started_ = false;
  size_t anchor_bytes_ = 0;
  size_t settled_ = 0;  // bytes already returned, if there is no anchor
};

SentencePieceTokenizer::SentencePieceTokenizer(std::string_view file, std::string_view where)
    : FileTokenizer("tokenizer.model 1 " + sha256_of(file)), library_(std::make_unique<Library>()) {
  check_sentencepiece_model(file, where);
  library_->where = where;
  guarded(where, [&] {
    check(library_->processor.LoadFromSerializedProto({file.data(), file.size()}), where,
          "loading the model");
  });
  anchor_ = find_anchor();
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

std::vector<int32_t> SentencePieceTokenizer::encode(std::string_view text) const {
  std::vector<int> ids;
  guarded(library_->where, [&] {
    check(library_->processor.Encode({text.data(), text.size()}, &ids), library_->where,
          "encoding a text");
  });
  return ids;
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> ids) const {
  std::vector<int> known;
  for (const int32_t id : ids)
    if (id >= 0 && id < vocab_size()) known.push_back(id);
  std::string text;
  guarded(library_->where, [&] {
    check(library_->processor.Decode(known, &text), library_->where, "decoding ids");
  });
  return text;
}

std::unique_ptr<TextStream> SentencePieceTokenizer::stream() const {
  return std::make_unique<Stream>(*this);
}

std::optional<int32_t> SentencePieceTokenizer::id_of(std::string_view token) const {
  const int id = library_->processor.PieceToId({token.data(), token.size()});
  if (id < 0 || id >= vocab_size() || library_->processor.IdToPiece(id) != token)
    return std::nullopt;  // the library returns the unknown token's id
  return id;
}

int32_t SentencePieceTokenizer::vocab_size() const {
  return library_->processor.GetPieceSize();
}

std::optional<int32_t> SentencePieceTokenizer::bos_in_file() const {
  const int id = library_->processor.bos_id();
  return id >= 0 ? std::optional<int32_t>(id) : std::nullopt;
}

std::optional<int32_t> SentencePieceTokenizer::eos_in_file() const {
  const int id = library_->processor.eos_id();
  return id >= 0 ? std::optional<int32_t>(id) : std::nullopt;
}

bool SentencePieceTokenizer::is_byte(int32_t id) const {
  return id >= 0 && id < vocab_size() && library_->processor.IsByte(id);
}

std::optional<int32_t> SentencePieceTokenizer::find_anchor() const {
  const auto& p = library_->processor;
  for (int32_t id = 0; id < vocab_size(); ++id) {
    if (p.IsControl(id) || p.IsUnknown(id) || p.IsByte(id) || p.IsUnused(id)) continue;
    if (p.IdToPiece(id).starts_with("\u2581")) continue;
    if (decode({&id, 1}) == p.IdToPiece(id)) return id;
  }
  return std::nullopt;
}

}  // namespace capstan
