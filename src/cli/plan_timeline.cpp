#include "cli/plan_timeline.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

namespace capstan::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr int kMoments = 200;
constexpr size_t kMostEvents = 4000;
constexpr double kTogether = 1.0 / 1000;  // of the step: events that are closer are one

struct Slice {
  std::string name, kind;
  double begin = 0, end = 0;
  std::string note = {};
};

std::string kind_of(const TraceEvent& event, bool computes, bool passes) {
  if (event.name == "wait") return "wait";
  if (!computes) return "communication";
  if (event.name == "update") return "update";
  if (!passes) return "compute";
  return event.name.substr(0, event.name.find(' '));  // "forward 3"
}

// Of one row, in order; those of one kind that follow each other are one, unless they are passes.
std::vector<Slice> slices_of(const Trace& trace, int row, bool computes, bool passes) {
  std::vector<const TraceEvent*> events;
  for (const TraceEvent& e : trace.events())
    if (e.row == row) events.push_back(&e);
  std::stable_sort(events.begin(), events.end(),
                   [](const TraceEvent* a, const TraceEvent* b) { return a->begin < b->begin; });
  const double near = kTogether * trace.seconds();
  std::vector<Slice> slices;
  for (const TraceEvent* e : events) {
    const std::string kind = kind_of(*e, computes, passes);
    const bool joins = !slices.empty() && slices.back().kind == kind &&
                       e->begin - slices.back().end <= near &&
                       (kind == "compute" || kind == "wait" || kind == "communication") &&
                       !(passes && kind != "wait");
    if (joins) {
      slices.back().end = std::max(slices.back().end, e->end);
      if (slices.back().name != e->name) slices.back().name = kind;
    } else {
      slices.push_back({e->name, kind, e->begin, e->end, e->note});
    }
  }
  return slices;
}

void add_row(json& rows, size_t& events, const std::string& name, const char* lane,
             const std::vector<Slice>& slices) {
  if (slices.empty() || events + slices.size() > kMostEvents) return;
  events += slices.size();
  auto list = json::array();
  for (const Slice& s : slices) {
    list.push_back({{"name", s.name}, {"kind", s.kind}, {"begin", s.begin}, {"end", s.end}});
    if (!s.note.empty()) list.back()["note"] = s.note;
  }
  rows.push_back({{"name", name}, {"lane", lane}, {"events", list}});
}

}  // namespace

json step_timeline(const StepTrace& step) {
  const auto& processes = step.file.processes;
  const bool passes = processes.size() > 1;
  auto rows = json::array();
  size_t events = 0;
  double seconds = 0;
  for (const TraceProcess& process : processes) {
    seconds = std::max(seconds, process.trace.seconds());
    add_row(rows, events, process.name, "compute",
            slices_of(process.trace, Trace::row(Lane::compute), true, passes));
    if (passes) continue;
    for (const auto& [lane, name] : {std::pair(Lane::comm, "comm"),
                                     {Lane::tensor, "tensor"},
                                     {Lane::context, "context"},
                                     {Lane::copy, "copy"}})
      add_row(rows, events, process.name, name,
              slices_of(process.trace, Trace::row(lane), false, false));
  }
  return {{"seconds", seconds},
          {"rows", rows},
          {"note", passes ? "one simulated step: the passes of each stage, with their mean times"
                          : "one simulated step; neighbouring ops are one event"}};
}

json memory_timeline(const StepTrace& step) {
  auto out = json::array();
  if (step.file.processes.size() != 1) return out;
  const Trace& trace = step.file.processes[0].trace;
  const std::vector<TraceMemory>& all = trace.memory();
  const auto total = [](const TraceMemory& m) {
    return std::accumulate(m.bytes.begin(), m.bytes.end(), int64_t{0});
  };
  // The highest moment of each of so many equal times.
  const TraceMemory* highest = nullptr;
  int64_t slot = 0;
  const auto put = [&] {
    if (highest == nullptr) return;
    auto by_category = json::object();
    for (int c = 0; c < kCategories; ++c)
      if (const int64_t n = highest->bytes[static_cast<size_t>(c)]; n > 0)
        by_category[std::string(name_of(static_cast<Category>(c)))] = n;
    out.push_back({{"at", highest->time}, {"by_category", by_category}});
    highest = nullptr;
  };
  for (const TraceMemory& m : all) {
    const auto now = static_cast<int64_t>(kMoments * m.time / std::max(trace.seconds(), 1e-12));
    if (now != slot) put();
    slot = now;
    if (highest == nullptr || total(m) > total(*highest)) highest = &m;
  }
  put();
  return out;
}

}  // namespace capstan::cli
