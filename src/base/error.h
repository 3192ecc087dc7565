#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace capstan {

// Who must act on an error. The value is the exit code of the program.
enum class Fault {
  bug = 1,           // us: a broken contract inside the program
  usage = 2,         // the user: command line or recipe
  does_not_fit = 3,  // the user: the run needs more memory than there is
  file = 4,          // the user: a missing, damaged or unwritable file
  device = 5,        // the administrator: driver, device or library
  peer = 6,          // the administrator: another rank, or a server, is lost or hangs
};

// The exception of the program. The message says what was expected, what was found, where, and what
// to do; it is printed unchanged.
class Error : public std::runtime_error {
 public:
  Error(Fault fault, const std::string& message) : std::runtime_error(message), fault_(fault) {}
  Fault fault() const { return fault_; }
  int exit_code() const { return static_cast<int>(fault_); }

 private:
  Fault fault_;
};

template <class... Args>
[[noreturn]] void fail(Fault fault, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fault, fmt::format(format, std::forward<Args>(args)...));
}

// Throws unless `ok`. Formats the arguments only then.
template <class... Args>
void require(bool ok, Fault fault, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) [[unlikely]]
    fail(fault, format, std::forward<Args>(args)...);
}

}  // namespace capstan
