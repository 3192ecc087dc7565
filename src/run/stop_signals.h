#pragma once

namespace capstan {

// While an instance lives, SIGINT, SIGTERM, SIGUSR1 (which batch systems send before the end of a
// job) and SIGHUP do not kill the process: they are recorded, and the loop ends the run at a safe
// point. A second signal has no effect. Signals ignored before stay ignored (nohup). Threads may
// have one each: the first catches signals, the last ends that.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();  // the last one restores the previous handlers
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The first signal received, or 0.
  int caught() const;
  static const char* name_of(int signal);  // "SIGINT"
};

}  // namespace capstan
