#pragma once

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

}  // namespace capstan::cli
