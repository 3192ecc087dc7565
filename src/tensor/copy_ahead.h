#pragma once

#include <memory>

#include "tensor/queue.h"

namespace capstan {

namespace cuda {
class CopyLane;  // a stream beside the queue's: tensor/cuda/copy_lane.cpp
}

// Brings contents for one tensor from the host to the device while the device works with those
// before. The host writes them into pinned memory; they go from there to a second place on the
// device, beside the queue's work; and when the queue comes to them, they are moved into the
// tensor. So the work finds them at one address, and waits neither for the host nor for the bus.
//
//   write to ahead.room();
//   ahead.send(n);
//   …                        whatever is put on the queue meanwhile has the contents before
//   ahead.receive();
//
// Belongs to the queue's thread.
class CopyAhead {
 public:
  // For a contiguous tensor of q.arena(). Where the queue has pinned host memory, or records it,
  // takes as much as the tensor has from q.arena() and twice that from q.host(), outside of a
  // phase. Elsewhere takes nothing. The queue must outlive this, and the arenas too.
  CopyAhead(Queue& q, const Tensor& to, Category category, const char* name);

  // Whether there is anything to copy ahead with: on cuda, with pinned memory. The rest is for this
  // case alone.
  bool active() const { return lane_ != nullptr; }

  // Host memory of the tensor's type and shape, to be written. It is one of two, by turns: waits
  // until what was sent from it last has been copied, which begins when the queue has moved what
  // was sent before that. So the host is at most two contents ahead of the device.
  Tensor room();
  // Begins to copy the first `rows` of that room. What was sent before and not received is lost.
  void send(int64_t rows);
  // Puts on the queue: what was sent last becomes the first rows of the tensor.
  void receive();

 private:
  Queue& q_;
  Tensor to_;
  Buffer second_;    // on the device
  Buffer rooms_[2];  // on the host
  std::shared_ptr<cuda::CopyLane> lane_;
  int turn_ = 0;
  int64_t sent_ = 0;  // rows; 0: nothing to receive
};

}  // namespace capstan
