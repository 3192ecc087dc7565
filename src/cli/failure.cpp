#include "cli/failure.h"

#include <fmt/format.h>

#include <cstdio>
#include <new>
#include <system_error>

#include "base/error.h"
#include "base/stop_token.h"
#include "base/visible.h"

namespace capstan::cli {

namespace {

Failure failed(Fault fault, const std::string& what) {
  return {.exit_code = static_cast<int>(fault),
          .message = (fault == Fault::bug ? "bug in capstan: " : "error: ") + what,
          .what = what,
          .consequence = fault == Fault::peer};
}

}  // namespace

Failure failure_of(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return failed(e.fault(), e.what());
  } catch (const Stopped& e) {
    return {.exit_code = 128 + e.signal(),
            .message = fmt::format("{}; there was nothing to save", e.what()),
            .what = e.what()};
  } catch (const std::bad_alloc&) {
    return failed(Fault::does_not_fit, "the system is out of memory");
  } catch (
      const std::system_error& e) {  // from std::filesystem, or from writing to a closed stdout
    if (std::ferror(stdout) != 0 && e.code() == std::errc::broken_pipe)
      return {.exit_code = 0, .message = {}, .what = {}};  // its reader has read enough
    if (std::ferror(stdout) != 0)
      return failed(Fault::file, "standard output: cannot write: " + e.code().message());
    return failed(Fault::file, e.what());
  } catch (const std::exception& e) {
    return failed(Fault::bug, e.what());
  }
}

void tell(const Failure& failure, std::string_view who) {
  if (failure.message.empty()) return;
  std::string message = fmt::format("{}{}", who, failure.message);
  for (size_t i = 0; (i = message.find('\n', i)) != std::string::npos; i += 8)
    message.insert(i + 1, "       ");
  // Not fmt::print, which throws on a failed write: nobody is left to catch it.
  std::fputs(fmt::format("{}\n", visible(message)).c_str(), stderr);
}

}  // namespace capstan::cli
