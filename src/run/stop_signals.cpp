#include "run/stop_signals.h"

#include <array>
#include <csignal>
#include <mutex>

namespace capstan {
namespace {

struct Noted {
  int signal;
  const char* name;
};
constexpr std::array<Noted, 4> kNoted = {
    {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGUSR1, "SIGUSR1"}, {SIGHUP, "SIGHUP"}}};

volatile std::sig_atomic_t g_caught = 0;
std::array<struct sigaction, kNoted.size()> g_before;
std::mutex g_mutex;  // for the installation of handlers
int g_instances = 0;

void note(int signal) {
  if (g_caught == 0) g_caught = signal;
}

}  // namespace

StopSignals::StopSignals() {
  const std::lock_guard lock(g_mutex);
  if (g_instances++ > 0) return;
  g_caught = 0;
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kNoted.size(); ++i) {
    sigaction(kNoted[i].signal, nullptr, &g_before[i]);
    if (g_before[i].sa_handler != SIG_IGN) sigaction(kNoted[i].signal, &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  const std::lock_guard lock(g_mutex);
  if (--g_instances > 0) return;
  for (size_t i = 0; i < kNoted.size(); ++i) sigaction(kNoted[i].signal, &g_before[i], nullptr);
}

int StopSignals::caught() const {
  return g_caught;
}

const char* StopSignals::name_of(int signal) {
  for (const Noted& n : kNoted)
    if (n.signal == signal) return n.name;
  return "a signal";
}

}  // namespace capstan
