#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tensor/lane.h"

// The tensor layer's interface to a GPU, without CUDA's own headers. A build without CUDA has
// tensor/no_cuda/calls.cpp instead.
namespace capstan {
struct CudaFacts;
}
namespace capstan::cuda {

class Context;

bool present(const char** why_not);
int device_count();
int device_index();
void use_device(int index);
void read_memory_of(int reader, int owner);  // two different GPUs; leaves `reader` chosen
std::string device_name();
int64_t free_memory();
CudaFacts facts();  // does not create a context

// Zeroed memory on this thread's GPU. Throws Fault::does_not_fit if there is not enough.
std::byte* allocate(int64_t bytes);
void release(std::byte* memory);

// Zeroed, pinned host memory with one address for the host and every GPU. Throws
// Fault::does_not_fit if the system cannot pin as much.
std::byte* allocate_pinned(int64_t bytes);
void release_pinned(std::byte* memory, int64_t bytes);

std::shared_ptr<Context> make_context();
void wait(Context& context);
void wait_quietly(Context& context) noexcept;  // leaves errors for the next call
void upload(Context& context, void* to, const void* from, size_t bytes);
void copy(Context& context, void* to, const void* from, size_t bytes);  // does not wait

// The lane that work goes to from now on.
void use_lane(Context& context, Lane lane);
std::shared_ptr<Event> make_event(bool timed);
double seconds_between(const Event& first, const Event& second);  // timed and reached
void record(Context& context, Event& event);
void wait_for(Context& context, const Event& event);  // the context's lane does
void wait(const Event& event);                        // the host does
bool reached(const Event& event);

// How a unit of work with that key begins: normally, with the recording of its graph, or with the
// launch of a recorded one.
enum class GraphUse : uint8_t { none, recording, replayed };
GraphUse begin_graph(Context& context, const std::array<int64_t, 6>& key);
// Work between these two is in no graph: it is done each time, between two parts of the graph.
void cut_graph(Context& context);
void resume_graph(Context& context);
// Ends a recording (launches the graph, or discards it) or a replay. Throws Fault::device.
void end_graph(Context& context, const std::array<int64_t, 6>& key, bool complete);

void tell_measured(Context& context);  // about matrix products, since the last call
void download(Context& context, void* to, const void* from, size_t bytes);

}  // namespace capstan::cuda
