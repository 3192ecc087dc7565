#pragma once

namespace capstan {

// While one lives, SIGINT, SIGTERM, SIGUSR1 (as batch systems send it ahead of a job's end) and
// SIGHUP do not end the program: they are noted, and the loop ends the run where it is safe. A
// second signal changes nothing. What was ignored before stays so (nohup). One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();  // signals do again what they did before
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The first signal that came, or 0.
  int caught() const;
  static const char* name_of(int signal);  // "SIGINT"
};

}  // namespace capstan
