#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
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
  // How many machines they are on, if the ranks of each are neighbours and as many; else 1.
  int machines() const;

  // Waits until all ranks are here, for example after work that one of them did alone.
  void sync() { gather(0); }

  // Every rank's value, in rank order.
  template <class T>
  std::vector<T> gather(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>);
    std::vector<T> all(static_cast<size_t>(size()));
    gather(std::as_writable_bytes(std::span(all)), std::as_bytes(std::span(&mine, 1)));
    return all;
  }
  // The value of the rank that leads.
  template <class T>
  T of_leader(const T& mine) {
    return gather(mine)[0];
  }
  std::string share(std::string_view leaders);
  std::vector<std::string> exchange(const std::string& mine) { return talk_->exchange(mine); }
  double waited() const { return waited_; }  // seconds in these calls

  // Throws Fault::usage unless all ranks have the same, with the value of the leader and the first
  // that differs; of several lines, those that differ.
  void require_same(const char* what, const std::string& mine, const char* advice);

  // The same for numbers by name, of which ranks may have different ones: those that have a name
  // in common must have the same number.
  using Numbers = std::vector<std::pair<std::string, uint64_t>>;
  void require_agreement(const char* what, const Numbers& mine, const char* advice);

  // What this rank may use of its device's memory and its machine's: the least share of any, so
  // that all ranks decide alike. Ranks on one device share it.
  Room room_for(Device device);

 private:
  void gather(std::span<std::byte> all, std::span<const std::byte> mine);

  Communicator group_;
  std::unique_ptr<HostChannel> talk_;
  std::vector<std::string> hosts_;
  double waited_ = 0;
};

}  // namespace capstan
