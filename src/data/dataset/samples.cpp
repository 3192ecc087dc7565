#include "data/dataset/samples.h"

#include <algorithm>

#include "base/error.h"

namespace capstan {
namespace {

template <class T>
void append(std::vector<T>& to, std::span<const T> from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

OwnedSamples::OwnedSamples(const OwnedSamples& other)
    : OwnedSamples(static_cast<const Samples&>(other)) {}

OwnedSamples::OwnedSamples(const Samples& other) {
  const SampleArrays& from = other.arrays();
  append(tokens_, from.tokens);
  token_begin_.assign(from.token_begin.begin(), from.token_begin.end());
  append(spans_, from.spans);
  span_begin_.assign(from.span_begin.begin(), from.span_begin.end());
  append(origins_, from.origins);
  files_ = other.files();
  refresh();
}

void OwnedSamples::refresh() {
  arrays_ = {tokens_, token_begin_, spans_, span_begin_, origins_};
}

void OwnedSamples::add(std::span<const int32_t> tokens, std::span<const TargetSpan> spans,
                       SampleOrigin origin) {
  const auto n = static_cast<int64_t>(tokens.size());
  require(n >= 2, Fault::bug, "a sample needs at least two tokens, this one has {}", n);
  require(n <= INT32_MAX, Fault::file, "a sample has {} tokens, above the supported maximum", n);
  int32_t at = 0;
  for (const TargetSpan& s : spans) {
    require(s.begin >= at && s.end >= s.begin && s.end <= n, Fault::bug,
            "tokens {} … {} of a sample of {} cannot be targets after token {}", s.begin, s.end, n,
            at);
    at = s.end;
  }

  const size_t first = spans_.size();
  for (const TargetSpan& s : spans) {
    if (s.begin == s.end) continue;
    if (spans_.size() > first && spans_.back().end == s.begin)
      spans_.back().end = s.end;
    else
      spans_.push_back(s);
  }
  append(tokens_, tokens);
  token_begin_.push_back(static_cast<int64_t>(tokens_.size()));
  span_begin_.push_back(static_cast<int64_t>(spans_.size()));
  origins_.push_back(origin);
  refresh();
}

int32_t OwnedSamples::file(const std::string& name) {
  // From the back: samples of a file are added one after the other.
  for (size_t i = files_.size(); i-- > 0;)
    if (files_[i] == name) return static_cast<int32_t>(i);
  files_.push_back(name);
  return static_cast<int32_t>(files_.size()) - 1;
}

}  // namespace capstan
