#include "tensor/copy_ahead.h"

#include <utility>

#include "tensor/cuda/calls.h"

namespace capstan {

CopyAhead::CopyAhead(Queue& q, const Tensor& to, Category category, const char* name)
    : q_(q), to_(to) {
  require(to.contiguous(), Fault::bug, "copies ahead to a strided tensor");
  if (&q.host() == &q.arena()) return;
  second_ = q.arena().make(category, to.dtype(), to.shape(), name);
  for (Buffer& room : host_buffers_) room = q.host().make(category, to.dtype(), to.shape(), name);
  active_ = q.device() == Device::cuda;
}

// The buffers may be freed after this.
CopyAhead::~CopyAhead() {
  try {
    for (const Event& copied : copied_) copied.wait();
  } catch (...) {  // the device has failed: others say so
  }
}

Tensor CopyAhead::host_buffer() {
  require(active(), Fault::bug, "copies ahead without pinned memory");
  turn_ ^= 1;
  sent_ = 0;
  copied_[turn_].wait();
  return host_buffers_[turn_];
}

void CopyAhead::send(int64_t rows) {
  require(active() && rows > 0, Fault::bug, "{} rows to copy ahead", rows);
  sent_ = rows;
  const auto bytes = static_cast<size_t>(to_.rows(0, rows).nbytes());
  const Queue::OnLane lane(q_, Lane::copy);
  q_.wait(taken_);
  cuda::copy(q_.cuda(), second_->raw(), host_buffers_[turn_]->raw(), bytes);
  q_.record(copied_[turn_]);
}

void CopyAhead::receive() {
  require(sent_ > 0, Fault::bug, "nothing was copied ahead");
  const auto bytes = static_cast<size_t>(to_.rows(0, std::exchange(sent_, 0)).nbytes());
  q_.wait(copied_[turn_]);
  cuda::copy(q_.cuda(), to_.raw(), second_->raw(), bytes);
  q_.record(taken_);
}

}  // namespace capstan
