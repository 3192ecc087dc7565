#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "data/tokenizer/unicode.h"

namespace capstan {

// What tools/golden/make_tokens.py wrote.
inline std::filesystem::path golden_tokens() {
  return CAPSTAN_SOURCE_DIR "/tests/golden_tokens";
}

// Tokenizers and texts that are too large to be part of the project; perhaps not there.
inline std::filesystem::path shared_data() {
  return CAPSTAN_SOURCE_DIR "/../shared/data";
}

// Whether the program was built with ICU, which most tokenizers need.
inline bool has_unicode() {
  try {
    unicode::require_available("a test", "here");
    return true;
  } catch (const Error&) {
    return false;
  }
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
  return parse_json(read_text(path), path.string());
}

inline std::vector<std::string> golden_texts() {
  return read_json(golden_tokens() / "texts.json").get<std::vector<std::string>>();
}

}  // namespace capstan
