#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace capstan {

class Queue;
namespace cuda {
class Event;  // tensor/cuda/lanes.h
}

// The lanes of a queue. Work of one lane is done in order. Lanes run beside each other; events say
// what must be complete before other work begins.
enum class Lane : uint8_t {
  compute,  // where ops go, unless they are told otherwise
  comm,     // collectives of the ranks that share the data
  copy,     // transfers between host and device
  tensor,   // collectives of the ranks that share each layer …
  context,  // … and of those that share each sequence
  // To and from the stages of a pipeline: each direction on its own, since a message is complete
  // only when the other stage takes it.
  send_down,
  receive_down,
  send_up,
  receive_up,
};
inline constexpr int kLanes = 9;

// A point in the work of a lane: Queue::record and Queue::wait. A handle: copies are the same
// event. Before it is recorded it lies in the past, as it always does on a CPU.
class Event {
 public:
  Event() = default;
  // One whose time can be asked for; it costs the device a little more.
  static Event timed() {
    Event e;
    e.timed_ = true;
    return e;
  }
  // Seconds between two timed events of a GPU, both reached.
  friend double seconds_between(const Event& first, const Event& second);

  // The host waits until the device has reached it.
  void wait() const;
  // Whether the device has.
  bool reached() const;

 private:
  friend class Queue;
  std::shared_ptr<cuda::Event> cuda_;  // made when it is first recorded
  double time_ = 0;                    // on sim
  bool timed_ = false;
};

// The time that a GPU's lane spends between pairs of points, such as around a wait: the host, which
// is ahead of it, does not see that. For the queue's thread.
class LaneTimer {
 public:
  void begin(Queue& q);
  void end(Queue& q);
  // Of all pairs; waits until the device has passed them.
  double seconds();

 private:
  static constexpr size_t kMost = 1024;
  void add(size_t pair);

  std::vector<std::array<Event, 2>> pairs_;
  size_t first_ = 0, count_ = 0;  // of those that are not added yet
  double seconds_ = 0;
};

}  // namespace capstan
