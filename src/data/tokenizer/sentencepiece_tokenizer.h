#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/file_tokenizer.h"

namespace capstan {

// A tokenizer.model, encoded and decoded by the SentencePiece library.
class SentencePieceTokenizer final : public FileTokenizer {
 public:
  // From the file's bytes. Throws Fault::file if check_sentencepiece_model or the library rejects
  // it.
  SentencePieceTokenizer(std::string_view file, std::string_view where);
  ~SentencePieceTokenizer() override;

  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::unique_ptr<TextStream> stream() const override;
  std::optional<int32_t> id_of(std::string_view token) const override;
  int32_t vocab_size() const override;

  // The ids that the file itself names; LitGPT and Hugging Face programs also read other files.
  std::optional<int32_t> bos_in_file() const;
  std::optional<int32_t> eos_in_file() const;

 private:
  class Stream;
  struct Library;

  bool is_byte(int32_t id) const;
  // A text piece that does not begin with a space; nothing if there is none.
  std::optional<int32_t> find_anchor() const;

  std::unique_ptr<Library> library_;
  std::optional<int32_t> anchor_;
};

}  // namespace capstan
