#pragma once

#include <functional>
#include <span>
#include <vector>

#include "checkpoint/convert.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "tensor/queue.h"

namespace capstan {

// Tensors are written in blocks of this many values.
inline constexpr int64_t kBlockValues = 1 << 20;

// A tensor to write; its values are fetched when they are written, in order.
struct TensorToWrite {
  SafetensorsWriter::Item item;  // type in the file
  StoredType from;               // type in memory
  // n values from `first` on, in row-major order: a view, or copied to `room`.
  std::function<std::span<const std::byte>(int64_t first, int64_t n, std::vector<std::byte>& room)>
      read;
};

// A contiguous tensor in memory, written as `to`. It is fetched through the queue; without one, the
// writing thread reads it directly from host memory.
TensorToWrite tensor_to_write(std::string name, const Tensor& tensor, DType to, Queue* q);

// One file, in blocks of a few MiB. Throws Fault::usage for values that f16 cannot represent.
FileSum write_tensor_file(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                          const std::map<std::string, std::string>& metadata, Threads threads,
                          mode_t mode = kUsualMode);

// model.safetensors, or shards of at most max_shard_bytes (or one tensor) with an index. Adds the
// checksums of its files to `sums`. Throws before it starts unless the disk has room for all of
// them.
void write_weights(const std::filesystem::path& folder, std::span<const TensorToWrite> tensors,
                   int64_t max_shard_bytes, Threads threads, Manifest& sums,
                   mode_t mode = kUsualMode);

}  // namespace capstan
