#include "infer/inference.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/units.h"
#include "checkpoint/checkpoint.h"
#include "machine/memory.h"
#include "model/adapter.h"
#include "ops/head_loss.h"

namespace capstan {
namespace {

int64_t longest_of(const InferenceOptions& o) {
  return std::max({o.limits.longest, o.positions, int64_t{1}});
}

// Suggests what would need less memory, or another device.
std::string suggestions(const InferenceOptions& o) {
  const Precision narrow = computes_bf16(o.device) ? Precision::bf16_true : Precision::f16_true;
  const bool narrower = !o.merge && o.precision == Precision::f32_true;
  if (o.device == Device::cpu)
    return narrower ? "--precision bf16-true and a shorter text or batch need less"
                    : "A shorter text or batch needs less";
  std::vector<std::string> ways;
  if (narrower) ways.push_back(fmt::format("--precision {}", name_of(narrow)));
  if (!o.merge && o.quantize == Quantize::none) ways.push_back("--quantize bnb.nf4");
  ways.push_back("a shorter text or batch");
  return fmt::format("These need less: {}; --accelerator cpu uses this machine's memory, {} free",
                     fmt::join(ways, " · "), format_bytes(available_memory(Device::cpu)));
}

MemoryPlan fitting_plan(const InferenceOptions& options) {
  require_present(options.device);
  MemoryPlan plan = Inference::plan(options);
  require_fit(options, plan.total_bytes, available_memory(options.device));
  return plan;
}

}  // namespace

void set_stops(GenerateOptions& options, const ModelConfig& model, const Tokenizer& tokenizer,
               const ModelPrompting& prompting) {
  options.stop_ids = model.eos_ids;
  options.stop_ids.push_back(tokenizer.eos());
  if (prompting.style != nullptr)
    options.stop_sequences = stop_sequences(*prompting.style, tokenizer);
  if (!prompting.chat_template) return;
  for (const Piece& piece :
       render(*prompting.chat_template,
              std::vector<Message>{{Role::user, "x"}, {Role::assistant, "y"}}, false))
    if (piece.special && piece.learn)
      if (const auto id = tokenizer.id_of(piece.text)) options.stop_ids.push_back(*id);
}

void require_fit(const InferenceOptions& options, int64_t needed, int64_t available) {
  require(needed <= available, Fault::does_not_fit, "does not fit: needs {}{}, {} free. {}",
          format_bytes(needed), options.device == Device::cuda ? " on the GPU" : "",
          format_bytes(available), suggestions(options));
}

Precision inference_precision(const std::string& asked, const ModelConfig& model, Device device) {
  const bool narrow = device == Device::cuda || model.dtype == DType::bf16;
  if (asked.empty() && !narrow) return Precision::f32_true;
  if (asked.empty()) return computes_bf16(device) ? Precision::bf16_true : Precision::f16_true;
  const Precision precision = parse_named<Precision>("precision", asked);
  require(precision == Precision::bf16_true || precision == Precision::f16_true ||
              precision == Precision::f32_true,
          Fault::usage, "precision: {} is for training; use bf16-true, 16-true or 32-true", asked);
  require_precision(precision, device);
  return precision;
}

Inference::Inference(Queue& q, const InferenceOptions& o)
    : q_(q),
      logits_(o.logits),
      merges_(o.merge),
      params_(q.arena(), make_spec(o.model, Decay::all, o.lora, o.quantize), o.precision,
              Gradients::none),
      model_(q, params_, Recompute::none, longest_of(o)) {
  q.allow_tf32(o.tf32 && o.precision == Precision::f32_true);
  if (o.limits.tokens > 0) {
    batch_ = std::make_unique<DeviceBatch>(q, o.limits, o.model);
    loss_ = q.arena().make(Category::data, DType::f64, {1}, "loss");
  }
  if (o.positions > 0)
    decoder_ =
        std::make_unique<Decoder>(q, model_, o.positions, std::min<int64_t>(o.positions, 512));
}

MemoryPlan Inference::plan(const InferenceOptions& options) {
  Arena arena;
  Queue q(Device::sim, arena, {.device = options.device});
  Inference inference(q, options);
  inference.rehearse();
  return arena.plan();
}

void Inference::rehearse() {
  if (batch_) rehearse_evaluation(q_, model_, *batch_, loss_);
  if (logits_) logits_of(batch_->largest());
  if (decoder_) decoder_->rehearse(q_);
  if (merges_) {
    const auto phase = q_.arena().phase("merge");
    MergedWeights(q_, params_).rehearse();
  }
}

std::vector<float> Inference::logits_of(const Batch& batch) {
  const auto phase = q_.arena().phase("logits");
  const Buffer logits = q_.arena().make(Category::activations, DType::f32,
                                        {batch.tokens(), model_.config().vocab}, "logits");
  model_.logits(q_, batch, logits);
  if (q_.device() == Device::sim) return {};
  std::vector<float> values(static_cast<size_t>(logits->numel()));
  q_.download(values.data(), logits);
  return values;
}

std::vector<float> Inference::logits(std::span<const int32_t> ids) {
  const auto n = static_cast<int64_t>(ids.size());
  for (const int32_t id : ids)
    require(id >= 0 && id < model_.config().vocab, Fault::usage,
            "token {} is outside the model's vocabulary of {}", id, model_.config().vocab);
  HostBatch host(n, 1);
  host.ids.assign(ids.begin(), ids.end());
  host.labels.assign(ids.size(), kIgnore);
  host.positions.resize(ids.size());
  std::iota(host.positions.begin(), host.positions.end(), 0);
  host.starts = {0, static_cast<int32_t>(n)};
  host.longest = n;
  return logits_of(batch_->upload(q_, host));
}

Manifest Inference::write_merged(const std::filesystem::path& folder, DType dtype,
                                 const std::string& config_like) {
  const auto phase = q_.arena().phase("merge");
  MergedWeights merged(q_, params_);
  return write_model(q_, params_, folder,
                     {.dtype = dtype, .merged = &merged, .config_like = config_like});
}

Evaluation Inference::evaluate(MicroBatches& data) {
  return capstan::evaluate(q_, model_, *batch_, loss_, data);
}

InferenceOptions options_of(const ModelFiles& files, InferenceOptions options) {
  options.model = files.config;
  if (files.adapter) options.lora = files.adapter->lora;
  options.quantize = files.quantize;
  return options;
}

LoadedModel::LoadedModel(const ModelFiles& files, const InferenceOptions& options)
    : plan_(fitting_plan(options_of(files, options))),
      arena_(plan_, options.device),
      queue_(options.device, arena_),
      model_(queue_, options_of(files, options)) {
  verify_if_ours(files.base);
  if (files.adapter) verify_if_ours(files.folder);
  load_parameters(queue_, model_.params(), files.base);
  if (files.adapter) load_adapter(queue_, model_.params(), files.folder);
}

}  // namespace capstan
