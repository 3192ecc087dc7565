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

bool SelfCheck::agrees(DType gradients) const {
  // Sums over ranks have another order; bf16 gradients are rounded after every micro-batch.
  const double tolerance = gradients == DType::f32 ? 1e-4 : 0.05;
  return relative(ranks.loss, alone.loss) <= tolerance &&
         relative(ranks.grad_norm, alone.grad_norm) <= tolerance && difference <= tolerance;
}

std::string SelfCheck::text(int size) const {
  return fmt::format(
      "loss {:.6g} on {} and {:.6g} on one; gradient norm {:.6g} and {:.6g}; the gradient of "
      "{} differs most, by {:.1e} of its largest value",
      ranks.loss, capstan::count(size, "rank"), alone.loss, ranks.grad_norm, alone.grad_norm,
      parameter, difference);
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
