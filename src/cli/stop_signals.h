#pragma once

#include <functional>

#include "base/stop_token.h"

namespace capstan::cli {

// What SIGINT, SIGTERM, SIGUSR1 (which batch systems send before the end of a job) and SIGHUP do to
// this process. There is one, which main() makes in its first line. Signals that were ignored stay
// ignored (nohup).
//
// A signal asks the command to stop, by its token, and is answered on stderr at once ("SIGINT:
// stopping ..."), by the first rank alone. A further one changes nothing: it is answered, once, if
// it comes a second later or more. After the last line of main() signals have no effect: the exit
// code stands.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  StopToken token() const;
  // For commands that do not look at a token: signals do again what they did before main(), now if
  // one has come already.
  void let_go();
};

// While it lives, this process has nothing to save, and may take long where it cannot look at a
// token: in a tokenizer's library, say, or while it waits for another rank. If the command has not
// ended 0.7 s after a signal, the process ends all the same, with the signal's exit code. There is
// at most one.
class NothingToSave {
 public:
  // `clean_up` is called then, on another thread.
  explicit NothingToSave(std::function<void()> clean_up = {});
  ~NothingToSave() { over(); }
  NothingToSave(const NothingToSave&) = delete;
  NothingToSave& operator=(const NothingToSave&) = delete;

  // From here on there may be something. Does not return if the process is about to end. May be
  // called again, by any thread.
  void over();
  // Ends the process now, as after 0.7 s: of several ranks, without waiting for the others.
  [[noreturn]] void leave(int signal);
};

}  // namespace capstan::cli
