#include "run/fingerprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/checksum.h"
#include "base/units.h"
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

namespace {

std::string device_that_computes(Device device) {
  const std::string name = machine_name(device);
  return device == Device::cuda ? name : fmt::format("{}, {}", name, cpu::blas().name());
}

std::string shares_of(const MeshShape& mesh) {
  std::string text;
  if (mesh.tensor > 1) text += fmt::format(", tensor_parallel {}", mesh.tensor);
  if (mesh.overlap) text += ", overlapped";
  if (mesh.context > 1) text += fmt::format(", context_parallel {}", mesh.context);
  return text;
}

}  // namespace

std::string what_computes(Device device, const MeshShape& mesh) {
  return device_that_computes(device) + shares_of(mesh);
}

std::string what_computes_by_ranks(Device device, int ranks, const MeshShape& mesh) {
  ranks /= mesh.pipeline;
  return device_that_computes(device) + (ranks > 1 ? fmt::format(", {} ranks", ranks) : "") +
         shares_of(mesh);
}

// One rank adds the gradients of a micro-batch to those before it, value by value, while it
// computes them. Several compute those of a micro-batch from zero, where each has one, or where
// they are sharded, and add them in the order of the micro-batches (ops/sum_slices.h): in f32, so
// that it does not matter how many are added at a time; what is rounded to 16 bits after each round
// depends on that. Otherwise each rank adds those of its own micro-batches as one rank does, and
// then ranks add theirs. Zeros of ranks that have no micro-batch change nothing.
//
// Norms and losses are summed in f64, also in the order of ranks; what is made of them is f32, and
// does not keep their last bits. Stages pass on what they compute without changing it, but the
// gradients of a head that is tied to the embedding meet only at the end of a step.
std::string order_of_sums(const TrainOptions& o, int64_t micro_batches) {
  const int context = o.mesh.context;
  const int ranks = o.ranks.size / (o.mesh.pipeline * o.mesh.tensor), batches = ranks / context;
  const bool one_each = micro_batches <= batches;
  const bool sharded = o.sharding.gradients == Hold::shard;
  const bool narrow = types_of(o.precision).grad != DType::f32;
  std::string order;
  if (ranks == 1 || (micro_batches == 1 && context == 1))
    order = "one micro-batch after the other";
  else if (one_each || (sharded && !narrow))
    order = "each micro-batch by itself, in their order";
  else if (sharded)
    order = fmt::format("each micro-batch by itself, {} at a time", batches);
  else
    order = fmt::format("by each of {}, then those of the ranks", count(ranks, "rank"));
  const int groups = std::max(o.sharding.replicas, o.sharding.machines);
  if (groups > 1 && micro_batches * context > ranks / groups)
    order += fmt::format(
        ", {} {} first", count(ranks / groups, "neighbour"),
        o.sharding.replicas > 1 && (narrow || !one_each) ? "in all micro-batches" : "of a machine");
  const ModelSpec spec = make_spec(o.model, o.decay, o.lora, o.quantize);
  if (o.mesh.pipeline > 1 && spec.head == spec.embedding && spec.trainable(spec.embedding))
    order += ", those of the tied head by themselves";
  return order;
}

std::string kernels_in(std::string_view computed_on) {
  const size_t begin = computed_on.rfind(", OpenBLAS ");
  if (begin == std::string_view::npos) return "";
  const std::string_view rest = computed_on.substr(begin + 2);
  return std::string(rest.substr(0, rest.find(',')));
}

}  // namespace capstan
