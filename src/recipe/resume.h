#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/names.h"

namespace capstan {

// Which checkpoint a run resumes.
struct Resume {
  enum class Mode : uint8_t {
    off,
    newest,         // of out_dir; it is an error if there is none
    newest_if_any,  // of out_dir; starts anew if there is none
    folder,
  };
  Mode mode = Mode::off;
  std::string folder = {};  // of Mode::folder

  static std::optional<Resume> parse(std::string_view text);  // every text is one
  static std::vector<std::string> choices() { return {}; }
  std::string text() const;

  bool operator==(const Resume&) const = default;
};

template <>
struct NameTable<Resume::Mode> {
  static constexpr Named<Resume::Mode> rows[] = {{Resume::Mode::off, "false"},
                                                 {Resume::Mode::newest, "true"},
                                                 {Resume::Mode::newest_if_any, "auto"},
                                                 {Resume::Mode::off, "null"},
                                                 {Resume::Mode::off, ""}};
};

}  // namespace capstan
