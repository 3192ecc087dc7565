#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

// The tensor layer's interface to a GPU, without CUDA's own headers. A build without CUDA has
// tensor/no_cuda/calls.cpp instead.
namespace capstan {
struct CudaFacts;
}
namespace capstan::cuda {

class Context;
class CopyLane;

bool present(const char** why_not);
int device_count();
int device_index();
void use_device(int index);
std::string device_name();
int64_t free_memory();
CudaFacts facts();  // does not create a context

// Zeroed memory on this thread's GPU. Throws Fault::does_not_fit if there is not enough.
std::byte* allocate(int64_t bytes);
void release(std::byte* memory);

// Zeroed, pinned host memory with one address for the host and every GPU. Throws
// Fault::does_not_fit if the system cannot pin as much.
std::byte* allocate_pinned(int64_t bytes);
void release_pinned(std::byte* memory);

std::shared_ptr<Context> make_context();
void wait(Context& context);
void wait_quietly(Context& context) noexcept;  // leaves errors for the next call
void upload(Context& context, void* to, const void* from, size_t bytes);

// How a unit of work with that key begins: normally, with the recording of its graph, or with the
// launch of a recorded one.
enum class GraphUse : uint8_t { none, recording, replayed };
GraphUse begin_graph(Context& context, const std::array<int64_t, 6>& key);
// Ends a recording: launches the graph, or discards it. Throws Fault::device.
void end_graph(Context& context, const std::array<int64_t, 6>& key, bool complete);

// Copies from two pinned buffers to one staging buffer on the GPU, on a separate stream; the
// context's stream copies from there: see tensor/copy_ahead.h.
std::shared_ptr<CopyLane> make_copy_lane();
void wait_for_room(CopyLane& lane,
                   int room);  // waits until the last copy from this buffer is complete
void send(CopyLane& lane, int room, void* to, const void* from, size_t bytes);
void receive(CopyLane& lane, int room, Context& context, void* to, const void* from, size_t bytes);

void tell_measured(Context& context);  // about matrix products, since the last call
void download(Context& context, void* to, const void* from, size_t bytes);

}  // namespace capstan::cuda
