#pragma once

namespace capstan {

// While one lives, SIGINT and SIGTERM do not end the program: they are noted, and the loop ends the
// run where it is safe. A second signal changes nothing. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();  // signals do again what they did before
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The first signal that came, or 0.
  int caught() const;
};

}  // namespace capstan
