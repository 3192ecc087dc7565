#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "model/config.h"
#include "plan/gpu_catalogue.h"
#include "recipe/recipe.h"

// Steps that others have published, with their layouts as a recipe has them. Where a layout was not
// published, or where Capstan has no equal, `note` is the number of a remark in docs/planner.md.
namespace capstan::bench {

// How the source of a row counts the FLOPs of a token.
enum class Flops : uint8_t {
  none,      // it gives no utilization
  megatron,  // 72 L h² (1 + s / 6h + V / 12hL)
  palm,      // 6 N + 12 L h s
};

// H100 with 96 GB of slower memory (2.4 TB/s) and a limit of 500 W, which torchtitan was measured
// on.
inline constexpr const char* kLowPowerH100 = "h100-96-500w";

struct PublishedRow {
  std::string_view id;  // "foundry-7b-8"
  std::string_view model;
  std::string_view gpu;  // of the catalogue, or one of gpu_of
  int gpus = 8;
  int64_t length = 2048, micro_batch = 1, batch = 1;  // tokens of a sample; samples
  Strategy strategy = Strategy::zero3;
  int tensor = 1, stages = 1, chunks = 1, context = 1;
  Precision precision = Precision::bf16_mixed;
  std::string_view recompute = "none";
  bool overlap = false;  // of what ranks that share each layer exchange
  Flops flops = Flops::none;
  // Published, of each GPU. If it is 0, a utilization was, of the peak of dense bf16 products.
  double tokens_per_second = 0, utilization = 0;
  double gib = 0;  // published; 0: it was not
  int note = 0;
};

struct PublishedSource {
  std::string_view name;
  std::span<const PublishedRow> rows;
  bool pytorch = false;  // its kernels are PyTorch's own, or compiled by it
};
std::span<const PublishedSource> published_sources();

// Rows of one program on few and on many GPUs: what does each GPU keep of its throughput?
struct Scaling {
  std::string_view from, to;
};
std::span<const Scaling> published_scaling();

ModelConfig model_of(const PublishedRow& row);
GpuModel gpu_of(const PublishedRow& row);
// GPUs of one machine.
inline int per_machine(const PublishedRow& row) {
  return row.gpus < 8 ? row.gpus : 8;
}
// Of a token, by the convention of the row's source.
double flops_per_token(const PublishedRow& row);
// What was published, in tokens/s of each GPU.
double published_rate(const PublishedRow& row);
// Of dense bf16 products, by the data sheet at its full power.
double peak_of(const PublishedRow& row);

}  // namespace capstan::bench
