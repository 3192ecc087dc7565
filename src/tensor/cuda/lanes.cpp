#include "tensor/cuda/lanes.h"

#include "tensor/cuda/calls.h"

namespace capstan::cuda {

Lanes::~Lanes() {
  // At program exit the driver may be gone already: ignore errors.
  for (cudaStream_t stream : streams_) {
    if (stream == nullptr) continue;
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
  }
}

cudaStream_t Lanes::of(Lane lane) {
  cudaStream_t& stream = streams_[static_cast<size_t>(lane)];
  if (stream != nullptr) return stream;
  // Others wait for what collectives deliver, so their small kernels go first.
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "read the device's properties");
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                     lane == Lane::comm ? greatest : least),
        "make a stream");
  return stream;
}

std::shared_ptr<Event> make_event(bool timed) {
  return std::make_shared<Event>(timed);
}
double seconds_between(const Event& first, const Event& second) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, first, second), "tell a time");
  return 1e-3 * double{milliseconds};
}
void wait(const Event& event) {
  check(cudaEventSynchronize(event), "finish its work");
}
bool reached(const Event& event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) {
    cudaGetLastError();  // not an error
    return false;
  }
  check(status, "finish its work");
  return true;
}

}  // namespace capstan::cuda
