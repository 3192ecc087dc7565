#include "tensor/cuda/context.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/files.h"
#include "base/log.h"
#include "base/units.h"
#include "tensor/cuda/calls.h"
#include "tensor/cuda/check.h"

namespace capstan::cuda {

namespace {

bool may_measure() {
  const char* const value = std::getenv("CAPSTAN_MEASURE_PRODUCTS");
  const std::string_view text = value == nullptr ? "" : value;
  require(text.empty() || text == "0" || text == "1", Fault::usage,
          "CAPSTAN_MEASURE_PRODUCTS: expected 0 or 1, found '{}'", text);
  return text != "0";
}

// The most that a block can have, in bytes.
int shared_memory_of(std::pair<int, int> capability) {
  const auto [major, minor] = capability;
  if (major < 8) return 64 << 10;
  if (major == 8) return (minor == 0 || minor == 7 ? 163 : 99) << 10;
  return (major < 12 ? 227 : 99) << 10;
}

}  // namespace

Context::Context() {
  index_ = device_index();
  check(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, index_),
        "read the device's properties");
  check(cudaDeviceGetAttribute(&shared_memory_, cudaDevAttrMaxSharedMemoryPerBlockOptin, index_),
        "read the device's properties");
  int shared_tables = 0;
  check(cudaDeviceGetAttribute(&shared_tables, cudaDevAttrPageableMemoryAccessUsesHostPageTables,
                               index_),
        "read the device's properties");
  reads_pageable_ = shared_tables != 0;
  capability_ = capability_of(index_);
  wgmma_ = CAPSTAN_WITH_WGMMA != 0 && capability_.first == 9;
  fp8_ = multiplies_fp8(capability_);
  act_like(capability_);
  // A GPU's slice (MIG) has the name of the whole card, but fewer SMs. Builds with and without our
  // kernel have different candidates.
  if (may_measure())
    product_cache_ = std::make_unique<ProductCache>(
        cache_folder("products"),
        fmt::format("{}, {} multiprocessors, cuBLASLt {}{}{}", device_name(), multiprocessors_,
                    cublasLtGetVersion(), wgmma_ ? ", " : "", wgmma_ ? kWgmmaName : ""));
  check(cublasLtCreate(&blas_), "start cuBLASLt");
}

void Context::act_like(std::pair<int, int> capability) {
  shared_memory_ = std::min(shared_memory_, shared_memory_of(capability));
  if (capability.first < 9) avoid_wgmma(true);
  capability_ = std::min(capability_, capability);
}

Context::~Context() {
  try {
    tell_measured();
  } catch (...) {  // a failing log line must not end the run
  }
  // At program exit the driver may be gone already: ignore errors.
  cublasLtDestroy(blas_);
}

const ProductMethod* Context::keep_method(const ProductKey& key, const ProductMethod& method) {
  // Batches of new lengths bring new shapes. All entries can be recomputed.
  constexpr size_t kMost = 1 << 14;
  if (methods_.size() >= kMost) methods_.clear();
  return &(methods_[key] = method);
}

void Context::note_measured(double seconds) {
  ++measured_;
  measured_seconds_ += seconds;
}

void Context::tell_measured() {
  if (measured_ == 0) return;
  log::info("measured {} in {:.1f} s, once for this GPU; kept in {}",
            count(measured_, "matrix product"), measured_seconds_, product_cache_->path().string());
  measured_ = 0;
  measured_seconds_ = 0;
}

void tell_measured(Context& context) {
  context.tell_measured();
}

bool present(const char** why_not) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return true;
  *why_not = status == cudaSuccess ? "no GPU was found" : cudaGetErrorString(status);
  return false;
}

int device_count() {
  int all = 0;
  return cudaGetDeviceCount(&all) == cudaSuccess ? all : 0;
}

int device_index() {
  int device = 0;
  check(cudaGetDevice(&device), "find the current device");
  return device;
}

void use_device(int index) {
  const int all = device_count();
  require(index >= 0 && index < all, Fault::device,
          "GPU {} was requested, but this process sees {}, numbered from 0. Check "
          "CUDA_VISIBLE_DEVICES",
          index, count(all, "GPU"));
  check(cudaSetDevice(index), "choose the device");
}

void read_memory_of(int reader, int owner) {
  int can = 0;
  use_device(reader);
  check(cudaDeviceCanAccessPeer(&can, reader, owner), "read the device's properties");
  require(can != 0, Fault::device,
          "GPU {} cannot read the memory of GPU {}, as ranks of one process do; start one process "
          "for each GPU: mpirun -n RANKS capstan …",
          reader, owner);
  const cudaError_t status = cudaDeviceEnablePeerAccess(owner, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled)
    cudaGetLastError();  // as wanted, so clear it for the next call
  else
    check(status, "read another device's memory");
}

std::string device_name() {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device_index()), "read the device's properties");
  return properties.name;
}

int64_t free_memory() {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "read the free memory");
  return static_cast<int64_t>(free);
}

std::byte* allocate(int64_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // reported here, so clear it for the next call
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "read the free memory");
    fail(Fault::does_not_fit, "does not fit: needs {} on the GPU, which has {} of {} free",
         format_bytes(static_cast<double>(bytes)), format_bytes(static_cast<double>(free)),
         format_bytes(static_cast<double>(total)));
  }
  check(status, "allocate memory");
  check(cudaMemset(memory, 0, static_cast<size_t>(bytes)), "clear memory");
  // The queues' streams do not synchronize with the stream that ran this.
  check(cudaDeviceSynchronize(), "clear memory");
  return static_cast<std::byte*>(memory);
}

void release(std::byte* memory) {
  cudaFree(memory);
}

std::shared_ptr<Context> make_context() {
  return std::make_shared<Context>();
}

void wait(Context& context) {
  check(cudaStreamSynchronize(context.stream()), "finish its work");
}

void wait_quietly(Context& context) noexcept {
  cudaStreamSynchronize(context.stream());
}

void upload(Context& context, void* to, const void* from, size_t bytes) {
  // Pageable memory has been copied to the driver's buffer when this returns, unless the GPU can
  // read it directly.
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, context.stream()),
        "copy to the device");
  if (context.reads_pageable()) wait(context);
}

void download(Context& context, void* to, const void* from, size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, context.stream()),
        "copy from the device");
  wait(context);
}

void copy(Context& context, void* to, const void* from, size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, context.stream()), "copy");
}

void use_lane(Context& context, Lane lane) {
  context.lanes().use(lane);
}

void record(Context& context, Event& event) {
  check(cudaEventRecord(event, context.stream()), "record an event");
}
void wait_for(Context& context, const Event& event) {
  check(cudaStreamWaitEvent(context.stream(), event, 0), "wait for an event");
}

GraphUse begin_graph(Context& context, const Graphs::Key& key) {
  return context.graphs().begin(context.stream(), key);
}
void cut_graph(Context& context) {
  context.graphs().cut(context.stream());
}
void resume_graph(Context& context) {
  context.graphs().resume(context.stream());
}
void end_graph(Context& context, const Graphs::Key& key, bool complete) {
  context.graphs().end(context.stream(), key, complete);
}

}  // namespace capstan::cuda
