#include "optim/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace capstan {
namespace {

using Kind = OptimizerOptions::Kind;

// bitsandbytes' min_8bit_size: for smaller tensors the savings do not justify the error.
constexpr int64_t kFewest8bit = 4096;

float f(double x) {
  return static_cast<float>(x);
}

}  // namespace

Optimizer::Optimizer(Queue& q, Parameters& params, const OptimizerOptions& options)
    : params_(params), options_(options) {
  require(!options.stochastic || params.types().master == DType::bf16, Fault::bug,
          "optimizer: stochastic rounding needs bf16 weights without a master copy, found {}",
          name_of(params.precision()));
  Arena& arena = options.paged ? q.host() : q.arena();
  for (const Range& owned : params.updated()) {
    const Param& param = params.spec().params[static_cast<size_t>(owned.param)];
    if (options.kind != Kind::adamw8bit) {
      pieces_.push_back(make_piece(arena, owned, {owned.param, 0, param.shape.numel()}));
      continue;
    }
    // Blocks of 8-bit moments do not cross the tensors of the checkpoint.
    for (const Part& part : param.parts) {
      const Range all = saved_part(param, owned.param, part, DType::u8).range;
      if (const Range mine = overlap(owned, all); mine.count > 0)
        pieces_.push_back(make_piece(arena, mine, all));
    }
  }
}

DType Optimizer::moment_type(const Range& tensor) const {
  if (options_.kind != Kind::adamw8bit) return params_.types().state;
  const bool few_bits = tensor.count >= kFewest8bit && tensor.param != params_.spec().embedding;
  return few_bits ? DType::u8 : DType::f32;
}

// The moments are zero because memory outside of phases is zeroed.
Optimizer::Piece Optimizer::make_piece(Arena& arena, const Range& range,
                                       const Range& tensor) const {
  Piece piece{.range = range, .tensor = tensor, .m = {}, .v = {}, .m_absmax = {}, .v_absmax = {}};
  const auto make = [&](DType type, int64_t values, const char* name) {
    return arena.make(Category::optimizer, type, {values}, name);
  };
  const DType type = moment_type(tensor);
  const bool few_bits = type == DType::u8;
  require(!few_bits || (range.first - tensor.first) % kAdamW8bitBlock == 0, Fault::usage,
          "optimizer: among these ranks a slice of {} would begin inside of a block of {} 8-bit "
          "moments; use AdamW, or another number of ranks",
          params_.spec().params[static_cast<size_t>(range.param)].name, kAdamW8bitBlock);
  if (options_.kind != Kind::sgd || options_.momentum != 0)
    piece.m = make(type, range.count, "first moment");
  if (options_.kind != Kind::sgd) piece.v = make(type, range.count, "second moment");
  if (few_bits) {
    piece.m_absmax = make(DType::f32, adamw8bit_blocks(range.count), "first moment's scales");
    piece.v_absmax = make(DType::f32, adamw8bit_blocks(range.count), "second moment's scales");
  }
  return piece;
}

OptimizerOperands Optimizer::operands_of(const Piece& piece, Tensor grad_scale) const {
  const int param = piece.range.param;
  OptimizerOperands operands{.weight = params_.weight(piece.range),
                             .master = params_.master(piece.range),
                             .grad = params_.grad(piece.range),
                             .m = *piece.m,
                             .v = *piece.v,
                             .grad_scale = grad_scale};
  if (!options_.stochastic) return operands;
  const Shape& shape = params_.spec().params[static_cast<size_t>(param)].shape;
  const int64_t first_row = piece.tensor.first / (shape.numel() / shape[0]);
  operands.rounding = Rng({.seed = options_.seed,
                           .step = static_cast<uint64_t>(steps_),
                           .sample = static_cast<uint64_t>(first_row),
                           .site = site::rounding + static_cast<uint32_t>(param)});
  operands.place.first = piece.range.first - piece.tensor.first;
  return operands;
}

AdamWStep Optimizer::adamw_step(double lr, double decay) const {
  return {.lr = f(lr),
          .beta1 = f(options_.beta1),
          .beta2 = f(options_.beta2),
          .eps = f(options_.eps),
          .weight_decay = f(decay),
          .step = steps_};
}

SgdStep Optimizer::sgd_step(double lr, double decay) const {
  return {.lr = f(lr),
          .momentum = f(options_.momentum),
          .dampening = f(options_.dampening),
          .weight_decay = f(decay),
          .nesterov = options_.nesterov,
          .step = steps_};
}

