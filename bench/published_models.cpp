#include "published_rows.h"

#include "base/error.h"
#include "model/known_models.h"
#include "plan/data_sheet.h"

namespace capstan::bench {
namespace {

// GPT has two matrices of 4h in its MLP. Three of 8h/3, which a gated one has, are as many
// parameters and FLOPs; rounded up to a multiple of 64.
ModelConfig gpt(int64_t vocab, int64_t hidden, int64_t heads, int64_t layers) {
  ModelConfig c;
  c.vocab = vocab;
  c.hidden = hidden;
  c.intermediate = (8 * hidden / 3 + 63) / 64 * 64;
  c.layers = layers;
  c.heads = c.kv_heads = heads;
  c.head_dim = hidden / heads;
  c.max_positions = 2048;
  c.tied = true;
  return c;
}

struct Shape {
  std::string_view name;
  int64_t vocab, hidden, heads, layers;
};
constexpr Shape kShapes[] = {
    {"gpt-22b", 51200, 6144, 64, 48},     {"gpt-175b", 51200, 12288, 96, 96},
    {"gpt-530b", 51200, 20480, 128, 105}, {"gpt-1t", 51200, 25600, 160, 128},
    {"mpt-1b", 50368, 2048, 16, 24},      {"mpt-3b", 50368, 2560, 20, 32},
    {"mpt-7b", 50368, 4096, 32, 32},      {"mpt-13b", 50368, 5120, 40, 40},
    {"mpt-30b", 50368, 7168, 56, 48},     {"mpt-70b", 50368, 8192, 64, 80}};

double parameters_of(const ModelConfig& c) {
  const int64_t block =
      2 * c.hidden * (c.q_width() + c.kv_width()) + 3 * c.hidden * c.intermediate + 2 * c.hidden;
  return static_cast<double>(c.layers * block + (c.tied ? 1 : 2) * c.vocab * c.hidden + c.hidden);
}

}  // namespace

ModelConfig model_of(const PublishedRow& row) {
  for (const Shape& s : kShapes)
    if (s.name == row.model) return gpt(s.vocab, s.hidden, s.heads, s.layers);
  const auto known = known_model(row.model);
  require(known.has_value(), Fault::bug, "published rows: no model '{}'", row.model);
  return *known;
}

GpuModel gpu_of(const PublishedRow& row) {
  if (row.gpu != kLowPowerH100) return gpu_catalogue().named(row.gpu);
  GpuModel gpu = gpu_catalogue().named("h100-sxm");
  gpu.watts = 500;
  gpu.bytes = int64_t{96} << 30;
  gpu.bytes_per_second = 2.4e12;
  return gpu;
}

double flops_per_token(const PublishedRow& row) {
  const ModelConfig c = model_of(row);
  const auto h = static_cast<double>(c.hidden), layers = static_cast<double>(c.layers);
  const auto s = static_cast<double>(row.length), v = static_cast<double>(c.vocab);
  if (row.flops == Flops::megatron)
    return 72 * layers * h * h * (1 + s / (6 * h) + v / (12 * h * layers));
  return 6 * parameters_of(c) + 12 * layers * h * s;
}

double peak_of(const PublishedRow& row) {
  return row.gpu == kLowPowerH100 ? gpu_catalogue().named("h100-sxm").narrow : gpu_of(row).narrow;
}

double published_rate(const PublishedRow& row) {
  return row.tokens_per_second > 0 ? row.tokens_per_second
                                   : row.utilization * peak_of(row) / flops_per_token(row);
}

}  // namespace capstan::bench
