#include "bench/sizes.h"

namespace capstan {
namespace {

ModelConfig model_of(int64_t hidden, int64_t inner, int64_t layers, int64_t heads, int64_t kv_heads,
                     int64_t vocab) {
  ModelConfig c;
  c.hidden = hidden;
  c.intermediate = inner;
  c.layers = layers;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = hidden / heads;
  c.vocab = vocab;
  return c;
}

BenchSizes gpu_sizes() {
  BenchSizes s;
  s.squares = {4096, 8192};
  s.tokens = 4096, s.hidden = 2048, s.inner = 5632;
  s.head_tokens = 4096, s.vocab = 32000;
  s.documents = {{8, 512}, {1, 8192}}, s.heads = 32, s.kv_heads = 4, s.head_dim = 64;
  s.copied = int64_t{512} << 20;
  s.steps = {{model_of(2048, 5632, 4, 32, 4, 32000), 2, 2048}};
  s.seconds = 0.2;
  s.patience = 5;
  s.limit = 60;
  return s;
}

BenchSizes cpu_sizes() {
  BenchSizes s;
  s.squares = {1024};
  s.tokens = 512, s.hidden = 768, s.inner = 2048;
  s.head_tokens = 128, s.vocab = 32000;
  s.documents = {{4, 256}}, s.heads = 12, s.kv_heads = 12, s.head_dim = 64;
  s.copied = int64_t{128} << 20;
  // Wide and narrow, long and short, with large and small vocabularies and both kinds of updates,
  // like real recipes.
  s.steps = {{model_of(512, 1408, 6, 8, 8, 8192), 4, 256},
             {model_of(256, 704, 4, 8, 4, 4096), 4, 64, Recompute::block, 2, true},
             {model_of(128, 352, 4, 4, 4, 512), 4, 256},
             {model_of(768, 2048, 1, 12, 12, 512), 1, 256, Recompute::selective},
             {model_of(192, 512, 2, 6, 6, 32000), 2, 64, Recompute::none, 2},
             {model_of(128, 352, 2, 4, 4, 32000), 2, 512},
             {model_of(384, 1024, 3, 12, 12, 4096), 8, 128, Recompute::block}};
  s.seconds = 0.8;
  s.patience = 1;
  s.turns = 3;
  s.limit = 120;
  return s;
}

}  // namespace

BenchSizes bench_sizes(Device device, bool quick) {
  BenchSizes s = device == Device::cuda ? gpu_sizes() : cpu_sizes();
  if (!quick) return s;
  s.seconds /= 8;
  s.patience /= 4;
  s.limit /= 4;
  s.squares.resize(1);
  if (device == Device::cuda) return s;
  s.tokens /= 2, s.head_tokens /= 2, s.documents.front().count /= 2;
  s.copied /= 4;
  return s;
}

}  // namespace capstan
