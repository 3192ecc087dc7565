#pragma once

#include <cstdint>
#include <memory>

namespace capstan {

namespace cuda {
class Event;  // tensor/cuda/lanes.h
}

// The lanes of a queue. Work of one lane is done in order. Lanes run beside each other; events say
// what must be complete before other work begins.
enum class Lane : uint8_t {
  compute,  // where ops go, unless they are told otherwise
  comm,     // collectives
  copy,     // transfers between host and device
};
inline constexpr int kLanes = 3;

// A point in the work of a lane: Queue::record and Queue::wait. A handle: copies are the same
// event. Before it is recorded it lies in the past, as it always does on a CPU.
class Event {
 public:
  // The host waits until the device has reached it.
  void wait() const;
  // Whether the device has.
  bool reached() const;

 private:
  friend class Queue;
  std::shared_ptr<cuda::Event> cuda_;  // made when it is first recorded
  double time_ = 0;                    // on sim
};

}  // namespace capstan
