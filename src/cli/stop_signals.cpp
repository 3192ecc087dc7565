#include "cli/stop_signals.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>

#include "comm/process_group.h"

namespace capstan::cli {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};

// What the handler says; made before it is installed, since it must not allocate.
struct Words {
  std::string first, again;
};

struct State {
  StopSource source;
  std::array<Words, kSignals.size()> words;
  std::array<struct sigaction, kSignals.size()> before = {};
  std::atomic<bool> speaks = false;
  std::atomic<bool> spoke_again = false;
  std::atomic<int64_t> first_at = 0;  // in ns of the monotonic clock
};

// The handler's. Made by main(), and never freed: signals may come until the process is gone.
State* g_state = nullptr;

int64_t now() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// Only what is safe in a handler. One write, so that no other line is cut in two.
void note(int signal) {
  const int error = errno;
  constexpr int64_t kSameRequest = 1'000'000'000;  // launchers send two signals at once
  State& s = *g_state;
  const int64_t time = now();
  int64_t none = 0;
  s.first_at.compare_exchange_strong(none, time);
  const bool first = s.source.request(signal);
  const bool again = !first && time - s.first_at >= kSameRequest && !s.spoke_again.exchange(true);
  for (size_t i = 0; i < kSignals.size(); ++i)
    if (kSignals[i] == signal && (first || again) && s.speaks) {
      const std::string& text = first ? s.words[i].first : s.words[i].again;
      [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    }
  errno = error;
}

}  // namespace

StopSignals::StopSignals() {
  g_state = new State;
  g_state->speaks = launched_ranks().value_or(Ranks()).rank == 0;
  const char* begin = ::isatty(STDERR_FILENO) == 1 ? "\r\x1b[2K" : "";  // over a progress bar
  for (size_t i = 0; i < kSignals.size(); ++i) {
    const std::string name = name_of_signal(kSignals[i]);
    g_state->words[i] = {
        fmt::format("{}{}: stopping ...\n", begin, name),
        fmt::format("{}{}: still stopping; kill -KILL {} ends it at once, and loses what is not "
                    "saved yet\n",
                    begin, name, ::getpid())};
  }
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction& before = g_state->before[i];
    ::sigaction(kSignals[i], nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  g_state->speaks = false;
}

StopToken StopSignals::token() const {
  return g_state->source.token();
}

void StopSignals::let_go() {
  for (size_t i = 0; i < kSignals.size(); ++i)
    ::sigaction(kSignals[i], &g_state->before[i], nullptr);
  if (const int caught = token().signal(); caught != 0) std::raise(caught);
}

}  // namespace capstan::cli
