#include "tensor/cuda/calls.h"
#include "tensor/cuda/check.h"
#include "tensor/cuda/context.h"

namespace capstan::cuda {

namespace {

// Waiting for an event that was never recorded returns at once.
class Event {
 public:
  Event() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "make an event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "record an event"); }
  void hold(cudaStream_t stream) {
    check(cudaStreamWaitEvent(stream, event_, 0), "wait for an event");
  }
  void wait() { check(cudaEventSynchronize(event_), "copy to the device"); }

 private:
  cudaEvent_t event_ = nullptr;
};

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream"); }
  // Source and destination may be freed after this.
  ~Stream() {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace

class CopyLane {
 public:
  void wait_for_room(int room) { copied_[room].wait(); }

  void send(int room, void* to, const void* from, size_t bytes) {
    taken_.hold(stream_);
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "copy to the device");
    copied_[room].record(stream_);
  }

  void receive(int room, cudaStream_t queue, void* to, const void* from, size_t bytes) {
    copied_[room].hold(queue);
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, queue), "copy on the device");
    taken_.record(queue);
  }

 private:
  Event copied_[2];  // from that host buffer to the staging buffer
  Event taken_;      // from there to the tensor
  Stream stream_;
};

std::shared_ptr<CopyLane> make_copy_lane() {
  return std::make_shared<CopyLane>();
}
void wait_for_room(CopyLane& lane, int room) {
  lane.wait_for_room(room);
}
void send(CopyLane& lane, int room, void* to, const void* from, size_t bytes) {
  lane.send(room, to, from, bytes);
}
void receive(CopyLane& lane, int room, Context& context, void* to, const void* from, size_t bytes) {
  lane.receive(room, context.stream(), to, from, bytes);
}

}  // namespace capstan::cuda
