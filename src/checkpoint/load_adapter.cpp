#include <algorithm>
#include <cstring>

#include "checkpoint/adapter.h"
#include "checkpoint/convert.h"
#include "checkpoint/stored_parts.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlockValues = 1 << 20;

std::vector<std::byte> converted(std::span<const std::byte> from, DType from_type, DType to) {
  const auto n = static_cast<int64_t>(from.size()) / size_of(from_type);
  std::vector<std::byte> out(static_cast<size_t>(n * size_of(to)));
  convert(out.data(), to, from.data(), from_type, n);
  return out;
}

// Whether a piece of a tensor has the same values as the file, in the narrower of their types. The
// rank has whole rows of it.
bool same_values(Queue& q, const SavedTensor& tensor, const SavedTensor::Piece& piece,
                 const TensorEntry& entry) {
  const DType theirs = *entry.tensor->type.dtype, ours = piece.values.dtype();
  const DType type = size_of(theirs) <= size_of(ours) ? theirs : ours;
  const int64_t count = piece.values.numel();
  std::vector<std::byte> room, block;
  for (int64_t first = 0; first < count; first += kBlockValues) {
    const Tensor values = piece.values.rows(first, std::min(kBlockValues, count - first));
    block.resize(static_cast<size_t>(values.nbytes()));
    q.download(block.data(), values);
    const auto bytes = entry.file->read(*entry.tensor, tensor.cut.in_whole(piece.first + first),
                                        values.numel(), room);
    if (converted(bytes, theirs, type) != converted(block, ours, type)) return false;
  }
  return true;
}

void check_head_copy(Queue& q, const Parameters& params, const ModelFolder& folder,
                     const fs::path& dir) {
  if (q.device() == Device::sim || !has_head_copy(params, Rows::adapters, folder)) return;
  const TensorEntry& found = folder.tensors().find(kHeadCopy)->second;
  const SavedTensor head = head_copy(params);
  for (const SavedTensor::Piece& piece : head.pieces)
    require(same_values(q, head, piece, found), Fault::file,
            "{}: {}: expected the head of the base model, found other values; use the base model "
            "that the adapter was trained with",
            (dir / kAdapterFile).string(), kHeadCopy);
}

}  // namespace

void load_adapter(Queue& q, Parameters& params, const fs::path& dir) {
  const ModelFolder folder = ModelFolder::of_adapter(dir);
  check_adapter_config(params, dir);
  check_weights(params, Rows::adapters, folder, dir);
  check_head_copy(q, params, folder, dir);
  read_tensors(q, stored_parts(params, Rows::adapters), folder.tensors());
  if (q.device() != Device::sim) params.refresh_weights(q);
}

}  // namespace capstan
