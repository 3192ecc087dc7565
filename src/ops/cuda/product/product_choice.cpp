// Chooses the method of a product: measured once, and stored.
#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "base/log.h"
#include "ops/cuda/product/product.h"
#include "tensor/cuda/check.h"

namespace capstan::cuda {
namespace {

constexpr int kProposals = 8;
// Another method must beat the first heuristic by more than the noise.
constexpr double kGain = 0.99;
// Smaller products finish in a few microseconds.
constexpr double kFewestFlops = 4e9, kFewestBytes = 16 << 20;
// If c is added to, it is saved in host memory while measurements overwrite it.
constexpr int64_t kMostSaved = int64_t{512} << 20;

// Dimensions rounded up to four significant bits. A matrix's width is also in its stride, which
// stays exact: only the exact length of a batch is lost.
ProductKey family_of(ProductKey key) {
  for (size_t i = 0; i < 3; ++i) {
    const auto n = static_cast<uint64_t>(key.fields[i]);
    const int dropped = std::max(0, static_cast<int>(std::bit_width(n)) - 4);
    const uint64_t step = uint64_t{1} << dropped;
    key.fields[i] = static_cast<int64_t>((n + step - 1) / step * step);
  }
  return key;
}

class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {
    check(cudaEventCreate(&begin_), "make an event");
    if (const cudaError_t status = cudaEventCreate(&end_); status != cudaSuccess) {
      cudaEventDestroy(begin_);
      check(status, "make an event");
    }
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }

  // Milliseconds of device time for what `work` enqueues on the stream.
  template <class Work>
  double time(const Work& work) const {
    check(cudaEventRecord(begin_, stream_), "measure");
    work();
    check(cudaEventRecord(end_, stream_), "measure");
    check(cudaEventSynchronize(end_), "measure a product");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_, end_), "measure");
    return double{milliseconds};
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// Saves a matrix's values in host memory while others replace them.
class SavedMatrix {
 public:
  // Check ok() before writing to the matrix.
  SavedMatrix(Context& context, const Tensor& t)
      : context_(context),
        matrix_(t),
        copy_(new (std::nothrow) std::byte[static_cast<size_t>(t.nbytes())]) {
    if (ok()) copy(copy_.get(), width(), matrix_.raw(), pitch(), "save a matrix");
  }
  bool ok() const { return copy_ != nullptr; }
  void restore() { copy(matrix_.raw(), pitch(), copy_.get(), width(), "restore a matrix"); }

 private:
  // A matrix without gaps is one long row.
  int64_t rows() const { return matrix_.contiguous() ? 1 : matrix_.dim(0); }
  size_t width() const { return static_cast<size_t>(matrix_.nbytes() / rows()); }
  size_t pitch() const {
    const int64_t gapped = matrix_.stride(0) * size_of(matrix_.dtype());
    return matrix_.contiguous() ? width() : static_cast<size_t>(gapped);
  }
  void copy(void* to, size_t to_pitch, const void* from, size_t from_pitch, const char* doing) {
    check(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width(), static_cast<size_t>(rows()),
                            cudaMemcpyDefault, context_.stream()),
          doing);
    check(cudaStreamSynchronize(context_.stream()), doing);
  }

  Context& context_;
  Tensor matrix_;
  std::unique_ptr<std::byte[]> copy_;
};

