#include "report/gpu_monitor.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "report/page.h"

namespace capstan {
namespace {

// The fake card says so many bytes are in use, and whether it names this process (with 300).
class GpuMonitored : public testing::Test {
 protected:
  GpuMonitored() { set_used(100); }
  ~GpuMonitored() override {
    ::unsetenv("FAKE_NVML_USED");
    ::unsetenv("FAKE_NVML_HIDES_PROCESSES");
  }
  static void set_used(int64_t bytes) {
    ::setenv("FAKE_NVML_USED", std::to_string(bytes).c_str(), 1);
  }
  static GpuMonitor monitor() { return {std::make_unique<Nvml>(CAPSTAN_FAKE_NVML), 0}; }
};

TEST_F(GpuMonitored, TakesTheDriversWordForThisProcess) {
  GpuMonitor m = monitor();
  set_used(900);
  EXPECT_EQ(m.process_bytes(), 300);
  m.setup_done();
  m.sample();
  m.sample();  // less than a second later: none is taken
  const auto use = m.use(40);
  ASSERT_TRUE(use);
  EXPECT_TRUE(use->by_process);
  EXPECT_EQ(use->context_bytes, 40);
  EXPECT_EQ(use->setup_bytes, 300);
  EXPECT_EQ(use->peak_bytes, 300);
  EXPECT_EQ(use->card_peak_bytes, 900);
  EXPECT_EQ(use->card_bytes, 1000);
  EXPECT_EQ(use->readings, 1);
  EXPECT_EQ(use->mean_busy, 0.75);
  EXPECT_EQ(use->mean_watts, 512.5);
  EXPECT_EQ(use->most_celsius, 41);
}

TEST_F(GpuMonitored, WithoutItTakesWhatTheCardHasMoreThanAtTheStart) {
  ::setenv("FAKE_NVML_HIDES_PROCESSES", "1", 1);
  GpuMonitor m = monitor();
  EXPECT_EQ(m.process_bytes(), 0);
  set_used(150);
  const int64_t context = m.process_bytes();
  EXPECT_EQ(context, 50);
  set_used(800);
  m.setup_done();
  set_used(700);
  m.sample();
  const auto use = m.use(context);
  ASSERT_TRUE(use);
  EXPECT_FALSE(use->by_process);
  EXPECT_EQ(use->setup_bytes, 700);
  EXPECT_EQ(use->peak_bytes, 700) << "the most, not the last";
  set_used(50);
  EXPECT_EQ(m.process_bytes(), 0) << "others have left";
}

TEST_F(GpuMonitored, OnACpuThereIsNothingToTell) {
  GpuMonitor m(Device::cpu);
  m.setup_done();
  m.sample();
  EXPECT_EQ(m.process_bytes(), 0);
  EXPECT_FALSE(m.use(0));
}

TEST(GpuTable, ShowsPlanAllocationProcessAndContext) {
  const int64_t GiB = int64_t{1} << 30;
  GpuUse use{.context_bytes = GiB / 2,
             .setup_bytes = 10 * GiB,
             .peak_bytes = 11 * GiB,
             .by_process = true,
             .card_peak_bytes = 12 * GiB,
             .card_bytes = 80 * GiB,
             .readings = 3,
             .mean_busy = 0.98,
             .mean_watts = 412,
             .most_watts = 690,
             .most_celsius = 71};
  EXPECT_EQ(gpu_table(use, 10 * GiB, 10 * GiB),
            "  GPU\n"
            "  planned           10.0 GiB\n"
            "  allocated         10.0 GiB\n"
            "  process           11.0 GiB   (at most; as the card counts this process)\n"
            "  after the setup   10.0 GiB\n"
            "  CUDA context       512 MiB   (before the plan was allocated)\n"
            "  libraries          512 MiB   (process less allocated and context)\n"
            "  card              12.0 GiB   (in use by all, of 80.0 GiB)\n"
            "  busy                  98 %   (a kernel was running; 3 readings)\n"
            "  power                412 W   (at most 690 W)\n"
            "  temperature          71 °C   (at most)\n");
  use.readings = 0;
  use.peak_bytes = 10 * GiB;
  const std::string brief = gpu_table(use, 10 * GiB, 10 * GiB);
  EXPECT_EQ(brief.find("busy"), std::string::npos);
  EXPECT_EQ(brief.find("libraries"), std::string::npos);
  RunSummary run;
  run.memory.planned_bytes = run.memory.measured_bytes = 10 * GiB;
  EXPECT_EQ(report_html(run, {}).find("CUDA context"), std::string::npos);
  run.gpu = use;
  EXPECT_NE(report_html(run, {}).find("<td>CUDA context</td><td>512 MiB</td>"), std::string::npos);
}

}  // namespace
}  // namespace capstan
