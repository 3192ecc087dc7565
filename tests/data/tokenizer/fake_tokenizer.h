#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace capstan {

// Bytes, but for the names of tokens it is given, which have ids from 300 on. `merges` are pairs of
// letters that are one token where they meet; their ids follow.
class FakeTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kFirst = 300, kFirstMerge = 400;

  explicit FakeTokenizer(std::vector<std::string> specials = {}, std::string bos = "",
                         std::string eos = "", std::vector<std::string> merges = {})
      : specials_(std::move(specials)), merges_(std::move(merges)) {
    if (!bos.empty()) bos_ = id_of(bos);
    eos_ = id_of(eos).value_or(ByteTokenizer::kEos);
  }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    while (!text.empty()) {
      size_t used = 0;
      used = take(specials_, kFirst, text, ids);
      if (used == 0) used = take(merges_, kFirstMerge, text, ids);
      if (used == 0) ids.push_back(static_cast<unsigned char>(text[0])), used = 1;
      text.remove_prefix(used);
    }
    return ids;
  }
  // Names in full, so that tests can read it.
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id >= kFirstMerge)
        text += merges_[static_cast<size_t>(id - kFirstMerge)];
      else if (id >= kFirst)
        text += specials_[static_cast<size_t>(id - kFirst)];
      else if (id == ByteTokenizer::kEos)
        text += "<eos>";
      else
        text += static_cast<char>(id);
    }
    return text;
  }
  std::unique_ptr<TextStream> stream() const override { return nullptr; }
  std::optional<int32_t> id_of(std::string_view token) const override {
    for (size_t i = 0; i < specials_.size(); ++i)
      if (specials_[i] == token) return kFirst + static_cast<int32_t>(i);
    return std::nullopt;
  }
  int32_t vocab_size() const override { return 500; }
  std::optional<int32_t> bos() const override { return bos_; }
  int32_t eos() const override { return eos_; }
  std::string fingerprint() const override {
    std::string all = "fake";
    for (const auto* names : {&specials_, &merges_})
      for (const std::string& name : *names) all += "|" + name;
    return all;
  }

 private:
  static size_t take(const std::vector<std::string>& names, int32_t first, std::string_view text,
                     std::vector<int32_t>& ids) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (!text.starts_with(names[i])) continue;
      ids.push_back(first + static_cast<int32_t>(i));
      return names[i].size();
    }
    return 0;
  }

  std::vector<std::string> specials_, merges_;
  std::optional<int32_t> bos_;
  int32_t eos_ = 0;
};

}  // namespace capstan
