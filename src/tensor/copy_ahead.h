#pragma once

#include "tensor/queue.h"

namespace capstan {

// Double-buffered upload of one tensor: copies its next contents from the host while the device
// works with the current ones. The host writes them to a pinned buffer; the copy lane copies them
// to a staging buffer on the device; when the queue reaches receive(), it copies them into the
// tensor. So the tensor keeps its address, and the work waits neither for the host nor for the bus.
//
//   write to ahead.host_buffer();
//   ahead.send(n);
//   …                        work put on the queue meanwhile sees the previous contents
//   ahead.receive();
//
// Only for the queue's thread.
class CopyAhead {
 public:
  // For a contiguous tensor of q.arena(). If the queue has pinned host memory, or records it,
  // allocates a staging buffer of the tensor's size from q.arena() and two from q.host(), outside
  // of a phase. Otherwise allocates nothing. The queue and the arenas must outlive this.
  CopyAhead(Queue& q, const Tensor& to, Category category, const char* name);
  ~CopyAhead();
  CopyAhead(CopyAhead&&) = default;

  // Whether it can copy ahead: on cuda, with pinned memory. The other methods are only for this
  // case.
  bool active() const { return active_; }

  // A host buffer of the tensor's type and shape, to be written. Alternates between two buffers:
  // waits until the last copy from this one is complete. That copy starts when the queue has
  // received the contents before it. So the host is at most two contents ahead of the device.
  Tensor host_buffer();
  // Starts to copy the first `rows` of that buffer. Contents that were sent before but not received
  // are lost.
  void send(int64_t rows);
  // Enqueues: the contents sent last become the first rows of the tensor.
  void receive();

 private:
  Queue& q_;
  Tensor to_;
  Buffer second_;           // on the device
  Buffer host_buffers_[2];  // on the host
  Event copied_[2];         // from that host buffer to the staging buffer
  Event taken_;             // from there to the tensor
  bool active_ = false;
  int turn_ = 0;
  int64_t sent_ = 0;  // rows; 0: nothing to receive
};

}  // namespace capstan
