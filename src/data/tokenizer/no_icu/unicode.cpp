// Replaces icu/unicode.cpp on a machine without ICU.
#include "data/tokenizer/unicode.h"

#include "base/error.h"

namespace capstan::unicode {
namespace {

[[noreturn]] void missing() {
  fail(Fault::bug, "this program was built without ICU");
}

}  // namespace

struct Pattern::Compiled {};

void require_available(std::string_view what, std::string_view where) {
  fail(Fault::file,
       "{}: {} needs ICU, but this program was built without it; install the package libicu-dev "
       "and build again",
       where, what);
}

std::string version() {
  return "";
}

const uint8_t* classes() {
  missing();
}

std::string normalized(Form, std::string_view) {
  missing();
}

std::string lowercased(std::string_view) {
  missing();
}

Pattern::Pattern(std::string_view, std::string where) {
  require_available("a regular expression", where);
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

std::vector<Range> Pattern::matches(std::string_view) const {
  missing();
}

}  // namespace capstan::unicode