void Optimizer::update(Queue& q, double lr, Tensor grad_scale, Tensor not_finite) {
  ++steps_;
  full_.clear();
  few_bits_.clear();
  for (const Piece& piece : pieces_) {
    const OptimizerOperands operands = operands_of(piece, grad_scale);
    const bool decays = params_.spec().params[static_cast<size_t>(piece.range.param)].decay;
    const double decay = decays ? options_.weight_decay : 0;
    if (options_.kind == Kind::sgd)
      sgd(q, operands, sgd_step(lr, decay), not_finite);
    else if (*piece.m_absmax)
      few_bits_.push_back({.operands = operands,
                           .absmax = {.m = *piece.m_absmax, .v = *piece.v_absmax},
                           .step = adamw_step(lr, decay)});
    else
      full_.push_back({operands, adamw_step(lr, decay)});
  }
  if (!few_bits_.empty()) adamw8bit(q, few_bits_, not_finite);
  if (!full_.empty()) adamw(q, full_, not_finite);
}

void Optimizer::restore(int64_t steps) {
  require(steps >= 0, Fault::bug, "optimizer: cannot restore to step {}", steps);
  steps_ = steps;
}

std::vector<SavedTensor> Optimizer::state() const {
  std::vector<SavedTensor> all_state;
  const bool sgd = options_.kind == Kind::sgd;
  const auto add = [&](SavedTensor t, const char* name, Buffer Piece::*buffer) {
    t.name += name;
    for (const Piece& piece : pieces_) {
      const Range mine = t.within(piece.range);
      if (mine.count == 0) continue;
      const int64_t skipped = std::max<int64_t>(0, t.range.first - piece.range.first) / t.block;
      t.pieces.push_back({mine.first, (piece.*buffer)->rows(skipped, mine.count)});
    }
    all_state.push_back(std::move(t));
  };
  for (int i = 0; i < params_.count(); ++i) {
    const Param& param = params_.spec().params[static_cast<size_t>(i)];
    if (!param.trainable || (sgd && options_.momentum == 0)) continue;
    for (const Part& part : param.parts) {
      SavedTensor moment = saved_part(param, i, part, DType::u8);
      moment.type = moment_type(moment.range);
      SavedTensor scales = moment;
      scales.type = DType::f32;
      scales.shape = {adamw8bit_blocks(moment.numel())};
      scales.block = kAdamW8bitBlock;
      const bool few_bits = moment.type == DType::u8;
      add(moment, sgd ? ".momentum_buffer" : ".exp_avg", &Piece::m);
      if (few_bits) add(scales, ".exp_avg.absmax", &Piece::m_absmax);
      if (!sgd) add(moment, ".exp_avg_sq", &Piece::v);
      if (few_bits) add(scales, ".exp_avg_sq.absmax", &Piece::v_absmax);
    }
  }
  return all_state;
}

GradientClip::GradientClip(Queue& q, double max_norm, const Parameters& params)
    : max_norm_(static_cast<float>(max_norm)), all_sums_(params.group().make_scalars(q.arena())) {
  if (params.mesh().pipe().stages() > 1) {
    stages_.emplace(q, params);
    data_sums_ = params.mesh().data().make_scalars(q.arena());
  }
  sum_ = q.arena().make(Category::optimizer, DType::f64, {1}, "gradient norm");
  scale_ = q.arena().make(Category::optimizer, DType::f32, {1}, "gradient scale");
}

void GradientClip::measure(Queue& q, const Parameters& params, Tensor loss, double times) {
  const double zero = 0;
  q.upload(sum_, &zero);
  gradients_.clear();
  for (const Range& range : params.owned()) gradients_.push_back(params.grad(range));
  if (stages_) {  // then every stage has the sum of all
    stages_->add(q, sum_, gradients_);
    params.mesh().data().sum_scalars(q, sum_, *data_sums_);
  } else {
    sum_squares(q, sum_, gradients_);
    params.group().sum_scalars(q, sum_, *all_sums_);
  }
  if (loss) params.group().sum_scalars(q, loss, *all_sums_);
  times_ = times;
  clip_scale(q, scale_, sum_, max_norm_, loss, times);
}

double GradientClip::norm(Queue& q) const {
  return std::sqrt(q.value<double>(sum_)) / times_;
}

}  // namespace capstan
