#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "comm/communicator.h"
#include "machine/memory.h"

namespace capstan {

// The ranks of a run, as one of them: what they tell each other besides the collectives of
// training. All ranks make the same calls in the same order. A run on one device is a team of one.
class Team {
 public:
  explicit Team(Communicator group);

  const Communicator& group() const { return group_; }
  int size() const { return group_.size(); }
  bool leads() const { return group_.rank() == 0; }                 // prints, and writes files
  const std::vector<std::string>& hosts() const { return hosts_; }  // by rank

  // Every rank's value, in rank order.
  template <class T>
  std::vector<T> gather(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all;
    const std::string_view bytes_of_mine(reinterpret_cast<const char*>(&mine), sizeof mine);
    for (const std::string& bytes : talk_->exchange(bytes_of_mine)) {
      T value;
      std::memcpy(&value, bytes.data(), sizeof value);
      all.push_back(value);
    }
    return all;
  }
  // The value of the rank that leads.
  template <class T>
  T of_leader(const T& mine) {
    return gather(mine)[0];
  }
  std::string share(std::string_view leaders) { return talk_->share(leaders); }

  // Throws Fault::usage unless all ranks have the same, with the value of the leader and the first
  // that differs.
  void require_same(const char* what, const std::string& mine, const char* advice);

  // What this rank may use of its machine's memory: the least share of any, so that all ranks
  // decide alike. Ranks on one machine share it.
  Room room_for(Device device);

 private:
  Communicator group_;
  std::unique_ptr<HostChannel> talk_;
  std::vector<std::string> hosts_;
};

}  // namespace capstan
