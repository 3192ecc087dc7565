#include "base/terminal.h"

#include <unistd.h>

#include "base/text.h"

namespace capstan {
namespace {

// A terminal without cursor movements, such as an editor's shell window.
bool is_dumb() {
  return environment_value("TERM") == "dumb";
}

}  // namespace

bool can_redraw() {
  return ::isatty(STDERR_FILENO) == 1 && !is_dumb();
}

bool may_colour() {
  return !is_dumb() && environment_value("NO_COLOR").empty();
}

}  // namespace capstan
