#pragma once

#include <cuda_runtime.h>

#include <array>
#include <memory>

#include "tensor/cuda/check.h"
#include "tensor/lane.h"

namespace capstan::cuda {

// Waiting for an event that was never recorded returns at once.
class Event {
 public:
  explicit Event(bool timed) {
    check(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming),
          "make an event");
  }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// The streams of a queue, made when they are first used.
class Lanes {
 public:
  Lanes() { current_ = of(Lane::compute); }
  // Waits for all of them: memory of their work may be freed afterwards.
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  cudaStream_t current() const { return current_; }
  void use(Lane lane) { current_ = of(lane); }

 private:
  cudaStream_t of(Lane lane);

  std::array<cudaStream_t, kLanes> streams_{};
  cudaStream_t current_ = nullptr;
};

}  // namespace capstan::cuda
