// The simulated step as a timeline.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/small_models.h"
#include "plan/predict.h"

namespace capstan::test {
namespace {

using nlohmann::json;

TrainOptions options() {
  TrainOptions o;
  o.model = aligned_config();
  o.model.vocab = 300;
  o.limits = {.tokens = 80, .documents = 2, .longest = 40};
  return o;
}

// Slow enough a network for computation to wait for it.
TrainOptions options_of_ranks(int ranks, const Sharding& sharding) {
  TrainOptions o = options();
  o.ranks = {0, ranks};
  o.sharding = sharding;
  o.network = {.seconds_per_message = 1e-6, .bytes_per_second = 3e9, .room = true};
  return o;
}

CostModel machine(Device device) {
  return {.device = device, .seconds_per_call = 1e-6};
}

// In the order of their beginnings.
std::vector<TraceEvent> row_of(const Trace& trace, int row) {
  std::vector<TraceEvent> found;
  for (const TraceEvent& e : trace.events())
    if (e.row == row) found.push_back(e);
  std::stable_sort(found.begin(), found.end(),
                   [](const TraceEvent& a, const TraceEvent& b) { return a.begin < b.begin; });
  return found;
}

// The lane of computation has something at any time, and one thing at a time.
void expect_covered(const Trace& trace, double seconds) {
  double now = 0, sum = 0;
  for (const TraceEvent& e : row_of(trace, Trace::row(Lane::compute))) {
    EXPECT_NEAR(e.begin, now, 1e-12 * seconds) << e.name;
    EXPECT_GE(e.end, e.begin) << e.name;
    sum += e.end - e.begin;
    now = e.end;
  }
  EXPECT_NEAR(now, seconds, 1e-9 * seconds);
  EXPECT_NEAR(sum, seconds, 1e-9 * seconds);
  EXPECT_NEAR(trace.seconds(), seconds, 1e-9 * seconds);
}

double sum_of(const Trace& trace, std::string_view name) {
  double sum = 0;
  for (const TraceEvent& e : trace.events())
    if (e.name == name) sum += e.end - e.begin;
  return sum;
}

TEST(SimulatedTrace, OfOneDeviceIsItsPredictedStep) {
  for (const Device device : {Device::cpu, Device::cuda})
    for (const int64_t micros : {1, 3}) {
      const StepTrace step = trace_largest(options(), machine(device), micros);
      const StepEstimate predicted = estimate_largest(options(), machine(device), micros);
      EXPECT_NEAR(step.estimate.seconds, predicted.seconds, 1e-9 * predicted.seconds);
      ASSERT_EQ(step.file.processes.size(), 1U);
      const Trace& trace = step.file.processes[0].trace;
      expect_covered(trace, predicted.seconds);
      EXPECT_DOUBLE_EQ(sum_of(trace, "wait"), 0);
      EXPECT_GT(trace.memory().size(), 10U);
      EXPECT_EQ(at(trace.memory()[0].bytes, Category::weights),
                at(Trainer::plan(options()).device.highest, Category::weights));
    }
}

// What the memory counter shows is what the plan says, at its highest.
TEST(SimulatedTrace, ReachesThePlannedActivations) {
  TrainOptions o = options();
  o.single_micro_batch = true;
  const StepTrace step = trace_largest(o, machine(Device::cpu), 1);
  int64_t most = 0;
  for (const TraceMemory& m : step.file.processes[0].trace.memory())
    most = std::max(most, at(m.bytes, Category::activations));
  EXPECT_EQ(most, at(Trainer::plan(o).device.highest, Category::activations));
}

TEST(SimulatedTrace, OfRanksHasCollectivesAndWaits) {
  for (const Device device : {Device::cpu, Device::cuda})
    for (const Sharding& sharding : {kDdp, kZero3}) {
      TrainOptions o = options_of_ranks(4, sharding);
      o.device = device;
      SCOPED_TRACE(strategy_name(sharding));
      const StepTrace step = trace_largest(o, machine(device), 2);
      const StepEstimate predicted = estimate_largest(o, machine(device), 2);
      EXPECT_NEAR(step.estimate.seconds, predicted.seconds, 1e-9 * predicted.seconds);
      const Trace& trace = step.file.processes[0].trace;
      expect_covered(trace, predicted.seconds);
      EXPECT_GT(predicted.exposed, 0.01);
      EXPECT_NEAR(sum_of(trace, "wait"), predicted.exposed * predicted.seconds,
                  1e-9 * predicted.seconds);
      double gathered = 0;
      for (const TraceEvent& e : row_of(trace, Trace::row(Lane::comm))) {
        EXPECT_LE(e.end, predicted.seconds * (1 + 1e-12)) << e.name;
        // Three messages at 3 GB/s. One that is cut says so, and not what it gathers.
        if (e.note.starts_with("all_gather of ")) {
          EXPECT_NEAR(e.end - e.begin, 3e-6 + e.bytes / 3e9, 1e-12);
          gathered += e.bytes;
        }
      }
      if (sharding.weights == Hold::shard) {
        EXPECT_GT(gathered, 0);
      }
    }
}

// Stages on one axis: every pass once, none before what it needs, and all of a step's time.
TEST(SimulatedTrace, OfAPipelineHasThePassesOfAllStages) {
  for (const int chunks : {1, 2}) {
    TrainOptions o = options_of_ranks(2, kDdp);
    o.model.layers = 5;
    o.mesh.pipeline = 2;
    o.pipeline.chunks = chunks;
    o.pipeline.micro_batches = 3;
    const StepTrace step = trace_largest(o, machine(Device::cuda), 3);
    const StepEstimate predicted = estimate_largest(o, machine(Device::cuda), 3);
    EXPECT_DOUBLE_EQ(step.estimate.seconds, predicted.seconds);
    ASSERT_EQ(step.file.processes.size(), 2U);
    for (const TraceProcess& stage : step.file.processes) {
      SCOPED_TRACE(stage.name);
      expect_covered(stage.trace, predicted.seconds);
      const auto row = row_of(stage.trace, Trace::row(Lane::compute));
      for (const char* pass : {"forward 0", "forward 2", "backward 2"})
        EXPECT_EQ(std::count_if(row.begin(), row.end(),
                                [&](const TraceEvent& e) { return e.name == pass; }),
                  chunks)
            << pass;
    }
    // Of each micro-batch, messages cross each of the pieces' borders down and up.
    EXPECT_EQ(step.file.flows.size(), static_cast<size_t>(3 * 2 * (2 * chunks - 1)));
    for (const TraceFlow& f : step.file.flows) {
      const auto event = [&](const TraceFlow::End& end) {
        return step.file.processes[end.process].trace.events()[end.event];
      };
      EXPECT_NE(f.from.process, f.to.process);
      EXPECT_LE(event(f.from).end, event(f.to).begin) << event(f.to).name;
    }
    EXPECT_GT(sum_of(step.file.processes[1].trace, "wait"), 0) << "for the first activations";
  }
}

TEST(SimulatedTrace, EndsInTheFileWhenTheStepDoes) {
  const TrainOptions o = options_of_ranks(3, kZero3);
  const StepTrace step = trace_largest(o, machine(Device::cuda), 1);
  double end = 0;
  const json file = json::parse(trace_json(step.file));
  for (const json& e : file["traceEvents"])
    if (e["ph"] == "X") end = std::max(end, e["ts"].get<double>() + e["dur"].get<double>());
  EXPECT_NEAR(end, 1e6 * step.estimate.seconds, 1e6 * step.estimate.seconds * 1e-9);
}

}  // namespace
}  // namespace capstan::test
