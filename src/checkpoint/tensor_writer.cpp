#include "checkpoint/tensor_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Tensors = std::span<const TensorToWrite>;

void append(SafetensorsWriter& file, const TensorToWrite& t, Threads threads) {
  const int64_t values = t.item.nbytes() / t.item.type.size;
  std::vector<std::byte> room, converted;
  for (int64_t first = 0; first < values; first += kBlockValues) {
    const int64_t n = std::min(kBlockValues, values - first);
    const auto bytes = t.read(first, n, room);
    if (t.from.name == t.item.type.name) {
      file.append(bytes);
      continue;
    }
    converted.resize(static_cast<size_t>(n * t.item.type.size));
    require(convert(converted.data(), *t.item.type.dtype, bytes.data(), *t.from.dtype, n, threads),
            Fault::usage, "{}: has values that {} cannot represent; save the model as bf16 or f32",
            t.item.name, name_of(*t.item.type.dtype));
    file.append(converted);
  }
}

int64_t nbytes(Tensors tensors) {
  int64_t bytes = 0;
  for (const TensorToWrite& t : tensors) bytes += t.item.nbytes();
  return bytes;
}

std::vector<Tensors> cut_into_shards(Tensors tensors, int64_t max_bytes) {
  std::vector<Tensors> shards;
  size_t begin = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t more = tensors[i].item.nbytes();
    if (i > begin && more > max_bytes - bytes) {
      shards.push_back(tensors.subspan(begin, i - begin));
      begin = i;
      bytes = 0;
    }
    bytes += more;
  }
  shards.push_back(tensors.subspan(begin));
  return shards;
}

}  // namespace

TensorToWrite tensor_to_write(std::string name, const Tensor& tensor, DType to, Queue* q) {
  TensorToWrite t{{std::move(name), to, {}}, tensor.dtype(), {}};
  for (int d = 0; d < tensor.rank(); ++d) t.item.shape.push_back(tensor.dim(d));
  const Tensor flat = tensor.reshape({tensor.numel()});
  t.read = [flat, q](int64_t first, int64_t n, std::vector<std::byte>& room) {
    const Tensor values = flat.rows(first, n);
    const auto bytes = static_cast<size_t>(values.nbytes());
    if (q == nullptr)
      return std::span<const std::byte>(static_cast<const std::byte*>(values.raw()), bytes);
    room.resize(bytes);
    q->download(room.data(), values);
    return std::span<const std::byte>(room);
  };
  return t;
}

FileSum write_tensor_file(const fs::path& path, Tensors tensors,
                          const std::map<std::string, std::string>& metadata, Threads threads,
                          mode_t mode) {
  std::vector<SafetensorsWriter::Item> items;
  for (const TensorToWrite& t : tensors) items.push_back(t.item);
  SafetensorsWriter file(path, items, metadata, mode);
  for (const TensorToWrite& t : tensors) append(file, t, threads);
  return file.commit();
}

void write_weights(const fs::path& folder, Tensors tensors, int64_t max_shard_bytes,
                   Threads threads, Manifest& sums, mode_t mode) {
  // transformers rejects files that do not name their framework.
  const std::map<std::string, std::string> metadata = {{"format", "pt"}};
  constexpr int64_t kHeadersAndSmallFiles = 1 << 20;
  require_space(folder, nbytes(tensors) + kHeadersAndSmallFiles);
  const auto shards = cut_into_shards(tensors, max_shard_bytes);
  json weight_map = json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        shards.size() == 1 ? "model.safetensors"
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    sums[name] = write_tensor_file(folder / name, shards[i], metadata, threads, mode);
    for (const TensorToWrite& t : shards[i]) weight_map[t.item.name] = name;
  }
  if (shards.size() == 1) return;
  // Last: a folder with an index has all its shards.
  const json index = {{"metadata", {{"total_size", nbytes(tensors)}}}, {"weight_map", weight_map}};
  const char* name = "model.safetensors.index.json";
  sums[name] = write_text(folder / name, index.dump(2) + "\n", mode);
}

}  // namespace capstan
