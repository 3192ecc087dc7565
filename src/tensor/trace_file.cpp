#include "tensor/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/files.h"

namespace capstan {
namespace {

constexpr const char* kRowNames[Trace::kRows] = {
    "phases",  "compute",   "comm",         "copy",    "tensor",
    "context", "send down", "receive down", "send up", "receive up"};

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Whole picoseconds: so what ends where another event begins does so in the file, too.
int64_t picoseconds(double seconds) {
  return std::llround(seconds * 1e12);
}
std::string microseconds(int64_t picoseconds) {
  return fmt::format("{}.{:06}", picoseconds / 1'000'000, picoseconds % 1'000'000);
}

// A viewer nests the events of a thread. Those of a row that overlap otherwise, such as the
// collectives of two groups, go to further threads. Returns the event numbers of each thread, in
// the order of their beginnings, an event before those in it.
std::vector<std::vector<size_t>> threads_of(const std::vector<TraceEvent>& events, int row) {
  std::vector<size_t> order;
  for (size_t i = 0; i < events.size(); ++i)
    if (events[i].row == row) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const TraceEvent &x = events[a], &y = events[b];
    return x.begin != y.begin ? x.begin < y.begin : x.end > y.end;
  });
  std::vector<std::vector<size_t>> threads;
  std::vector<std::vector<double>> open;  // ends of the events that others may be nested in
  for (const size_t i : order) {
    const TraceEvent& e = events[i];
    size_t t = 0;
    for (; t < threads.size(); ++t) {
      while (!open[t].empty() && open[t].back() <= e.begin) open[t].pop_back();
      if (open[t].empty() || e.end <= open[t].back()) break;
    }
    if (t == threads.size()) {
      threads.emplace_back();
      open.emplace_back();
    }
    threads[t].push_back(i);
    open[t].push_back(e.end);
  }
  return threads;
}

class Writer {
 public:
  explicit Writer(const TraceFile& file) : file_(file) {}

  std::string write() {
    out_ = "{\"displayTimeUnit\":\"ms\",\n\"otherData\":{";
    for (size_t i = 0; i < file_.about.size(); ++i)
      put("{}{}:{}", i > 0 ? "," : "", quoted(file_.about[i].first), quoted(file_.about[i].second));
    out_ += "},\n\"traceEvents\":[";
    threads_.resize(file_.processes.size());
    for (size_t p = 0; p < file_.processes.size(); ++p) process(p);
    for (size_t f = 0; f < file_.flows.size(); ++f) flow(file_.flows[f], f + 1);
    return std::move(out_ += "\n]}\n");
  }

 private:
  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  void next() {
    out_ += first_ ? "\n" : ",\n";
    first_ = false;
  }
  void name(const char* what, int pid, int tid, const std::string& text, int place) {
    next();
    put(R"({{"ph":"M","name":"{0}_name","pid":{1},"tid":{2},"args":{{"name":{3}}}}},)"
        "\n"
        R"({{"ph":"M","name":"{0}_sort_index","pid":{1},"tid":{2},"args":{{"sort_index":{4}}}}})",
        what, pid, tid, quoted(text), place);
  }

  void process(size_t p) {
    const TraceProcess& process = file_.processes[p];
    const std::vector<TraceEvent>& events = process.trace.events();
    name("process", process.number, 0, process.name, process.number);
    threads_[p].resize(events.size());
    int tid = 0;
    for (int row = 0; row < Trace::kRows; ++row) {
      const auto threads = threads_of(events, row);
      for (size_t t = 0; t < threads.size(); ++t, ++tid) {
        const char* const lane = kRowNames[row];
        name("thread", process.number, tid, t == 0 ? lane : fmt::format("{} ({})", lane, t + 1),
             tid);
        for (const size_t i : threads[t]) {
          threads_[p][i] = tid;
          slice(process, events[i], tid);
        }
      }
    }
    memory(process);
  }

  void slice(const TraceProcess& process, const TraceEvent& e, int tid) {
    const int64_t begin = picoseconds(e.begin), end = std::max(begin, picoseconds(e.end));
    next();
    put(R"({{"ph":"X","name":{},"pid":{},"tid":{},"ts":{},"dur":{})", quoted(e.name),
        process.number, tid, microseconds(begin), microseconds(end - begin));
    std::string args;
    const auto add = [&](const char* key, const std::string& value) {
      args += fmt::format("{}\"{}\":{}", args.empty() ? "" : ",", key, value);
    };
    if (e.flops > 0) add("flops", fmt::format("{:.0f}", e.flops));
    if (e.bytes > 0) add("bytes", fmt::format("{:.0f}", e.bytes));
    if (e.phase >= 0) add("phase", quoted(process.trace.phases()[static_cast<size_t>(e.phase)]));
    if (!e.note.empty()) add("note", quoted(e.note));
    if (!args.empty()) put(R"(,"args":{{{}}})", args);
    out_ += '}';
  }

  void memory(const TraceProcess& process) {
    const std::vector<TraceMemory>& all = process.trace.memory();
    ByCategory most{};
    for (const TraceMemory& m : all)
      for (size_t c = 0; c < most.size(); ++c) most[c] = std::max(most[c], m.bytes[c]);
    for (const TraceMemory& m : all) {
      next();
      put("{{\"ph\":\"C\",\"name\":\"memory (bytes)\",\"pid\":{},\"ts\":{},\"args\":{{",
          process.number, microseconds(picoseconds(m.time)));
      const char* comma = "";
      for (size_t c = 0; c < most.size(); ++c) {
        if (most[c] == 0) continue;
        put("{}\"{}\":{}", comma, name_of(static_cast<Category>(c)), m.bytes[c]);
        comma = ",";
      }
      out_ += "}}";
    }
  }

  void flow(const TraceFlow& flow, size_t id) {
    // A point belongs to the event that it lies in, which does not contain its own end.
    const TraceEvent& from = event_of(flow.from);
    const double sent = from.begin + 0.999 * (from.end - from.begin);
    flow_end(flow, flow.from, "s", id, sent);
    flow_end(flow, flow.to, "f", id, event_of(flow.to).begin);
  }
  void flow_end(const TraceFlow& flow, const TraceFlow::End& end, const char* ph, size_t id,
                double time) {
    next();
    put(R"({{"ph":"{}","bp":"e","cat":"message","name":{},"id":{},"pid":{},"tid":{},"ts":{}}})", ph,
        quoted(flow.name), id, file_.processes[end.process].number,
        threads_[end.process][end.event], microseconds(picoseconds(time)));
  }
  const TraceEvent& event_of(const TraceFlow::End& end) const {
    return file_.processes[end.process].trace.events()[end.event];
  }

  const TraceFile& file_;
  std::vector<std::vector<int>> threads_;  // of each event of each process
  std::string out_;
  bool first_ = true;
};

}  // namespace

std::string trace_json(const TraceFile& file) {
  return Writer(file).write();
}

void write_trace(const std::filesystem::path& path, const TraceFile& file) {
  write_text(path, trace_json(file));
}

}  // namespace capstan
