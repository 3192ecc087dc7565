#include "train/stop_signals.h"

#include <csignal>

namespace capstan {
namespace {

volatile std::sig_atomic_t g_caught = 0;
struct sigaction g_interrupt_before, g_terminate_before;

void note(int signal) {
  if (g_caught == 0) g_caught = signal;
}

}  // namespace

StopSignals::StopSignals() {
  g_caught = 0;
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &g_interrupt_before);
  sigaction(SIGTERM, &action, &g_terminate_before);
}

StopSignals::~StopSignals() {
  sigaction(SIGINT, &g_interrupt_before, nullptr);
  sigaction(SIGTERM, &g_terminate_before, nullptr);
}

int StopSignals::caught() const {
  return g_caught;
}

}  // namespace capstan
