#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

// What the rest of the tensor layer asks of a GPU, without CUDA's own headers. Defined only where
// kWithCuda.
namespace capstan {
struct CudaFacts;
}
namespace capstan::cuda {

class Context;
class CopyLane;

bool present(const char** why_not);
std::string device_name();
int64_t free_memory();
CudaFacts facts();  // makes no context

// Memory of the current GPU, as zeros. Throws Fault::does_not_fit where there is not enough.
std::byte* allocate(int64_t bytes);
void release(std::byte* memory);

// Host memory as zeros that stays in its place and has one address for the host and every GPU.
// Throws Fault::does_not_fit where the system pins no more.
std::byte* allocate_pinned(int64_t bytes);
void release_pinned(std::byte* memory);

std::shared_ptr<Context> make_context();
void wait(Context& context);
void wait_quietly(Context& context) noexcept;  // leaves errors for the next call
void upload(Context& context, void* to, const void* from, size_t bytes);

// How a piece of work with that key begins: as any other, with the recording of its graph, or with
// the launch of one that was recorded.
enum class GraphUse : uint8_t { none, recording, replayed };
GraphUse begin_graph(Context& context, const std::array<int64_t, 6>& key);
// Of a recording: launches what was recorded, or forgets it. Throws Fault::device.
void end_graph(Context& context, const std::array<int64_t, 6>& key, bool complete);

// Copies from two rooms of pinned memory to one place of the GPU, on a stream of their own, for the
// context's stream to take from there: see tensor/copy_ahead.h.
std::shared_ptr<CopyLane> make_copy_lane();
void wait_for_room(CopyLane& lane, int room);  // until what was sent from it last has been copied
void send(CopyLane& lane, int room, void* to, const void* from, size_t bytes);
void receive(CopyLane& lane, int room, Context& context, void* to, const void* from, size_t bytes);

void tell_measured(Context& context);  // of matrix products, since the last call
void download(Context& context, void* to, const void* from, size_t bytes);

}  // namespace capstan::cuda
