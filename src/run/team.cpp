#include "run/team.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <sstream>

#include "base/error.h"
#include "machine/name.h"

namespace capstan {
namespace {

// The lines of a text that the other one has not.
std::string lines_beside(const std::string& text, const std::string& other) {
  std::istringstream lines(text);
  std::vector<std::string> own;
  for (std::string line; std::getline(lines, line);)
    if (("\n" + other + "\n").find("\n" + line + "\n") == std::string::npos)
      own.push_back(line.substr(std::min(line.find_first_not_of(' '), line.size())));
  return own.empty() ? "nothing else" : fmt::format("{}", fmt::join(own, " · "));
}

int64_t share_of(int64_t bytes, int64_t ranks) {
  return bytes == INT64_MAX ? bytes : bytes / ranks;
}

}  // namespace

Team::Team(Communicator group)
    : group_(std::move(group)),
      talk_(group_.open_channel("run")),
      hosts_(talk_->exchange(host_name())) {}

int Team::machines() const {
  const auto each = std::find_if(hosts_.begin(), hosts_.end(),
                                 [&](const std::string& host) { return host != hosts_[0]; }) -
                    hosts_.begin();
  for (ptrdiff_t r = 0; r < std::ssize(hosts_); ++r)
    if (std::ssize(hosts_) % each != 0 ||
        hosts_[static_cast<size_t>(r)] != hosts_[static_cast<size_t>(r / each * each)])
      return 1;
  return static_cast<int>(std::ssize(hosts_) / each);
}

void Team::gather(std::span<std::byte> all, std::span<const std::byte> mine) {
  const auto start = std::chrono::steady_clock::now();
  talk_->gather(all, mine);
  waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string Team::share(std::string_view leaders) {
  return talk_->share(leaders);
}

void Team::require_same(const char* what, const std::string& mine, const char* advice) {
  const std::vector<std::string> all = talk_->exchange(mine);
  for (size_t r = 0; r < all.size(); ++r)
    require(all[r] == all[0], Fault::usage,
            "ranks differ in {}: rank 0 on {} has {}, rank {} on {} has {}; {}", what, hosts_[0],
            lines_beside(all[0], all[r]), r, hosts_[r], lines_beside(all[r], all[0]), advice);
}

void Team::require_agreement(const char* what, const Numbers& mine, const char* advice) {
  std::string text;
  for (const auto& [name, number] : mine) text += fmt::format("{} {}\n", number, name);
  const std::vector<std::string> all = talk_->exchange(text);
  std::map<std::string, std::pair<std::string, size_t>> known;  // by name, and of which rank
  for (size_t r = 0; r < all.size(); ++r) {
    std::istringstream lines(all[r]);
    for (std::string number, name; lines >> number && std::getline(lines >> std::ws, name);) {
      const auto& [value, first] = known.try_emplace(name, number, r).first->second;
      require(value == number, Fault::usage,
              "ranks differ in {}, in group {}: rank {} on {} has {}, rank {} on {} has {}; {}",
              what, name, first, hosts_[first], value, r, hosts_[r], number, advice);
    }
  }
}

Room Team::room_for(Device device) {
  Room least = capstan::room_for(device);
  const auto rooms = gather(least);
  const std::string& host = hosts_[static_cast<size_t>(group_.rank())];
  const auto devices = device == Device::cuda
                           ? talk_->exchange(host + " " + cuda_facts().value_or(CudaFacts()).bus_id)
                           : hosts_;
  for (size_t r = 0; r < rooms.size(); ++r) {
    const auto on_host = std::count(hosts_.begin(), hosts_.end(), hosts_[r]),
               on_device = std::count(devices.begin(), devices.end(), devices[r]);
    least.device = std::min(least.device, share_of(rooms[r].device, on_device));
    least.host = std::min(least.host, share_of(rooms[r].host, on_host));
  }
  return least;
}

}  // namespace capstan
