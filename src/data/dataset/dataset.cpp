#include "data/dataset/dataset.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/rng.h"
#include "base/units.h"
#include "data/dataset/sampler.h"

namespace capstan {

Dataset::Dataset() {
  auto owned = std::make_shared<OwnedSamples>();
  owned_ = owned.get();
  samples_ = std::move(owned);
}

Dataset::Dataset(std::shared_ptr<const Samples> samples, Cut cut)
    : samples_(std::move(samples)), cut_(cut) {
  const SampleArrays& a = samples_->arrays();
  tokens_ = std::ssize(a.tokens);
  for (int64_t i = 0; i < a.size(); ++i) longest_ = std::max(longest_, std::ssize(tokens_of(i)));
}

OwnedSamples& Dataset::own() {
  require(!is_part_, Fault::bug, "cannot add to a part of a dataset");
  if (owned_ == nullptr || samples_.use_count() > 1) {
    auto copy = std::make_shared<OwnedSamples>(*samples_);
    owned_ = copy.get();
    samples_ = std::move(copy);
  }
  return *owned_;
}

void Dataset::add(std::span<const int32_t> tokens, int64_t first_target) {
  const auto n = static_cast<int64_t>(tokens.size());
  require(first_target >= 0 && first_target <= n, Fault::bug,
          "the first target of a sample of {} tokens cannot be token {}", n, first_target);
  const TargetSpan span{static_cast<int32_t>(first_target), static_cast<int32_t>(n)};
  add(tokens, {&span, 1});
}

void Dataset::add(std::span<const int32_t> tokens, std::span<const TargetSpan> targets,
                  SampleOrigin origin) {
  own().add(tokens, targets, origin);
  longest_ = std::max(longest_, std::ssize(tokens));
  tokens_ += std::ssize(tokens);
}

int32_t Dataset::add_file(const std::string& name) {
  return own().file(name);
}

size_t Dataset::at(int64_t sample) const {
  require(sample >= 0 && sample < size(), Fault::bug, "no sample {} in a dataset of {}", sample,
          size());
  return static_cast<size_t>(is_part_ ? (*part_)[static_cast<size_t>(sample)] : sample);
}

std::span<const int32_t> Dataset::tokens_of(int64_t sample) const {
  const SampleArrays& a = samples_->arrays();
  const size_t i = at(sample);
  const int64_t begin = a.token_begin[i];
  return a.tokens.subspan(static_cast<size_t>(begin),
                          static_cast<size_t>(a.token_begin[i + 1] - begin));
}

std::span<const TargetSpan> Dataset::target_spans_of(int64_t sample) const {
  const SampleArrays& a = samples_->arrays();
  const size_t i = at(sample);
  const int64_t begin = a.span_begin[i];
  return a.spans.subspan(static_cast<size_t>(begin),
                         static_cast<size_t>(a.span_begin[i + 1] - begin));
}

int64_t Dataset::id_of(int64_t sample) const {
  return static_cast<int64_t>(at(sample));
}

const SampleOrigin& Dataset::origin_of(int64_t sample) const {
  return samples_->arrays().origins[at(sample)];
}

std::string Dataset::where_of(int64_t sample) const {
  const SampleOrigin& origin = origin_of(sample);
  const auto& files = samples_->files();
  if (origin.file < 0 || origin.file >= std::ssize(files))
    return fmt::format("sample {}", id_of(sample));
  const std::string& name = files[static_cast<size_t>(origin.file)];
  if (origin.line == 0) return fmt::format("{} (sample {})", name, id_of(sample));
  if (origin.flags & SampleOrigin::document) return fmt::format("{}:{}", name, origin.line);
  // The number distinguishes several records on one line.
  const auto& origins = samples_->arrays().origins;
  const size_t own = at(sample);
  const auto beside = [&](size_t other) {
    return other < origins.size() && origins[other].file == origin.file &&
           origins[other].line == origin.line;
  };
  std::string number;
  if (beside(own + 1) || (own > 0 && beside(own - 1))) {
    size_t first = own;
    while (first > 0 && origins[first - 1].file == origin.file) --first;
    number = fmt::format(" (record {})", own - first + 1);
  }
  return fmt::format("{}:{}{}", name, origin.line, number);
}

int64_t Dataset::inputs_of(int64_t sample, int64_t max_seq_length) const {
  return std::min(std::ssize(tokens_of(sample)) - 1, max_inputs(max_seq_length));
}

int64_t Dataset::targets_of(int64_t sample, int64_t max_seq_length) const {
  const int64_t labels_end = inputs_of(sample, max_seq_length) + 1;  // labels are tokens 1 … end-1
  int64_t targets = 0;
  for (const TargetSpan& s : target_spans_of(sample))
    targets +=
        std::max<int64_t>(std::min<int64_t>(s.end, labels_end) - std::max<int64_t>(s.begin, 1), 0);
  return targets;
}

Dataset Dataset::part(std::span<const int64_t> samples) const {
  Dataset part;
  auto ids = std::make_shared<std::vector<int64_t>>();
  ids->reserve(samples.size());
  for (const int64_t s : samples) {
    ids->push_back(id_of(s));
    const int64_t n = std::ssize(tokens_of(s));
    part.tokens_ += n;
    part.longest_ = std::max(part.longest_, n);
  }
  part.samples_ = samples_;
  part.owned_ = nullptr;
  part.part_ = std::move(ids);
  part.is_part_ = true;
  part.cut_ = cut_;
  return part;
}

DatasetCounts count(const Dataset& dataset, int64_t max_seq_length) {
  DatasetCounts c;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const int64_t inputs = dataset.inputs_of(i, max_seq_length);
    const int64_t targets = dataset.targets_of(i, max_seq_length);
    c.inputs += inputs;
    c.targets += targets;
    c.longest = std::max(c.longest, inputs);
    c.truncated += inputs + 1 < std::ssize(dataset.tokens_of(i));
    c.all_masked += targets == 0;
  }
  return c;
}

Split split(const Dataset& dataset, double validation_fraction, uint64_t seed) {
  require(validation_fraction >= 0 && validation_fraction < 1, Fault::usage,
          "the fraction of samples held out for validation must be at least 0 and below 1, not {}",
          validation_fraction);
  const int64_t n = dataset.size();
  require(
      validation_fraction == 0 || n >= 2, Fault::file,
      "cannot hold out a fraction of {} for validation: the data has only {}, and one must remain "
      "for training. Give more data, separate validation data, or --data.val_split_fraction 0",
      validation_fraction, count(n, "sample"));
  int64_t held = 0;
  if (validation_fraction > 0)
    held =
        std::clamp<int64_t>(std::llround(validation_fraction * static_cast<double>(n)), 1, n - 1);

  std::vector<int64_t> order(static_cast<size_t>(n));
  // Another random stream than the sampler's: otherwise the held-out samples would be the first of
  // an epoch's order.
  permute(order, Rng({.seed = seed, .site = site::shuffle + 1}));
  const auto border = order.begin() + held;
  std::sort(order.begin(), border);
  std::sort(border, order.end());
  return {dataset.part({border, order.end()}), dataset.part({order.begin(), border})};
}

}  // namespace capstan
