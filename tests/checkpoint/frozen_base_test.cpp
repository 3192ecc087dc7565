#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/quick_folder.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/save_model.h"
#include "checkpoint/small_adapter.h"
#include "model/merge_adapters.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

TEST(LoadParameters, QuantizesTensorByTensorAsOneWouldByHand) {
  QuickFolder folder;
  Model base(small("LlamaForCausalLM"));
  for (const auto dtype : {DType::f32, DType::bf16, DType::f16})
    for (const auto kind : {Quantize::nf4, Quantize::fp4_dq, Quantize::int8}) {
      save_model(base.queue, base.params, folder / "base", {.dtype = dtype});
      SmallRun run(Precision::bf16_true, {}, kLora, kind),
          expected(Precision::bf16_true, {}, kLora, kind);
      const auto adapters = run.model.values(run.model.params.weight(run.model.params.count() - 1));
      load_parameters(run.model.queue, run.model.params, folder / "base");
      EXPECT_EQ(run.model.values(run.model.params.weight(run.model.params.count() - 1)), adapters);

      const SafetensorsFile file(folder / "base" / "model.safetensors");
      Parameters& params = expected.model.params;
      for (int i = 0; i < params.count(); ++i) {
        const Param& p = params.spec().params[static_cast<size_t>(i)];
        for (size_t k = 0; k < p.parts.size() && !p.adapter; ++k) {
          const StoredTensor& t = *file.find(p.parts[k].name);
          std::vector<std::byte> room, copy;
          const auto bytes = file.read(t, 0, t.numel(), room);
          copy.assign(bytes.begin(), bytes.end());
          Shape shape = p.shape;
          shape[0] = p.parts[k].rows;
          params.store_frozen(expected.model.queue, i, static_cast<int>(k),
                              Tensor(copy.data(), *t.type.dtype, shape));
        }
      }
      EXPECT_EQ(run.bits() == expected.bits(), true) << name_of(kind);
    }
}

TEST(LoadParameters, ReadsTensorsThatLieAtOddAddressesToQuantizeThem) {
  QuickFolder folder;
  Model base(small("LlamaForCausalLM"));
  save_model(base.queue, base.params, folder / "even");
  fs::create_directories(folder / "odd");
  fs::copy_file(folder / "even" / "config.json", folder / "odd" / "config.json");
  // One more space in the header moves all data by a byte.
  std::string bytes = read_text(folder / "even" / "model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  bytes.insert(8 + length, " ");
  ++length;
  std::memcpy(bytes.data(), &length, sizeof length);
  write_text(folder / "odd" / "model.safetensors", bytes);
  SmallRun even(Precision::f32_true, {}, kLora, Quantize::nf4),
      odd(Precision::f32_true, {}, kLora, Quantize::nf4);
  load_parameters(even.model.queue, even.model.params, folder / "even");
  load_parameters(odd.model.queue, odd.model.params, folder / "odd");
  EXPECT_EQ(even.bits() == odd.bits(), true);
}

TEST(LoadParameters, OnSimChecksAdaptersAndQuantizedRowsWithoutMemory) {
  QuickFolder folder;
  Model base(small("LlamaForCausalLM"));
  save_model(base.queue, base.params, folder / "base");
  SmallRun run(Precision::f32_true, {}, kLora);
  save(run, folder / "adapter", 1);
  Arena recording;
  Queue sim(Device::sim, recording);
  const ModelSpec spec = make_spec(small("LlamaForCausalLM"), Decay::all, kLora, Quantize::nf4);
  Parameters params(recording, spec, Precision::f32_true, Gradients::none);
  Optimizer optimizer(sim, params, {});
  EXPECT_NO_THROW(load_parameters(sim, params, folder / "base"));
  EXPECT_NO_THROW(load_adapter(sim, params, folder / "adapter"));
  EXPECT_EQ(load_checkpoint(sim, params, optimizer, folder / "adapter").step, 1);
  EXPECT_NE(message_of(Fault::file, [&] { load_parameters(sim, params, folder / "adapter"); })
                .find("found an adapter"),
            std::string::npos);
}

TEST(WriteModel, LeavesAdaptersOutAndRefusesQuantizedWeights) {
  QuickFolder folder;
  SmallRun run(Precision::bf16_mixed, {}, kLora);
  test::merge_adapters(run.model.queue, run.model.params);
  save_model(run.model.queue, run.model.params, folder / "merged");
  const SafetensorsFile file(folder / "merged" / "model.safetensors");
  EXPECT_EQ(file.tensors()[0].type.name, "BF16") << "as the frozen weights are stored";
  Model merged(small("LlamaForCausalLM"), Precision::bf16_true);
  load_parameters(merged.queue, merged.params, folder / "merged");
  for (int i = 0; i < merged.params.count(); ++i)
    EXPECT_EQ(merged.values(merged.params.weight(i)), run.model.values(run.model.params.weight(i)));
  SmallRun quantized(Precision::f32_true, {}, kLora, Quantize::nf4);
  EXPECT_NE(
      message_of(
          Fault::usage,
          [&] { save_model(quantized.model.queue, quantized.model.params, folder / "quantized"); })
          .find("is quantized as bnb.nf4"),
      std::string::npos);
}

}  // namespace
}  // namespace capstan
