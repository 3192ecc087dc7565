#include "tensor/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/files.h"
#include "support/temp_folder.h"
#include "tensor/queue.h"
#include "tensor/trace_file.h"

namespace capstan {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

// A second for each FLOP.
const CostModel kSlow = {.device = Device::cuda, .flops_per_second = 1};

void op(Queue& q, const char* name, double seconds) {
  const auto span = q.account({name, OpKind::product}, {.flops = seconds, .bytes = 3});
}

// The slices of the file: all events that have a duration.
std::vector<json> slices(const Trace& trace, const std::string& name = "") {
  const json file = json::parse(trace_json({{{7, "rank 7", trace}}}));
  std::vector<json> found;
  for (const json& e : file["traceEvents"])
    if (e["ph"] == "X" && (name.empty() || e["name"] == name)) found.push_back(e);
  return found;
}

TEST(SimTrace, HasOpsAndWaitsAtTheirTimesOnTheirLanes) {
  Arena arena, host;
  Queue q(Device::sim, arena, host, kSlow);
  op(q, "before", 5);
  Trace trace(q.now());
  q.trace_to(&trace);
  op(q, "first", 1.5);
  Event sent;
  {
    const Queue::OnLane lane(q, Lane::comm);
    q.wait_until(7);
    op(q, "beside", 4);
    q.record(sent);
  }
  q.wait(sent);
  op(q, "last", 0.25);
  q.trace_to(nullptr);
  op(q, "after", 1);
  trace.finish(q.now() - 1, "step");
  EXPECT_DOUBLE_EQ(trace.seconds(), 6.25);  // from 5 to 7 + 4 + 0.25
  const auto at = [&](const char* name, double begin, double end, int row) {
    for (const TraceEvent& e : trace.events())
      if (e.name == name) {
        EXPECT_DOUBLE_EQ(e.begin, begin) << name;
        EXPECT_DOUBLE_EQ(e.end, end) << name;
        EXPECT_EQ(e.row, row) << name;
        return;
      }
    ADD_FAILURE() << name << " is missing";
  };
  at("first", 0, 1.5, Trace::row(Lane::compute));
  at("beside", 2, 6, Trace::row(Lane::comm));
  at("wait", 1.5, 6, Trace::row(Lane::compute));
  at("last", 6, 6.25, Trace::row(Lane::compute));
  at("step", 0, 6.25, Trace::kPhases);
  EXPECT_EQ(trace.events().size(), 5U) << "neither what was before nor what came afterwards";
}

TEST(SimTrace, ChangesNeitherTheClockNorTheTotals) {
  Arena arena, other;
  Queue plain(Device::sim, arena, kSlow), traced(Device::sim, other, kSlow);
  Trace trace;
  traced.trace_to(&trace);
  for (Queue* q : {&plain, &traced}) {
    op(*q, "a", 1.0 / 3);
    q->wait_until(0.7);
    op(*q, "b", 0.1);
  }
  EXPECT_EQ(plain.now(), traced.now());
  EXPECT_EQ(plain.waited(), traced.waited());
  EXPECT_EQ(plain.seconds(), traced.seconds());
}

TEST(SimTrace, NotesPhasesAndTheMemoryInUse) {
  Arena arena, host;
  Queue q(Device::sim, arena, host, kSlow);
  const Buffer weights = arena.make(Category::weights, DType::f32, {64}, "w");
  Trace trace;
  q.trace_to(&trace);
  for (int i = 0; i < 2; ++i) {
    const auto phase = arena.phase("micro");
    op(q, "a", 1);
    const Buffer scratch = q.scratch(DType::f32, {128}, "scratch");
    op(q, "b", 2);
  }
  op(q, "c", 4);
  trace.finish(q.now(), "step");
  const auto phases = std::vector<std::string>{"micro", "micro (2)"};
  EXPECT_EQ(trace.phases(), phases);
  const std::vector<json> second = slices(trace, "micro (2)");
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0]["ts"], 3e6);
  EXPECT_EQ(second[0]["dur"], 3e6);
  EXPECT_EQ(slices(trace, "b")[1]["args"]["phase"], "micro (2)");
  EXPECT_FALSE(slices(trace, "c")[0]["args"].contains("phase"));
  // 256 bytes of weights; 512 of scratch from the beginning of the op that asked for it until that
  // of the first op without it. The second micro-batch asks at once.
  std::vector<std::pair<double, int64_t>> found;
  for (const TraceMemory& m : trace.memory()) {
    EXPECT_EQ(at(m.bytes, Category::weights), 256);
    found.emplace_back(m.time, at(m.bytes, Category::workspace));
  }
  const std::vector<std::pair<double, int64_t>> expected = {{0, 512}, {3, 512}, {6, 0}};
  EXPECT_EQ(found, expected);
}

TEST(CpuTrace, MeasuresSpansAndNestsThem) {
  Arena arena{Arena::Heap{}};
  Queue q(Device::cpu, arena);
  Trace trace(q.trace_clock());
  q.trace_to(&trace);
  {
    const auto outer = q.account({"outer", OpKind::product}, {.flops = 9, .bytes = 1});
    std::this_thread::sleep_for(2ms);
    {
      const auto inner = q.account({"inner", OpKind::copy}, {.flops = 0, .bytes = 1});
      std::this_thread::sleep_for(3ms);
    }
    std::this_thread::sleep_for(1ms);
  }
  const Buffer x = arena.make(Category::data, DType::f32, {3}, "x");
  const float values[3] = {1, 2, 3};
  q.upload(x, values);
  trace.finish(q.trace_clock(), "step 3");
  const json outer = slices(trace, "outer")[0], inner = slices(trace, "inner")[0];
  const auto begin = [](const json& e) { return e["ts"].get<double>(); };
  const auto end = [&](const json& e) { return begin(e) + e["dur"].get<double>(); };
  EXPECT_GE(inner["dur"], 3000);
  EXPECT_GE(outer["dur"], 6000);
  EXPECT_GE(begin(inner), begin(outer) + 2000);
  EXPECT_LE(end(inner), end(outer) - 1000);
  EXPECT_EQ(inner["tid"], outer["tid"]) << "nested on one thread";
  EXPECT_EQ(slices(trace, "upload")[0]["args"]["bytes"], 12);
  EXPECT_LE(end(outer), end(slices(trace, "step 3")[0]));
  EXPECT_GE(q.seconds(), 0.009) << "totals count as without a trace";
}

