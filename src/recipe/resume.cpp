#include "recipe/resume.h"

#include "recipe/scalars.h"

namespace capstan {

std::optional<Resume> Resume::parse(std::string_view text) {
  if (const auto mode = value_named<Mode>(text)) return Resume{.mode = *mode};
  if (const auto truth = truth_of(text)) return Resume{.mode = *truth ? Mode::newest : Mode::off};
  return Resume{.mode = Mode::folder, .folder = std::string(text)};
}

std::string Resume::text() const {
  return mode == Mode::folder ? folder : std::string(name_of(mode));
}

}  // namespace capstan
