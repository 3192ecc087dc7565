// Attention of a query over the KV cache: decoding. One token has as many queries as the model has
// heads, far fewer than a GPU has warps; so the warps of a block share the keys of one query and
// combine their results at the end. With many queries, as for a prompt, each warp has its own.
#include <algorithm>
#include <iterator>

#include "ops/cuda/attention/attention.cuh"

namespace capstan::cuda {
namespace {

constexpr int kWarps = 16;  // per block
constexpr int kMostChannels = 256;

// A team of kLanes lanes processes one key at a time. Lane l has channels kWidth l … of each kWidth
// kLanes, kEach times; those past D are zeros.
template <class T, int kWidth, int kLanes, int kEach>
struct TeamOf {
  static constexpr int kTeams = 32 / kLanes;         // per warp
  static constexpr int kAtOnce = kEach > 2 ? 2 : 4;  // keys that are loaded together
  using Row = float[kEach][kWidth];
  using Packed = Pack<T, kWidth>[kEach];  // in memory format

  static __device__ int lane() { return static_cast<int>(threadIdx.x) % kLanes; }
  static __device__ int in_warp() { return static_cast<int>(threadIdx.x) % 32 / kLanes; }
  static __device__ int channel(int i) { return (i * kLanes + lane()) * kWidth; }

  static __device__ void read(Packed& to, const T* row, int D) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      to[i] = {};
      if (channel(i) < D) to[i] = *reinterpret_cast<const Pack<T, kWidth>*>(row + channel(i));
    }
  }
  static __device__ void unpack(Row& to, const Packed& from) {
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
      for (int k = 0; k < kWidth; ++k) to[i][k] = to_float(from[i].value[k]);
  }
};

// exp(x - most), for x <= most. Before the first key both are -inf.
__device__ float relative(float x, float most) {
  return x == -INFINITY ? 0.0f : __expf(x - most);
}

// A softmax over some of a query's keys, and the sum of their values weighted by exp(score - most).
template <class Team>
struct Attended {
  float most = -INFINITY, sum = 0;
  typename Team::Row out = {};

  // Rescales for scores of up to `high`.
  __device__ void rise_to(float high) {
    const float shrink = relative(most, high);
    most = high;
    sum *= shrink;
#pragma unroll
    for (auto& pack : out)
#pragma unroll
      for (float& x : pack) x *= shrink;
  }
  __device__ void add(float p, const typename Team::Row& values) {
    sum += p;
#pragma unroll
    for (size_t i = 0; i < std::size(out); ++i)
#pragma unroll
      for (size_t k = 0; k < std::size(out[i]); ++k) out[i][k] += p * values[i][k];
  }
  // Combines with the lanes `step` away, which do the same.
  __device__ void merge(int step) {
    const auto add_there = [step](float& x) { x += __shfl_xor_sync(0xffffffff, x, step); };
    rise_to(fmaxf(most, __shfl_xor_sync(0xffffffff, most, step)));
    add_there(sum);
#pragma unroll
    for (auto& pack : out)
#pragma unroll
      for (float& x : pack) add_there(x);
  }
};

// A warp's teams process the keys [begin, end) together: kAtOnce per team, then the next `stride`
// further on. The first team gets the combined result.
template <class T, class Team>
__device__ Attended<Team> attend(const T* query, const Heads<T>& k, const Heads<T>& v, int key_head,
                                 int begin, int end, int stride, int D, float scale) {
  constexpr int kAtOnce = Team::kAtOnce;
  Attended<Team> all;
  typename Team::Packed packed;
  typename Team::Row q;
  Team::read(packed, query, D);
  Team::unpack(q, packed);
  for (int first = begin; first < end; first += stride) {
    typename Team::Packed keys[kAtOnce], values[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      // Keys past the end are read as the last one.
      const int key = min(first + Team::in_warp() * kAtOnce + i, end - 1);
      Team::read(keys[i], k.at(key, key_head), D);
      Team::read(values[i], v.at(key, key_head), D);
    }
    float scores[kAtOnce], high = all.most;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      typename Team::Row row;
      Team::unpack(row, keys[i]);
      float dot = 0;
#pragma unroll
      for (size_t j = 0; j < std::size(row); ++j)
#pragma unroll
        for (size_t c = 0; c < std::size(row[j]); ++c) dot += q[j][c] * row[j][c];
#pragma unroll
      for (int step = 32 / Team::kTeams / 2; step > 0; step /= 2)
        dot += __shfl_xor_sync(0xffffffff, dot, step);
      const bool there = first + Team::in_warp() * kAtOnce + i < end;
      scores[i] = there ? scale * dot : -INFINITY;
      high = fmaxf(high, scores[i]);
    }
    all.rise_to(high);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      typename Team::Row row;
      Team::unpack(row, values[i]);
      all.add(relative(scores[i], high), row);
    }
  }
