#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/output_file.h"
#include "tensor/trace.h"

namespace capstan {

// The trace of one rank, or of one stage whose ranks all do the same.
struct TraceProcess {
  int number = 0;
  std::string name;  // "rank 3"
  Trace trace;
};

// An arrow from one event to another, such as that of a message.
struct TraceFlow {
  struct End {
    size_t process = 0, event = 0;
  };
  std::string name;
  End from, to;
};

// Traces of ranks that run beside each other, as a file in Chrome's trace-event format:
// ui.perfetto.dev and chrome://tracing open it. A process is a rank, a thread a lane; the memory in
// use is a counter for each category. Times are in microseconds, from that of the first event on.
struct TraceFile {
  std::vector<TraceProcess> processes = {};
  std::vector<TraceFlow> flows = {};
  std::vector<std::pair<std::string, std::string>> about = {};  // what the file says of itself
};
std::string trace_json(const TraceFile& file);
// How such a file begins.
inline constexpr OutputKind kTraceOutput = {
    "a timeline", R"({"displayTimeUnit":"ms","otherData":{"program":"capstan )"};
// Written complete or not at all. Throws Fault::file.
void write_trace(const std::filesystem::path& path, const TraceFile& file);

}  // namespace capstan
