#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

namespace capstan {

// A terminal of so many columns. Its other end is for the program under test.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) {
    winsize size{};
    size.ws_col = columns;
    EXPECT_EQ(openpty(&here_, &there_, nullptr, nullptr, &size), 0);
  }
  ~Terminal() {
    close_there();
    close(here_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  int there() const { return there_; }
  void close_there() {
    if (there_ >= 0) close(there_);
    there_ = -1;
  }

  // What was written since the last call. The kernel hands it over in its own time: what stays
  // quiet for `quiet_ms` is all.
  std::string text(int first_ms = 2000, int quiet_ms = 50) const {
    std::string s;
    pollfd ready{here_, POLLIN, 0};
    while (poll(&ready, 1, s.empty() ? first_ms : quiet_ms) > 0) {
      std::array<char, 4096> piece{};
      const ssize_t n = read(here_, piece.data(), piece.size());
      if (n <= 0) break;
      s.append(piece.data(), static_cast<size_t>(n));
    }
    return s;
  }

 private:
  int here_ = -1, there_ = -1;
};

// Stands for a stream of this process while it lives.
class Redirected {
 public:
  Redirected(int stream, int to) : stream_(stream), saved_(dup(stream)) { dup2(to, stream); }
  ~Redirected() {
    dup2(saved_, stream_);
    close(saved_);
  }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;

 private:
  int stream_, saved_;
};

inline constexpr const char* kErasedLine = "\r\x1b[2K";

// The lines that a person sees in the end: what was erased is gone.
inline std::vector<std::string> lines_on_screen(const std::string& written) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < written.size();) {
    const size_t end = std::min(written.find("\r\n", at), written.size());
    std::string line = written.substr(at, end - at);
    if (const size_t erased = line.rfind(kErasedLine); erased != std::string::npos)
      line = line.substr(erased + 5);
    lines.push_back(line);
    at = end + 2;
  }
  return lines;
}

}  // namespace capstan
