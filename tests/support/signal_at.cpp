// signal_at SIGNAL CALL FROM PROGRAM ARGUMENT…: runs the program and sends it a signal as it begins
// its CALL-th system call (of all of its threads), counted after FROM: `handlers`, when it has
// handlers for signals; or else a text, when it has written that. CALL 0 sends none. Ends as the
// program does. 77: a process may not trace another one here.
//
// $SIGNAL_AT_RANK: under mpirun, only this rank is traced. $SIGNAL_AT_COUNT: a file, which gets the
// number of system calls after FROM and the number of the one that met the signal, or -1.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

namespace {

constexpr int kCannotTrace = 77;

pid_t g_child = 0;

void pass_on(int signal) {
  ::kill(g_child, signal);
}

struct Options {
  int signal = 0;
  long call = 0;
  std::string from;
};

// The program under the tracer.
class Traced {
 public:
  Traced(pid_t child, Options options) : child_(child), o_(std::move(options)) {}

  // Until the program has ended; returns its wait status.
  int follow() {
    int ended = 0;
    for (;;) {
      int status = 0;
      const pid_t thread = ::waitpid(-1, &status, __WALL);
      if (thread < 0 && errno == EINTR) continue;
      if (thread < 0) return ended;  // all threads are gone
      if (!WIFSTOPPED(status)) {
        if (thread == child_) ended = status;
        continue;
      }
      const int signal = WSTOPSIG(status);
      int deliver = 0;
      if (signal == (SIGTRAP | 0x80))
        at_call(thread);
      else if (status >> 16 == 0 && !(known_.insert(thread).second && signal == SIGSTOP))
        deliver = signal;  // not the stop with which a new thread begins
      // What comes after the signal need not be counted.
      ::ptrace(met_ < 0 ? PTRACE_SYSCALL : PTRACE_CONT, thread, nullptr, deliver);
    }
  }

  long calls() const { return calls_; }
  long met() const { return met_; }

 private:
  void at_call(pid_t thread) {
    known_.insert(thread);
    __ptrace_syscall_info info{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) <= 0 ||
        info.op != PTRACE_SYSCALL_INFO_ENTRY)
      return;
    if (!counting_) {
      counting_ = is_from(thread, info);
    } else if (++calls_ == o_.call) {
      met_ = static_cast<long>(info.entry.nr);
      ::kill(child_, o_.signal);
    }
  }

  bool is_from(pid_t thread, const __ptrace_syscall_info& info) const {
    if (o_.from == "handlers")
      return info.entry.nr == SYS_rt_sigaction && info.entry.args[0] == SIGHUP &&
             info.entry.args[1] != 0;
    if (info.entry.nr != SYS_write) return false;
    char text[4096];
    const size_t size = std::min<size_t>(sizeof text, info.entry.args[2]);
    iovec here{text, size}, there{reinterpret_cast<void*>(info.entry.args[1]), size};
    const ssize_t n = ::process_vm_readv(thread, &here, 1, &there, 1, 0);
    return n > 0 &&
           std::string_view(text, static_cast<size_t>(n)).find(o_.from) != std::string_view::npos;
  }

  pid_t child_;
  Options o_;
  std::set<pid_t> known_;
  bool counting_ = false;
  long calls_ = 0, met_ = -1;
};

[[noreturn]] void become(char** command) {
  ::execvp(command[0], command);
  perror(command[0]);
  ::_exit(127);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const char* wanted = getenv("SIGNAL_AT_RANK");
  const char* rank = getenv("OMPI_COMM_WORLD_RANK");
  if (wanted != nullptr && rank != nullptr && strcmp(wanted, rank) != 0) become(argv + 4);
  g_child = ::fork();
  if (g_child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(kCannotTrace);
    ::raise(SIGSTOP);
    become(argv + 4);
  }
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) ::signal(signal, pass_on);
  int status = 0;
  ::waitpid(g_child, &status, 0);
  if (!WIFSTOPPED(status)) return kCannotTrace;
  ::ptrace(PTRACE_SETOPTIONS, g_child, nullptr,
           PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL);
  ::ptrace(PTRACE_SYSCALL, g_child, nullptr, nullptr);
  Traced traced(g_child, {atoi(argv[1]), atol(argv[2]), argv[3]});
  status = traced.follow();
  if (const char* path = getenv("SIGNAL_AT_COUNT"))
    if (FILE* file = fopen(path, "w")) {
      fprintf(file, "%ld %ld\n", traced.calls(), traced.met());
      fclose(file);
    }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  ::signal(WTERMSIG(status), SIG_DFL);
  ::raise(WTERMSIG(status));
  return 128 + WTERMSIG(status);
}
