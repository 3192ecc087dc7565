// The tensor layer's interface to a GPU, in a program that was built without CUDA.
#include "tensor/cuda/calls.h"

#include "base/error.h"
#include "tensor/device.h"

namespace capstan::cuda {
namespace {

constexpr const char* kWhyNot = "this program was built without CUDA";

[[noreturn]] void not_built() {
  fail(Fault::device, "{}", kWhyNot);
}

}  // namespace

bool present(const char** why_not) {
  *why_not = kWhyNot;
  return false;
}

int device_count() {
  return 0;
}
int device_index() {
  return 0;
}
void use_device(int) {
  not_built();
}
void read_memory_of(int, int) {
  not_built();
}
std::string device_name() {
  not_built();
}
int64_t free_memory() {
  return 0;
}
CudaFacts facts() {
  not_built();
}
std::byte* allocate(int64_t) {
  not_built();
}
void release(std::byte*) {}
std::byte* allocate_pinned(int64_t) {
  not_built();
}
void release_pinned(std::byte*, int64_t) {}
std::shared_ptr<Context> make_context() {
  not_built();
}
void wait(Context&) {
  not_built();
}
void wait_quietly(Context&) noexcept {}
void upload(Context&, void*, const void*, size_t) {
  not_built();
}
GraphUse begin_graph(Context&, const std::array<int64_t, 6>&) {
  not_built();
}
void end_graph(Context&, const std::array<int64_t, 6>&, bool) {
  not_built();
}
void cut_graph(Context&) {
  not_built();
}
void resume_graph(Context&) {
  not_built();
}
void copy(Context&, void*, const void*, size_t) {
  not_built();
}
void use_lane(Context&, Lane) {
  not_built();
}
std::shared_ptr<Event> make_event(bool) {
  not_built();
}
double seconds_between(const Event&, const Event&) {
  not_built();
}
void record(Context&, Event&) {
  not_built();
}
void wait_for(Context&, const Event&) {
  not_built();
}
void wait(const Event&) {
  not_built();
}
bool reached(const Event&) {
  not_built();
}
void tell_measured(Context&) {
  not_built();
}
void download(Context&, void*, const void*, size_t) {
  not_built();
}

}  // namespace capstan::cuda
