#pragma once

#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace capstan {

// "SIGINT"; "signal 34" for one without a name here.
inline std::string name_of_signal(int signal) {
  constexpr std::pair<int, const char*> kNames[] = {
      {SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGUSR1, "SIGUSR1"}, {SIGHUP, "SIGHUP"}};
  for (const auto& [number, name] : kNames)
    if (number == signal) return name;
  return fmt::format("signal {}", signal);
}

// Thrown by work that ended early because its StopToken asked for that. What was complete before
// stays; nothing half-made is left.
class Stopped : public std::exception {
 public:
  explicit Stopped(int signal)
      : signal_(signal), what_("interrupted by " + name_of_signal(signal)) {}
  int signal() const { return signal_; }
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  int signal_;
  std::string what_;
};

// Tells long work whether it should end early, and by which signal. It is passed down to that work,
// which asks from time to time: asking is a load of an atomic. Copies share one answer, which
// changes once, from "go on" to a signal. Thread safe. By default nobody asks.
class StopToken {
 public:
  StopToken() = default;

  int signal() const { return signal_ ? signal_->load(std::memory_order_relaxed) : 0; }  // or 0
  bool requested() const { return signal() != 0; }
  // Throws Stopped if it is requested. Only where all ranks may end at different places: before
  // there is anything to save.
  void check() const {
    if (const int caught = signal(); caught != 0) throw Stopped(caught);
  }

 private:
  friend class StopSource;
  explicit StopToken(std::shared_ptr<const std::atomic<int>> signal) : signal_(std::move(signal)) {}

  std::shared_ptr<const std::atomic<int>> signal_;
};

// Asks for it: the command line on a signal, another program when it likes. Tokens may outlive it.
class StopSource {
 public:
  StopToken token() const { return StopToken(signal_); }
  // The first request counts; returns whether this was it. Thread safe, and safe in the handler of
  // a signal.
  bool request(int signal) noexcept {
    static_assert(std::atomic<int>::is_always_lock_free);
    int none = 0;
    return signal_->compare_exchange_strong(none, signal);
  }

 private:
  std::shared_ptr<std::atomic<int>> signal_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace capstan
