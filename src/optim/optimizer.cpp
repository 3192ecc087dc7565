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

// `other`: what may be changed so that it would be whole.
void require_whole_block(bool whole, const std::string& name, const char* other) {
  require(whole, Fault::usage,
          "optimizer: among these ranks a slice of {} would begin inside of a block of {} 8-bit "
          "moments; use AdamW, or another {}",
          name, kAdamW8bitBlock, other);
}

float f(double x) {
  return static_cast<float>(x);
}

// Random numbers for rounding are drawn for groups of 8 values, which no share may cut.
void require_drawn_together(const ModelSpec& spec, const Range& range) {
  constexpr int64_t kGroup = 8;
  if (spec.share.ranks().size == 1) return;
  const Param& param = spec.params[static_cast<size_t>(range.param)];
  const Part& part = part_of(param, range);
  const TensorCut cut = cut_in_whole_param(param, part);
  const int64_t before = range.first - part.first_row * param.columns();
  const bool whole_groups =
      (cut.first + (cut.consecutive() ? before : 0)) % kGroup == 0 &&
      (cut.consecutive() ||
       (before % kGroup == 0 && cut.width % kGroup == 0 && cut.columns % kGroup == 0));
  require(whole_groups, Fault::usage,
          "optimizer.rounding: stochastic draws for groups of {} values, and tensor_parallel {} "
          "would cut one of {}; use optimizer.rounding nearest, or fewer ranks for each layer",
          kGroup, spec.share.ranks().size, part.name);
}

}  // namespace

Optimizer::Optimizer(Queue& q, Parameters& params, const OptimizerOptions& options)
    : params_(params), options_(options) {
  require(!options.stochastic || params.types().master == DType::bf16, Fault::bug,
          "optimizer: stochastic rounding needs bf16 weights without a master copy, found {}",
          name_of(params.precision()));
  if (options.kind == Kind::adamw8bit) require_whole_blocks();
  Arena& arena = options.paged ? q.host() : q.arena();
  for (const Range& owned : params.updated()) {
    const Param& param = params.spec().params[static_cast<size_t>(owned.param)];
    if (options.kind != Kind::adamw8bit) {
      pieces_.push_back(make_piece(arena, owned, params_.types().state));
      continue;
    }
    // Blocks of 8-bit moments do not cross the tensors of the checkpoint.
    for (int part = 0; part < std::ssize(param.parts); ++part) {
      const SavedTensor all = saved_part(param, owned.param, part, DType::u8);
      if (const Range mine = overlap(owned, all.range); mine.count > 0)
        pieces_.push_back(make_8bit_piece(arena, mine, all));
    }
  }
}

DType Optimizer::moment_type(const SavedTensor& tensor) const {
  if (options_.kind != Kind::adamw8bit) return params_.types().state;
  const bool few_bits =
      tensor.numel() >= kFewest8bit && tensor.range.param != params_.spec().embedding;
  return few_bits ? DType::u8 : DType::f32;
}

// Of all tensors, though this rank may update few of them: every rank saves the state of all.
void Optimizer::require_whole_blocks() const {
  for (int i = 0; i < params_.count(); ++i) {
    const Param& param = params_.spec().params[static_cast<size_t>(i)];
    if (!param.trainable) continue;
    for (int part = 0; part < std::ssize(param.parts); ++part) {
      const SavedTensor tensor = saved_part(param, i, part, DType::u8);
      require_whole_block(moment_type(tensor) != DType::u8 || !cuts_blocks(tensor, kAdamW8bitBlock),
                          tensor.name, "tensor_parallel");
    }
  }
}

Optimizer::Piece Optimizer::make_8bit_piece(Arena& arena, const Range& range,
                                            const SavedTensor& tensor) const {
  const DType type = moment_type(tensor);
  const int64_t before = range.first - tensor.range.first;
  require_whole_block(type != DType::u8 || before % kAdamW8bitBlock == 0, tensor.name,
                      "number of ranks");
  Piece piece = make_piece(arena, range, type);
  piece.part = tensor.part;
  return piece;
}

// The moments are zero because memory outside of phases is zeroed.
Optimizer::Piece Optimizer::make_piece(Arena& arena, const Range& range, DType type) const {
  Piece piece{.range = range, .m = {}, .v = {}, .m_absmax = {}, .v_absmax = {}};
  if (options_.stochastic) require_drawn_together(params_.spec(), range);
  const auto make = [&](DType kind, int64_t values, const char* name) {
    return arena.make(Category::optimizer, kind, {values}, name);
  };
  const bool few_bits = type == DType::u8;
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
  const Param& of = params_.spec().params[static_cast<size_t>(param)];
  const bool of_part = piece.part >= 0;
  const Part& part = part_of(of, piece.range);
  operands.rounding = Rng({.seed = options_.seed,
                           .step = static_cast<uint64_t>(steps_),
                           .sample = static_cast<uint64_t>(of_part ? part.whole_first_row : 0),
                           .site = site::rounding + static_cast<uint32_t>(param)});
  TensorCut cut = of_part ? cut_of(of, part) : cut_in_whole_param(of, part);
  const int64_t before = piece.range.first - part.first_row * of.columns();
  operands.place =
      cut.consecutive()
          ? RoundingPlace{.first = cut.first + before}
          : RoundingPlace{
                .first = cut.first, .width = cut.width, .columns = cut.columns, .skipped = before};
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
    for (int part = 0; part < std::ssize(param.parts); ++part) {
      SavedTensor moment = saved_part(param, i, part, DType::u8);
      moment.type = moment_type(moment);
      const bool few_bits = moment.type == DType::u8;
      SavedTensor scales = few_bits ? scales_of(moment, kAdamW8bitBlock) : moment;
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
    share_sums_ = params.mesh().tensor().make_scalars(q.arena());
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
    params.mesh().tensor().sum_scalars(q, sum_, *share_sums_);
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
