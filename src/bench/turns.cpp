#include "bench/turns.h"

#include <utility>

#include "bench/other_load.h"

namespace capstan {

Turns::Watch Turns::watch_processors() {
  return [](const std::function<void()>& measure) {
    const OtherLoad load;
    measure();
    return load.processors().value_or(0);
  };
}

Turns::Turns(BenchProgress begin, Watch watch, int most, double seconds)
    : begin_(std::move(begin)),
      watch_(std::move(watch)),
      most_(most),
      seconds_(seconds),
      start_(std::chrono::steady_clock::now()) {}

double Turns::seconds_left() const {
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start_;
  return seconds_ - spent.count();
}

void Turns::take(Measurement& m, const std::string& name, bool again) {
  if (begin_) begin_(name, number_, of_);
  ++number_;
  std::function<void()> keep;
  const double others = watch_([&] { keep = m.take(); });
  if (again && others >= m.others) return;
  m.others = others;
  keep();
}

void Turns::run(std::vector<Measurement>& all) {
  for (Measurement& m : all) take(m, m.name, false);
  for (int turn = 1; turn < most_; ++turn)
    for (Measurement& m : all) {
      if (m.others <= kDisturbing) continue;
      if (seconds_left() < 0) return;
      ++of_;
      take(m, m.name + ", again", true);
    }
}

}  // namespace capstan
