#include "run/self_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "checkpoint/convert.h"

namespace capstan {
namespace {

std::vector<float> values_of(Queue& q, const Tensor& tensor) {
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.nbytes()));
  q.download(bytes.data(), tensor);
  std::vector<float> values(static_cast<size_t>(tensor.numel()));
  convert(values.data(), DType::f32, bytes.data(), tensor.dtype(), tensor.numel());
  return values;
}

double relative(double a, double b) {
  const double largest = std::max(std::abs(a), std::abs(b));
  return largest > 0 ? std::abs(a - b) / largest : 0;
}

// The unit roundoff: half of the distance of 1 to the next number.
double unit_of(DType type) {
  return type == DType::bf16 ? 0x1p-8 : type == DType::f16 ? 0x1p-11 : 0x1p-24;
}
constexpr double kFp8Unit = 0x1p-4;  // of e4m3

// Of one parameter.
struct Compared {
  double largest = 0, difference = 0;
};

// The gradients of one rank that has the whole model.
class Expected {
 public:
  Expected(Queue& q, const Parameters& alone) : q_(q), alone_(alone) {}

  // For a range of a rank with this table.
  std::vector<float> of(const ModelSpec& spec, const Range& range) {
    if (spec.share.ranks().size == 1) return values_of(q_, slice(alone_.grad(range.param), range));
    if (param_ != range.param) whole_ = values_of(q_, alone_.grad(range.param));
    param_ = range.param;
    const Param& p = spec.params[static_cast<size_t>(range.param)];
    const Part& part = part_of(p, range);
    std::vector<float> values;
    cut_in_whole_param(p, part).for_runs(range.first - part.first_row * p.columns(), range.count,
                                         [&](int64_t, int64_t in_whole, int64_t n) {
                                           const auto first = whole_.begin() + in_whole;
                                           values.insert(values.end(), first, first + n);
                                         });
    return values;
  }

 private:
  Queue& q_;
  const Parameters& alone_;
  int param_ = -1;  // of `whole_`
  std::vector<float> whole_;
};

}  // namespace

bool SelfCheck::agrees() const {
  return relative(ranks.loss, alone.loss) <= allowed &&
         relative(ranks.grad_norm, alone.grad_norm) <= allowed && difference <= allowed;
}

// Both sides compute the same, and round differently. Errors of rounding are independent and of
// either sign, so their squares add up: n roundings to a type with unit roundoff u move a gradient
// by √n u, of its largest value. What counts is how many there are between a batch and a gradient:
//
//   - Ranks that share no layer and no sequence pass over a micro-batch as one rank does, bit for
//     bit. They only add its gradients in another order: in f32, over the tokens of a step. Those
//     kept in 16 bits are rounded after each micro-batch, on both sides.
//   - Ranks that share layers or sequences multiply parts of matrices, and round what one rank does
//     not: of the two sums of a layer that are split, every rank's term, in both directions. After
//     that all activations differ, and each of them is rounded to another neighbour. The residual
//     stream is rounded twice in a layer and direction. What a layer computes for it is smaller
//     than the stream, so that of these roundings those of one or two layers count.
//   - Sums of so many terms as a layer is wide are in f32, side by side in vector units.
//   - In FP8 both factors of a product are rounded, by scales that are those of a rank's share.
//   - A GPU may take another algorithm for the same product.
//
// Over models of 1 to 24 layers, in all precisions and kinds of meshes, the largest difference was
// 0.2 to 0.8 of √n u. The bound is twice that.
double allowed_difference(const TrainOptions& o, int64_t micro_batches) {
  constexpr double kMost = 2, kLeastOnGpu = 1e-4;
  constexpr double kWithinLayers = 24, kSideBySide = 8;
  const PrecisionTypes types = types_of(o.precision);
  const auto steps = static_cast<double>(micro_batches);
  double squares = 0;
  const auto add = [&](double roundings, double unit) { squares += roundings * unit * unit; };
  add(steps * static_cast<double>(o.limits.tokens), unit_of(DType::f32));
  if (types.grad != DType::f32) add(4 * steps, unit_of(types.grad));
  if (o.mesh.tensor * o.mesh.context > 1) {
    const double terms = o.mesh.tensor > 1 ? 2 : 1;
    const double roundings = 4 * terms * static_cast<double>(o.model.layers) + kWithinLayers;
    const auto width =
        static_cast<double>(std::max({o.model.hidden, o.model.intermediate, o.limits.longest}));
    add(roundings, unit_of(types.compute));
    add(roundings * width / kSideBySide, unit_of(DType::f32));
    if (o.precision == Precision::fp8_mixed) add(kWithinLayers, kFp8Unit);
  }
  const double bound = kMost * std::sqrt(squares);
  return o.device == Device::cuda ? std::max(kLeastOnGpu, bound) : bound;
}

std::string SelfCheck::text(int size) const {
  return fmt::format(
      "loss {:.6g} on {} and {:.6g} on one; gradient norm {:.6g} and {:.6g}; the gradient of "
      "{} differs most, by {:.1e} of its largest value; rounding explains {:.1e}",
      ranks.loss, capstan::count(size, "rank"), alone.loss, ranks.grad_norm, alone.grad_norm,
      parameter, difference, allowed);
}

std::vector<float> owned_gradients(Queue& q, const Parameters& params) {
  std::vector<float> all;
  for (const Range& range : params.owned()) {
    const std::vector<float> some = values_of(q, params.grad(range));
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

void compare_gradients(SelfCheck& check, Queue& q, const Parameters* alone, const Parameters& ranks,
                       const std::vector<float>& mine, HostChannel& channel) {
  if (alone == nullptr) return channel.send(std::as_bytes(std::span(mine)), 0);
  std::vector<Compared> compared(static_cast<size_t>(alone->count()));
  Expected expected(q, *alone);
  for (int r = 0; r < channel.size(); ++r) {
    const std::vector<Range> owned = ranks.owned_by(r);
    int64_t count = 0;
    for (const Range& range : owned) count += range.count;
    std::vector<float> theirs = mine;
    if (r > 0) {
      theirs.resize(static_cast<size_t>(count));
      channel.receive(std::as_writable_bytes(std::span(theirs)), r);
    }
    const float* next = theirs.data();
    for (const Range& range : owned) {
      Compared& c = compared[static_cast<size_t>(range.param)];
      for (const float value : expected.of(ranks.spec_of(r), range)) {
        const double difference = std::abs(double{value} - double{*next++});
        c.largest = std::max(c.largest, std::abs(double{value}));
        // A NaN on one side alone is the greatest difference.
        c.difference = std::isnan(difference) ? INFINITY : std::max(c.difference, difference);
      }
    }
  }
  check.parameter = alone->spec().params[0].name;
  for (size_t i = 0; i < compared.size(); ++i) {
    const double share = compared[i].largest > 0 ? compared[i].difference / compared[i].largest
                                                 : compared[i].difference;
    if (share <= check.difference) continue;
    check.difference = share;
    check.parameter = alone->spec().params[i].name;
  }
}

}  // namespace capstan