double median(std::vector<double> times) {
  const auto middle = times.begin() + std::ssize(times) / 2;
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// The fastest. Candidates alternate, so that a changing clock affects all of them.
size_t fastest(Context& context, const Product& product,
               const std::vector<ProductMethod>& candidates, std::byte* workspace) {
  constexpr double kLongest = std::numeric_limits<double>::infinity();  // ms
  constexpr double kSpan = 0.2, kFarBehind = 1.2, kNoise = 0.01;
  const Stopwatch watch(context.stream());
  std::vector<bool> works(candidates.size(), true);
  const auto time = [&](size_t i, int calls) {
    const double ms = watch.time([&] {
      for (int n = 0; n < calls; ++n)
        if (!product.try_multiply(context, candidates[i], workspace)) works[i] = false;
    });
    if (works[i]) return ms / calls;
    cudaGetLastError();  // reported here, so clear it for the next call
    return kLongest;
  };
  // The first call of each may have to load it. Candidates that are far behind are dropped.
  std::vector<double> warm(candidates.size(), kLongest);
  for (int warm_up = 0; warm_up < 2; ++warm_up)
    for (size_t i = 0; i < candidates.size(); ++i)
      if (works[i]) warm[i] = std::min(warm[i], time(i, 1));
  for (size_t i = 0; i < candidates.size(); ++i)
    if (!works[i]) warm[i] = kLongest;
  const double shortest = *std::min_element(warm.begin(), warm.end());
  for (size_t i = 1; i < candidates.size(); ++i)
    if (warm[i] > shortest * kFarBehind + kNoise) works[i] = false;
  const int calls = static_cast<int>(std::clamp(kSpan / std::max(shortest, 1e-3), 1.0, 50.0));
  const int rounds = shortest > 5 ? 3 : 7;
  std::vector<std::vector<double>> times(candidates.size());
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < candidates.size(); ++i)
      if (works[i]) times[i].push_back(time(i, calls));
  const auto result = [&](size_t i) { return works[i] ? median(times[i]) : kLongest; };
  size_t best = 0;
  double least = result(0) * kGain;
  for (size_t i = 1; i < candidates.size(); ++i)
    if (const double t = result(i); t < least) best = i, least = t;
  return best;
}

ProductMethod measured(Context& context, const Product& product, std::byte* workspace) {
  auto candidates = product.proposals(context, kProposals);
  if (wgmma_product_suits(product.result()) && product.takes(context, WgmmaKernel{})) {
    if (context.favours_wgmma()) return WgmmaKernel{};
    candidates.emplace_back(WgmmaKernel{});
  }
  if (candidates.size() == 1) return candidates[0];
  check(cudaStreamSynchronize(context.stream()), "finish its work");
  if (!product.adds()) return candidates[fastest(context, product, candidates, workspace)];
  SavedMatrix before(context, product.result());
  if (!before.ok()) return candidates[0];
  const size_t best = fastest(context, product, candidates, workspace);
  before.restore();
  return candidates[best];
}

bool worth_measuring(const Product& p) {
  return (p.flops() >= kFewestFlops || p.bytes() >= kFewestBytes) &&
         (!p.adds() || p.result().nbytes() <= kMostSaved);
}

// While a graph is recorded nothing runs, and nothing can be waited for.
bool recording(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "ask for a stream's state");
  return status != cudaStreamCaptureStatusNone;
}

// The cached method for products like this one, measured if missing; nothing without a cache.
std::optional<ProductMethod> cached(Context& context, const Product& product,
                                    std::byte* workspace) {
  ProductCache* const cache = context.product_cache();
  if (cache == nullptr || !worth_measuring(product)) return std::nullopt;
  const ProductKey family = family_of(product.key());
  if (const ProductAlgorithm* found = cache->find(family)) return method_of(*found);
  if (!cache->writable()) return std::nullopt;
  // A choice made here might differ from what the next run reads.
  require(!recording(context.stream()), Fault::bug,
          "a product of {} is met for the first time while a graph is recorded",
          product.result().shape());
  const auto begin = std::chrono::steady_clock::now();
  // A product that adds uses the method of the one that replaces, if known: only their epilogues
  // differ, and a step's first micro-batch replaces a gradient before any other adds to it.
  const ProductAlgorithm* const like =
      product.adds() ? cache->find(family_of(product.replacing_key())) : nullptr;
  const bool known = like != nullptr && product.takes(context, method_of(*like));
  const ProductAlgorithm winner = known ? *like : kept(measured(context, product, workspace));
  // Used only once it is on disk: so the next run finds it there, or this run does not use it
  // either.
  std::optional<ProductMethod> decided;
  try {
    decided = method_of(cache->keep(family, winner));
  } catch (const Error& e) {
    cache->close();
    log::warn("no more matrix products are measured, because the result cannot be kept: {}",
              e.what());
    return std::nullopt;
  }
  if (!known)
    context.note_measured(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return decided;
}

}  // namespace

const ProductMethod& method_for(Context& context, const Product& product, std::byte* workspace) {
  if (const auto* known = context.find_method(product.key())) return *known;
  const auto found = cached(context, product, workspace);
  const auto chosen =
      found && product.takes(context, *found) ? *found : product.proposals(context, 1)[0];
  return *context.keep_method(product.key(), chosen);
}

}  // namespace capstan::cuda
