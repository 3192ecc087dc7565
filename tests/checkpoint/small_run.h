#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/small_model.h"
#include "checkpoint/training_checkpoint.h"

namespace capstan {

// A small model with its optimizer, whose values tell the step that they are of.
struct SmallRun {
  explicit SmallRun(Precision precision = Precision::f32_true, const OptimizerOptions& options = {},
                    const std::optional<LoraOptions>& lora = {}, Quantize quantize = Quantize::none,
                    const ModelConfig& config = small("LlamaForCausalLM"))
      : model(config, precision, lora, quantize), optimizer(model.queue, model.params, options) {}

  // Every number that is trained differs from place to place and from step to step.
  void set(int64_t step) {
    uint64_t n = static_cast<uint64_t>(step) << 32;
    for_each_tensor([&](const Tensor& t) {
      // Numbers of any type whose top bit pairs are 00: small and finite.
      std::vector<std::byte> bytes(static_cast<size_t>(t.nbytes()));
      const auto size = static_cast<size_t>(size_of(t.dtype()));
      for (size_t i = 0; i < bytes.size(); i += size) {
        const uint64_t mixed = ++n * 0x9e3779b97f4a7c15u;
        for (size_t b = 0; b < size; ++b)
          bytes[i + b] = static_cast<std::byte>(mixed >> (8 * b + 24));
        bytes[i + size - 1] &= std::byte{0x3f};
      }
      model.queue.upload(t, bytes.data());
    });
    model.params.refresh_weights(model.queue);
    optimizer.restore(step);
  }

  // All bits of parameters, frozen ones too, masters and moments.
  std::string bits() {
    std::string all;
    for_each_tensor([&](const Tensor& t) {
      all.append(static_cast<const char*>(t.raw()), static_cast<size_t>(t.nbytes()));
    });
    const auto append = [&](const Tensor& t) {
      if (t) all.append(static_cast<const char*>(t.raw()), static_cast<size_t>(t.nbytes()));
    };
    for (int i = 0; i < model.params.count(); ++i) {
      append(model.params.weight(i));
      if (const QuantizedMatrix* m = model.params.quantized(i))
        for (const QuantizedPart& part : m->parts)
          for (const Tensor& t : {part.packed, part.absmax, part.scale}) append(t);
    }
    return all;
  }

  template <class Body>
  void for_each_tensor(const Body& body) {
    for (int i = 0; i < model.params.count(); ++i)
      if (model.params.spec().trainable(i)) body(model.params.stored(i));
    for (const SavedTensor& s : optimizer.state()) body(s.whole());
  }

  static TrainingState state(int64_t step) {
    TrainingState s;
    s.step = step;
    s.seed = 1337;
    s.epoch = 0.1 * static_cast<double>(step);
    s.samples = 32 * step;
    s.tokens = 4096 * step;
    s.padding = 100 * step;
    s.targets = 3000 * step;
    s.seconds = 1.0 / 3 * static_cast<double>(step);
    s.dataset_samples = 2000;
    s.dataset_fingerprint = "alpaca: 2000 samples";
    s.last_loss = 2.5 / static_cast<double>(step + 1);
    s.recipe = "train:\n  global_batch_size: 32\n";
    return s;
  }
  static SaveRequest request(const std::filesystem::path& dir, int64_t step) {
    SaveRequest r;
    r.dir = dir;
    r.state = state(step);
    r.extras = {ExtraFile::text("tokenizer.json", "{}\n")};
    return r;
  }
  void save(const std::filesystem::path& dir, int64_t step) {
    set(step);
    CheckpointSaver saver(model.queue, model.params, optimizer, nullptr);
    saver.save(request(dir, step));
  }

  Model model;
  Optimizer optimizer;
};

}  // namespace capstan