TEST(Traces, AreBoundedWithoutGaps) {
  Arena arena, host;
  Queue q(Device::sim, arena, host, kSlow);
  Trace trace(0, 3);
  q.trace_to(&trace);
  for (int i = 0; i < 10; ++i) op(q, "op", 1 + i);
  trace.finish(q.now(), "step");
  EXPECT_EQ(trace.left_out(), 7);
  ASSERT_EQ(trace.events().size(), 5U);
  const TraceEvent& more = trace.events()[3];
  EXPECT_EQ(more.name, "more ops");
  EXPECT_DOUBLE_EQ(more.begin, 1 + 2 + 3);
  EXPECT_DOUBLE_EQ(more.end, 55);  // the sum of 1 to 10
  EXPECT_DOUBLE_EQ(more.flops, 55 - 6);
  EXPECT_EQ(trace.events()[4].note, "7 events are not shown one by one");
}

TEST(Traces, BeginAgainAndCutWhatGoesOn) {
  Trace trace;
  trace.add({.name = "over", .row = 1, .begin = 0, .end = 2});
  trace.add({.name = "under way", .row = 2, .begin = 1, .end = 5});
  trace.restart(3);
  trace.add({.name = "long", .row = 2, .begin = 5, .end = 9});
  trace.add({.name = "next step's", .row = 3, .begin = 8, .end = 9});
  trace.finish(7, "step");
  ASSERT_EQ(trace.events().size(), 3U);
  EXPECT_EQ(trace.events()[0].note, "began before");
  EXPECT_DOUBLE_EQ(trace.events()[0].begin, 0);
  EXPECT_DOUBLE_EQ(trace.events()[0].end, 2);
  EXPECT_EQ(trace.events()[1].note, "goes on afterwards");
  EXPECT_DOUBLE_EQ(trace.events()[1].end, 4);
}

// Two collectives at a time, of two groups: a viewer would take the second for a part of the first.
TEST(TraceFiles, PutWhatOverlapsOnAnotherThread) {
  Trace trace;
  const int row = Trace::row(Lane::tensor);
  trace.add({.name = "later", .row = row, .begin = 3, .end = 3.5});
  trace.add({.name = "a", .row = row, .begin = 0, .end = 2});
  trace.add({.name = "b", .row = row, .begin = 1, .end = 3});
  trace.add({.name = "in b", .row = row, .begin = 2, .end = 3});
  trace.finish(4, "step");
  EXPECT_NE(slices(trace, "a")[0]["tid"], slices(trace, "b")[0]["tid"]);
  EXPECT_EQ(slices(trace, "later")[0]["tid"], slices(trace, "a")[0]["tid"]);
  double last_ts = -1;
  json last_tid = -1;
  for (const json& e : slices(trace)) {
    if (e["tid"] == last_tid) {
      EXPECT_GE(e["ts"], last_ts) << e;
    }
    last_ts = e["ts"];
    last_tid = e["tid"];
    EXPECT_GE(e["dur"], 0);
  }
}

TEST(TraceFiles, NameProcessesAndThreadsAndAreValid) {
  Trace trace;
  trace.add({.name = "quote \" and \xff, not UTF-8", .row = 1, .begin = 1e-6 / 3, .end = 1e-6});
  trace.finish(1e-6, "step");
  TraceFile file{{{4, "rank 4", trace}, {5, "rank 5", trace}}};
  file.flows = {{"message", {0, 0}, {1, 0}}};
  file.about = {{"time", "simulated"}};
  const TempFolder folder;
  write_trace(folder / "trace.json", file);
  const json read = json::parse(read_text(folder / "trace.json"));
  EXPECT_EQ(read["otherData"]["time"], "simulated");
  std::vector<std::string> names;
  std::vector<json> arrow;
  for (const json& e : read["traceEvents"]) {
    if (e["ph"] == "M" && e["args"].contains("name")) names.push_back(e["args"]["name"]);
    if (e["ph"] == "s" || e["ph"] == "f") arrow.push_back(e);
  }
  const std::vector<std::string> expected = {"rank 4", "phases", "compute",
                                             "rank 5", "phases", "compute"};
  EXPECT_EQ(names, expected);
  ASSERT_EQ(arrow.size(), 2U);
  EXPECT_EQ(arrow[0]["id"], arrow[1]["id"]);
  EXPECT_EQ(arrow[0]["pid"], 4);
  EXPECT_EQ(arrow[1]["pid"], 5);
  const json slice = slices(trace)[1];
  EXPECT_NEAR(slice["ts"].get<double>(), 1.0 / 3, 1e-6);
  // The end is the sum of two numbers that were rounded to picoseconds alike.
  EXPECT_DOUBLE_EQ(slice["ts"].get<double>() + slice["dur"].get<double>(), 1);
}

}  // namespace
}  // namespace capstan
