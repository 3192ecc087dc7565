#include "comm/presence.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace capstan {
namespace {

// Other users' processes may have any name.
std::string name_of(const std::string& job, std::string_view what) {
  return fmt::format("capstan/{}/{}/{}", ::getuid(), job, what);
}

struct Address {
  sockaddr_un socket{};
  socklen_t size = 0;
};
Address address_of(const std::string& name) {
  Address a;
  a.socket.sun_family = AF_UNIX;
  // The first byte of an abstract name is zero, and its length counts.
  const size_t length = std::min(name.size(), sizeof a.socket.sun_path - 1);
  std::memcpy(a.socket.sun_path + 1, name.data(), length);
  a.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return a;
}

int new_socket() {
  return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

// Below 0: the name is taken.
int listening_as(const std::string& name) {
  const int fd = new_socket();
  const Address a = address_of(name);
  if (fd < 0 || (::bind(fd, reinterpret_cast<const sockaddr*>(&a.socket), a.size) == 0 &&
                 ::listen(fd, SOMAXCONN) == 0))
    return fd;
  ::close(fd);
  return -1;
}

}  // namespace

std::optional<std::string> launched_job() {
  if (const char* job = std::getenv("PMIX_NAMESPACE")) return job;
  if (const char* job = std::getenv("PMI_JOBID")) return job;
  const char *job = std::getenv("SLURM_JOB_ID"), *step = std::getenv("SLURM_STEP_ID");
  if (job == nullptr || step == nullptr) return std::nullopt;
  return fmt::format("slurm {}.{}", job, step);
}

std::optional<int> launched_here() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
    if (const char* text = std::getenv(name))
      if (const int n = std::atoi(text); n > 0) return n;
  return std::nullopt;
}

Presence::Presence(std::string job, const Ranks& own)
    : job_(std::move(job)),
      ranks_(own),
      own_(listening_as(name_of(job_, std::to_string(own.rank)))) {}

Presence::~Presence() {
  for (const int fd : {own_, first_})
    if (fd >= 0) ::close(fd);
}

void Presence::answer() {
  for (int fd = 0; own_ >= 0 && (fd = ::accept4(own_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
    const char here = 1;
    [[maybe_unused]] const ssize_t sent = ::send(fd, &here, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    ::close(fd);
  }
}

int Presence::connected_to(int rank) const {
  const int fd = new_socket();
  const Address a = address_of(name_of(job_, std::to_string(rank)));
  if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&a.socket), a.size) == 0) return fd;
  ::close(fd);
  return -1;
}

std::vector<Presence::Found> Presence::others() {
  using Clock = std::chrono::steady_clock;
  std::vector<Found> found;
  std::vector<pollfd> sockets = {{own_, POLLIN, 0}};  // then one for each that was found
  for (int r = 0; r < ranks_.size; ++r) {
    const int fd = r == ranks_.rank ? -1 : connected_to(r);
    if (fd < 0) continue;
    ucred who{};
    socklen_t size = sizeof who;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.uid != ::getuid()) {
      ::close(fd);
      continue;
    }
    found.push_back({.rank = r, .process = who.pid});
    sockets.push_back({fd, POLLIN, 0});
  }
  const auto deadline = Clock::now() + std::chrono::milliseconds(300);
  for (size_t left = found.size(); left > 0;) {
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (rest <= 0 || ::poll(sockets.data(), sockets.size(), static_cast<int>(rest)) <= 0) break;
    answer();  // they may ask at the same time
    for (size_t i = 0; i < found.size(); ++i) {
      pollfd& socket = sockets[i + 1];
      char byte = 0;
      if (socket.fd < 0 || socket.revents == 0) continue;
      found[i].answers = ::recv(socket.fd, &byte, 1, MSG_DONTWAIT) == 1;
      ::close(std::exchange(socket.fd, -1));
      --left;
    }
  }
  for (size_t i = 1; i < sockets.size(); ++i)
    if (sockets[i].fd >= 0) ::close(sockets[i].fd);
  return found;
}

bool Presence::speaks_first() {
  if (first_ < 0) first_ = listening_as(name_of(job_, "speaker"));
  return first_ >= 0 || own_ < 0;
}

}  // namespace capstan
