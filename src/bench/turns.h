#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// Measurements that other programs may disturb: those that they did are taken again, in turns.
namespace capstan {

// Calls `begin` before each measurement, with its number (from 0) and the total.
using BenchProgress = std::function<void(std::string_view what, int64_t number, int64_t of)>;

struct Measurement {
  std::string name;
  // Measures, and returns what keeps the result: it replaces the one before.
  std::function<std::function<void()>()> take;
  double others = 0;  // processors that other programs had meanwhile (bench/other_load.h)
};

// More than this changes what is measured: a part of one processor.
inline constexpr double kDisturbing = 0.15;

class Turns {
 public:
  // Calls a measurement and returns how many processors other programs had meanwhile.
  using Watch = std::function<double(const std::function<void()>& measure)>;
  static Watch watch_processors();

  // `most`: turns of a measurement. After so many `seconds` none begins but the first one.
  Turns(BenchProgress begin, Watch watch, int most, double seconds);

  // Of `expected` measurements in all, if others follow.
  void expect(int64_t more) { of_ += more; }
  // Takes all in order, then those that were disturbed. Keeps of each what was disturbed least.
  void run(std::vector<Measurement>& all);
  double seconds_left() const;  // below 0: too late

 private:
  void take(Measurement& m, const std::string& name, bool again);

  BenchProgress begin_;
  Watch watch_;
  int most_;
  double seconds_;
  std::chrono::steady_clock::time_point start_;
  int64_t number_ = 0, of_ = 0;
};

}  // namespace capstan