#pragma unroll
  for (int step = 16; step >= 32 / Team::kTeams; step /= 2) all.merge(step);
  return all;
}

// kSharing warps share a query: all of a block, or each has its own.
template <class T, int kWidth, int kLanes, int kEach, int kSharing>
__global__ void __launch_bounds__(32 * kWarps)
    attention_cached_kernel(Heads<T> o, Heads<T> q, Heads<T> k, Heads<T> v, int start, int window,
                            AttentionShape s) {
  using Team = TeamOf<T, kWidth, kLanes, kEach>;
  static_assert(kSharing == 1 || kSharing == kWarps);
  constexpr int kStep = Team::kTeams * Team::kAtOnce;  // keys per warp
  const int warp = static_cast<int>(threadIdx.x) / 32, share = warp % kSharing;
  const int64_t query = (int64_t{blockIdx.x} * kWarps + warp) / kSharing;
  const int t = static_cast<int>(query / s.H), h = static_cast<int>(query % s.H);
  if (t >= s.T) return;
  const int end = start + t + 1, begin = window > 0 ? max(0, end - window) : 0;
  const Attended<Team> mine = attend<T, Team>(q.at(t, h), k, v, h / s.group, begin + share * kStep,
                                              end, kSharing * kStep, s.D, s.scale);
  T* const row = o.at(t, h);
  if constexpr (kSharing == 1) {
    if (Team::in_warp() > 0) return;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      float out[kWidth];
#pragma unroll
      for (int c = 0; c < kWidth; ++c) out[c] = mine.out[i][c] / mine.sum;
      if (Team::channel(i) < s.D) store(row + Team::channel(i), out);
    }
  } else {
    __shared__ float most[kWarps], sums[kWarps], outs[kWarps][kMostChannels];
    if (Team::in_warp() == 0) {
#pragma unroll
      for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int c = 0; c < kWidth; ++c)
          if (Team::channel(i) < s.D) outs[warp][Team::channel(i) + c] = mine.out[i][c];
      if (Team::lane() == 0) {
        most[warp] = mine.most;
        sums[warp] = mine.sum;
      }
    }
    __syncthreads();
    const int channel = static_cast<int>(threadIdx.x);
    if (channel >= s.D) return;
    float high = -INFINITY, sum = 0, out = 0;
    for (int w = 0; w < kWarps; ++w) high = fmaxf(high, most[w]);
    for (int w = 0; w < kWarps; ++w) {
      const float p = relative(most[w], high);
      sum += p * sums[w];
      out += p * outs[w][channel];
    }
    row[channel] = from_float<T>(out / sum);
  }
}

}  // namespace

void attention_cached(Queue& q, const Tensor& o, const Tensor& query, const Tensor& k,
                      const Tensor& v, int64_t start, int64_t window, float scale) {
  if (query.numel() == 0) return;
  const AttentionMask mask;
  const AttentionShape s = AttentionInputs{query, k, v, mask, scale}.shape();
  require_channels(s.D, kMostChannels);
  const int64_t queries = int64_t{s.T} * s.H;
  // With one block each there are enough warps for all SMs.
  const bool few = queries < 4 * int64_t{q.cuda().multiprocessors()};
  with_type(query.dtype(), [&]<class T>() {
    const auto launch = [&]<int kWidth, int kLanes, int kEach>() {
      const auto kernel = few ? attention_cached_kernel<T, kWidth, kLanes, kEach, kWarps>
                              : attention_cached_kernel<T, kWidth, kLanes, kEach, 1>;
      const int64_t blocks = few ? queries : blocks_for(queries, kWarps);
      kernel<<<static_cast<unsigned>(blocks), 32 * kWarps, 0, stream_of(q)>>>(
          heads<T>(o), heads<T>(query), heads<T>(k), heads<T>(v), static_cast<int>(start),
          static_cast<int>(window), s);
    };
    constexpr int kWidth = kPack<T>;
    if (!packs(kWidth, o, query, k, v)) return launch.template operator()<1, 32, 8>();
    with_width<8 * kWidth, 16 * kWidth, 32 * kWidth, 64 * kWidth>(s.D, [&]<int kChannels>() {
      constexpr int kPacks = kChannels / kWidth, kLanes = std::min(kPacks, 32);
      if constexpr (kChannels <= kMostChannels)
        launch.template operator()<kWidth, kLanes, kPacks / kLanes>();
    });
  });
  launched("attention_cached");
}

}  // namespace capstan::cuda
