#include "tensor/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tensor/arena.h"

namespace capstan {

size_t Trace::keep(TraceEvent event) {
  if (event.row != kPhases) event.phase = phase_;
  if (events_.size() < most_) {
    events_.push_back(std::move(event));
    return events_.size() - 1;
  }
  ++left_out_;
  int64_t& more = more_[event.row];
  if (more == 0) {
    event.name = "more ops";
    event.phase = -1;
    events_.push_back(std::move(event));
    more = std::ssize(events_);
  } else {
    TraceEvent& all = events_[static_cast<size_t>(more - 1)];
    all.end = std::max(all.end, event.end);
    all.flops += event.flops;
    all.bytes += event.bytes;
  }
  return static_cast<size_t>(more - 1);
}

size_t Trace::add(TraceEvent event) {
  const double end = event.end - start_;
  const size_t number = begin(std::move(event));
  end_at(number, end);
  return number;
}

size_t Trace::begin(TraceEvent event) {
  event.begin -= start_;
  event.end = event.begin;
  last_begin_ = event.begin;
  return keep(std::move(event));
}

void Trace::end(size_t number, double time) {
  end_at(number, time - start_);
}

void Trace::end_at(size_t number, double time) {
  TraceEvent& event = events_[number];
  event.end = std::max(event.end, time);
  if (event.row == row(Lane::compute)) last_end_ = std::max(last_end_, event.end);
}

void Trace::end_phase() {
  if (phase_ < 0) return;
  const double end = std::max(phase_begin_, last_end_);
  keep({.name = phases_[static_cast<size_t>(phase_)], .begin = phase_begin_, .end = end});
  phase_ = -1;
}

void Trace::look(const Arena& arena, double time) {
  const double now = time - start_;
  const std::string_view name = arena.phase_name();
  if (name.empty() || arena.visit() != visit_) end_phase();
  if (!name.empty() && phase_ < 0) {
    int& count = visits_.try_emplace(std::string(name), 0).first->second;
    phases_.push_back(++count == 1 ? std::string(name) : fmt::format("{} ({})", name, count));
    phase_ = static_cast<int>(phases_.size()) - 1;
    visit_ = arena.visit();
    phase_begin_ = now;
  }
  if (!memory_.empty() && memory_.back().bytes == arena.live()) return;
  if (!memory_.empty() && memory_.back().time >= now)
    memory_.back().bytes = arena.live();
  else if (memory_.size() < most_)
    memory_.push_back({now, arena.live()});
  else
    ++left_out_;
}

void Trace::restart(double time) {
  end_phase();
  const double before = time - start_;
  std::erase_if(events_, [&](const TraceEvent& e) { return e.row == kPhases || e.end <= before; });
  for (TraceEvent& e : events_) {
    e.note = "began before";
    e.begin = std::max(0.0, e.begin - before);
    e.end -= before;
    e.phase = -1;
  }
  if (!memory_.empty()) memory_ = {{0, memory_.back().bytes}};
  phases_.clear();
  visits_.clear();
  std::fill(std::begin(more_), std::end(more_), 0);
  left_out_ = 0;
  last_begin_ = last_end_ = 0;
  start_ = time;
}

void Trace::finish(double time, std::string name) {
  end_phase();
  seconds_ = time - start_;
  std::erase_if(events_, [&](const TraceEvent& e) { return e.begin > seconds_; });
  for (TraceEvent& e : events_) {
    if (e.end <= seconds_) continue;
    e.note = "goes on afterwards";
    e.end = seconds_;
  }
  std::string note;
  if (left_out_ > 0) note = fmt::format("{} events are not shown one by one", left_out_);
  events_.push_back({.name = std::move(name), .end = seconds_, .note = std::move(note)});
}

}  // namespace capstan
