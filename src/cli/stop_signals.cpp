#include "cli/stop_signals.h"

#include <fmt/format.h>
#include <pthread.h>
#include <semaphore.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "base/log.h"
#include "cli/failure.h"
#include "comm/process_group.h"

namespace capstan::cli {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};

// What the handler says; made before it is installed, since it must not allocate.
struct Words {
  std::string first, again;
};

enum class Stakes { something, nothing, leaving };

struct State {
  State() { ::sem_init(&caught, 0, 0); }

  StopSource source;
  sem_t caught;  // posted by the first signal
  std::atomic<Stakes> stakes = Stakes::something;
  std::function<void()> clean_up;
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
  if (first) ::sem_post(&s.caught);
  const bool again = !first && time - s.first_at >= kSameRequest && !s.spoke_again.exchange(true);
  for (size_t i = 0; i < kSignals.size(); ++i)
    if (kSignals[i] == signal && (first || again) && s.speaks) {
      const std::string& text = first ? s.words[i].first : s.words[i].again;
      [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    }
  errno = error;
}

// Ends the process if there is nothing to save.
void leave_if_nothing(int signal) {
  Stakes nothing = Stakes::nothing;
  if (!g_state->stakes.compare_exchange_strong(nothing, Stakes::leaving)) return;
  if (g_state->clean_up) g_state->clean_up();
  log::clear_bar();
  const Failure failure = failure_of(std::make_exception_ptr(Stopped(signal)));
  if (g_state->speaks) tell(failure);
  ::_exit(failure.exit_code);
}

void* wait_and_leave(void*) {
  while (::sem_wait(&g_state->caught) != 0) {
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  leave_if_nothing(g_state->source.token().signal());
  return nullptr;
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

// The thread needs little, and memory may be limited. Without it the command ends as soon as it
// looks at its token.
NothingToSave::NothingToSave(std::function<void()> clean_up) {
  if (g_state == nullptr) return;
  g_state->clean_up = std::move(clean_up);
  g_state->stakes = Stakes::nothing;
  constexpr size_t kStack = size_t{256} << 10;
  pthread_attr_t attributes;
  pthread_t thread{};
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kStack);
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  [[maybe_unused]] const int error =
      ::pthread_create(&thread, &attributes, wait_and_leave, nullptr);
  ::pthread_attr_destroy(&attributes);
}

void NothingToSave::over() {
  if (g_state == nullptr) return;
  Stakes nothing = Stakes::nothing;
  if (!g_state->stakes.compare_exchange_strong(nothing, Stakes::something))
    while (g_state->stakes == Stakes::leaving) ::pause();
}

void NothingToSave::leave(int signal) {
  leave_if_nothing(signal);
  while (g_state->stakes == Stakes::leaving) ::pause();  // by the other thread
  throw Stopped(signal);
}

}  // namespace capstan::cli
