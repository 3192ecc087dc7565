#include "published_rows.h"

namespace capstan::bench {
namespace {

using enum Flops;
constexpr Precision kMixed = Precision::bf16_mixed, kFp8 = Precision::fp8_mixed;
constexpr const char *kA100 = "a100-80-sxm", *kH100 = "h100-sxm", *kH100At500 = kLowPowerH100;

// arXiv 2205.05198: 8 ranks share each layer; selective recomputation, sequence parallelism.
constexpr PublishedRow kMegatron[] = {
    {.id = "megatron-22b",
     .model = "gpt-22b",
     .gpu = kA100,
     .micro_batch = 4,
     .batch = 4,
     .tensor = 8,
     .recompute = "selective",
     .flops = megatron,
     .tokens_per_second = 4 * 2048 / 1.10 / 8},
    {.id = "megatron-175b",
     .model = "gpt-175b",
     .gpu = kA100,
     .gpus = 64,
     .batch = 64,
     .tensor = 8,
     .stages = 8,
     .chunks = 3,
     .recompute = "selective",
     .flops = megatron,
     .tokens_per_second = 64 * 2048 / 13.75 / 64},
    {.id = "megatron-530b",
     .model = "gpt-530b",
     .gpu = kA100,
     .gpus = 280,
     .batch = 280,
     .tensor = 8,
     .stages = 35,
     .chunks = 3,
     .recompute = "selective",
     .flops = megatron,
     .utilization = 0.560,
     .note = 1},
    {.id = "megatron-1t",
     .model = "gpt-1t",
     .gpu = kA100,
     .gpus = 512,
     .batch = 512,
     .tensor = 8,
     .stages = 64,
     .recompute = "selective",
     .flops = megatron,
     .tokens_per_second = 512 * 2048 / 71.49 / 512},
};

constexpr PublishedRow mpt(std::string_view id, std::string_view model, std::string_view gpu,
                           int gpus, int64_t micro_batch, int64_t micro_batches,
                           double tokens_per_second, std::string_view recompute = "none") {
  return {.id = id,
          .model = model,
          .gpu = gpu,
          .gpus = gpus,
          .micro_batch = micro_batch,
          .batch = micro_batch * micro_batches * gpus,
          .recompute = recompute,
          .flops = palm,
          .tokens_per_second = tokens_per_second};
}
constexpr PublishedRow kFoundry[] = {
    mpt("foundry-a100-7b", "mpt-7b", kA100, 8, 6, 2, 4641),
    mpt("foundry-a100-13b", "mpt-13b", kA100, 8, 2, 3, 2262),
    mpt("foundry-a100-30b", "mpt-30b", kA100, 8, 3, 21, 916, "block"),
    mpt("foundry-1b-8", "mpt-1b", kH100, 8, 14, 1, 45455),
    mpt("foundry-1b-64", "mpt-1b", kH100, 64, 20, 1, 44402),
    mpt("foundry-3b-16", "mpt-3b", kH100, 16, 10, 3, 24142),
    mpt("foundry-3b-64", "mpt-3b", kH100, 64, 6, 3, 22525),
    mpt("foundry-7b-8", "mpt-7b", kH100, 8, 6, 1, 10643),
    mpt("foundry-7b-128", "mpt-7b", kH100, 128, 6, 1, 10475),
    mpt("foundry-7b-512", "mpt-7b", kH100, 512, 6, 1, 9670),
    mpt("foundry-70b-32", "mpt-70b", kH100, 32, 2, 16, 882, "block"),
    mpt("foundry-70b-64", "mpt-70b", kH100, 64, 8, 4, 1039, "block"),
    mpt("foundry-70b-128", "mpt-70b", kH100, 128, 8, 1, 1058, "block"),
    mpt("foundry-70b-512", "mpt-70b", kH100, 512, 8, 1, 1007, "block"),
};

constexpr PublishedRow llama8b(std::string_view id, std::string_view gpu, int gpus,
                               int64_t micro_batch, Precision precision, double tokens_per_second,
                               double gib) {
  return {.id = id,
          .model = "Llama-3.1-8B",
          .gpu = gpu,
          .gpus = gpus,
          .length = 8192,
          .micro_batch = micro_batch,
          .batch = micro_batch * gpus,
          .precision = precision,
          .recompute = "block:12",
          .flops = precision == kMixed ? palm : none,
          .tokens_per_second = tokens_per_second,
          .gib = gib,
          .note = 5};
}
constexpr PublishedRow llama8b_shared(std::string_view id, bool overlap, double tokens_per_second) {
  PublishedRow row = llama8b(id, kH100At500, 64, 12, kMixed, tokens_per_second, 0);
  row.batch = 12 * 8;
  row.tensor = 8;
  row.overlap = overlap;
  return row;
}
constexpr PublishedRow llama405b(std::string_view id, int chunks, double tokens_per_second,
                                 double gib) {
  return {.id = id,
          .model = "Llama-3.1-405B",
          .gpu = kH100At500,
          .gpus = 512,
          .length = 8192,
          .micro_batch = 4,
          .batch = 256,
          .strategy = Strategy::zero1,
          .tensor = 8,
          .stages = 8,
          .chunks = chunks,
          .precision = kFp8,
          .recompute = "block",
          .tokens_per_second = tokens_per_second,
          .gib = gib,
          .note = 6};
}
constexpr PublishedRow kTorchtitan[] = {
    llama8b("titan-a100-8b", kA100, 64, 1, kMixed, 2973, 0),
    {.id = "titan-a100-70b",
     .model = "Meta-Llama-3-70B",
     .gpu = kA100,
     .gpus = 64,
     .length = 8192,
     .batch = 64,
     .recompute = "block",
     .flops = palm,
     .tokens_per_second = 331},
    llama8b("titan-8b-8", kH100At500, 8, 2, kMixed, 6667, 77.0),
    llama8b("titan-8b-128", kH100At500, 128, 2, kMixed, 6514, 62.0),
    llama8b("titan-fp8-8b-8", kH100At500, 8, 2, kFp8, 8532, 76.8),
    llama8b("titan-fp8-8b-128", kH100At500, 128, 2, kFp8, 8380, 61.8),
    llama8b_shared("titan-tp-8b", false, 4378),
    llama8b_shared("titan-async-8b", true, 4809),
    llama405b("titan-405b", 1, 100, 82.5),
    llama405b("titan-405b-interleaved", 2, 128, 72.7),
    llama8b("titan-h200-8b-32", "h200", 32, 2, kFp8, 10938, 47.96),
    llama8b("titan-h200-8b-64", "h200", 64, 2, kFp8, 10753, 46.97),
};

constexpr PublishedRow kBridge[] = {
    {.id = "bridge-8b",
     .model = "Llama-3.1-8B",
     .gpu = kH100,
     .length = 8192,
     .batch = 128,
     .precision = kFp8,
     .recompute = "block:5",
     .tokens_per_second = 14451},
    {.id = "bridge-70b",
     .model = "Meta-Llama-3-70B",
     .gpu = kH100,
     .gpus = 64,
     .length = 8192,
     .batch = 128,
     .strategy = Strategy::zero1,
     .tensor = 4,
     .stages = 8,
     .chunks = 5,
     .precision = kFp8,
     .tokens_per_second = 1602,
     .note = 3},
    {.id = "bridge-405b",
     .model = "Llama-3.1-405B",
     .gpu = kH100,
     .gpus = 1024,
     .length = 8192,
     .batch = 512,
     .strategy = Strategy::zero1,
     .tensor = 8,
     .stages = 8,
     .chunks = 8,
     .context = 2,
     .precision = kFp8,
     .tokens_per_second = 292,
     .note = 3},
};

// The utilization was published, and tokens follow by the formula. 96 GPUs are taken for one copy
// of the model.
constexpr PublishedRow gpt_on_h100(std::string_view id, int gpus, double utilization) {
  return {.id = id,
          .model = "gpt-175b",
          .gpu = kH100,
          .gpus = gpus,
          .batch = 1152,
          .strategy = Strategy::zero1,
          .tensor = 8,
          .stages = 12,
          .chunks = 8,
          .flops = megatron,
          .utilization = utilization,
          .note = 2};
}
constexpr PublishedRow kMegatronH100[] = {
    gpt_on_h100("megatron-h100-96", 96, 0.47),
    gpt_on_h100("megatron-h100-4608", 4608, 0.42),
};

constexpr PublishedRow qwen(std::string_view id, std::string_view model, std::string_view gpu,
                            int gpus, int64_t micro_batch, Strategy strategy,
                            std::string_view recompute, double tokens_per_second) {
  return {.id = id,
          .model = model,
          .gpu = gpu,
          .gpus = gpus,
          .length = 1024,
          .micro_batch = micro_batch,
          .batch = 512,
          .strategy = strategy,
          .precision = Precision::bf16_true,
          .recompute = recompute,
          .tokens_per_second = tokens_per_second / gpus};
}
constexpr Strategy kOffload{Strategy::ddp, true}, kZero3Offload{Strategy::zero3, true};
// 47% of what it would do if products alone took time, at their peak.
constexpr PublishedRow llmq_l40s() {
  PublishedRow row = qwen("llmq-l40s", "Qwen2.5-7B", "l40s", 1, 16, kOffload, "block", 3960);
  row.note = 4;
  return row;
}
constexpr PublishedRow kLlmq[] = {
    qwen("llmq-h100", "Qwen2.5-7B", kH100, 1, 4, Strategy::ddp, "none", 13800),
    qwen("llmq-h100-8", "Qwen2.5-7B", kH100, 8, 8, Strategy::zero1, "none", 112000),
    llmq_l40s(),
    qwen("llmq-4090", "Qwen2.5-7B", "rtx4090", 1, 16, kOffload, "block", 2775),
    qwen("llmq-4090-4", "Qwen2.5-7B", "rtx4090", 4, 16, kZero3Offload, "block", 10900),
    qwen("llmq-4090-4-14b", "Qwen2.5-14B", "rtx4090", 4, 32, kZero3Offload, "block", 5260),
    qwen("llmq-4090-4-32b", "Qwen2.5-32B", "rtx4090", 4, 32, kZero3Offload, "block", 2205),
};

// 1,600 samples in so many seconds, padded to the longest of their batch; that all have 512 tokens
// is a guess. One GPU takes a step for every four samples, or accumulates what four GPUs have.
constexpr PublishedRow lab(std::string_view id, int gpus, int64_t micro_batch, int64_t batch,
                           Strategy strategy, double seconds) {
  return {.id = id,
          .model = "open_llama_7b",
          .gpu = "a100-80-pcie",
          .gpus = gpus,
          .length = 512,
          .micro_batch = micro_batch,
          .batch = batch,
          .strategy = strategy,
          .precision = Precision::bf16_true,
          .tokens_per_second = 1600 * 512 / seconds / gpus,
          .note = 7};
}
constexpr PublishedRow kLab[] = {
    lab("lab-1", 1, 4, 4, Strategy::ddp, 212),
    lab("lab-1-accumulating", 1, 4, 16, Strategy::ddp, 165),
    lab("lab-ddp-4", 4, 4, 16, Strategy::ddp, 163),
    lab("lab-fsdp-4", 4, 4, 16, Strategy::zero3, 173),
    lab("lab-fsdp-4-batch-8", 4, 8, 32, Strategy::zero3, 116),
};

constexpr PublishedSource kSources[] = {
    {"Megatron-LM", kMegatron},      {"Megatron-LM, H100", kMegatronH100},
    {"Megatron-Bridge", kBridge},    {"LLMQ", kLlmq},
    {"llm-foundry", kFoundry, true}, {"torchtitan", kTorchtitan, true},
    {"LitGPT, at a lab", kLab, true}};

constexpr Scaling kScaling[] = {{"foundry-7b-8", "foundry-7b-128"},
                                {"foundry-7b-128", "foundry-7b-512"},
                                {"foundry-70b-128", "foundry-70b-512"},
                                {"foundry-1b-8", "foundry-1b-64"},
                                {"foundry-3b-16", "foundry-3b-64"},
                                {"titan-8b-8", "titan-8b-128"},
                                {"titan-fp8-8b-8", "titan-fp8-8b-128"},
                                {"titan-h200-8b-32", "titan-h200-8b-64"},
                                {"llmq-h100", "llmq-h100-8"},
                                {"llmq-4090", "llmq-4090-4"},
                                {"lab-1", "lab-ddp-4"},
                                {"lab-1", "lab-fsdp-4"},
                                {"lab-1", "lab-fsdp-4-batch-8"},
                                {"megatron-h100-96", "megatron-h100-4608"}};

}  // namespace

std::span<const PublishedSource> published_sources() {
  return kSources;
}
std::span<const Scaling> published_scaling() {
  return kScaling;
}

}  // namespace capstan::bench
