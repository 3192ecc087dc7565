#include "run/fingerprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/checksum.h"
#include "checkpoint/model_folder.h"
#include "machine/name.h"
#include "ops/cpu/blas.h"

namespace capstan {

std::string data_fingerprint(const Dataset& dataset, int64_t max_seq_length) {
  Sha256 sum;
  sum.update(fmt::format("{} samples, {} {}\n", dataset.size(),
                         dataset.cut() == Cut::tokens ? "tokens" : "inputs", max_seq_length));
  for (int64_t i = 0; i < dataset.size(); ++i) {
    sum.update(std::as_bytes(dataset.tokens_of(i)));
    sum.update(std::as_bytes(dataset.target_spans_of(i)));
  }
  return sum.hex();
}

std::optional<std::string> weights_fingerprint(const std::filesystem::path& folder, bool tied) {
  if (folder.empty()) return std::nullopt;
  const ModelFolder model(folder);
  Sha256 sum;
  std::vector<std::byte> room;
  for (const auto& [name, entry] : model.tensors()) {
    const bool is_copy = tied && name == "lm_head.weight";
    if (is_copy || name.ends_with("rotary_emb.inv_freq")) continue;  // no model needs these
    const StoredTensor& t = *entry.tensor;
    sum.update(fmt::format("{} {} {}\n", name, t.type.size, fmt::join(t.shape, "x")));
    const int64_t n = std::min<int64_t>(64, t.numel());
    for (const int64_t first : {int64_t{0}, (t.numel() - n) / 2, t.numel() - n})
      sum.update(entry.file->read(t, first, n, room));
  }
  return sum.hex();
}

std::string what_computes(Device device, int ranks, const MeshShape& mesh) {
  std::string name = machine_name(device);
  if (device != Device::cuda) name += fmt::format(", {}", cpu::blas().name());
  // Stages do not change the bits.
  if (ranks /= mesh.pipeline; ranks > 1) name += fmt::format(", {} ranks", ranks);
  if (mesh.tensor > 1) name += fmt::format(", tensor_parallel {}", mesh.tensor);
  if (mesh.overlap) name += ", overlapped";
  if (mesh.context > 1) name += fmt::format(", context_parallel {}", mesh.context);
  return name;
}

std::string kernels_in(std::string_view computed_on) {
  const size_t begin = computed_on.rfind(", OpenBLAS ");
  if (begin == std::string_view::npos) return "";
  const std::string_view rest = computed_on.substr(begin + 2);
  return std::string(rest.substr(0, rest.find(',')));
}

}  // namespace capstan
