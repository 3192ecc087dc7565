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
    for (const char* changed :
         {"USED", "HIDES_PROCESSES", "MHZ", "REASONS", "MILLIJOULES", "MILLIWATTS", "REFUSES"})
      ::unsetenv((std::string("FAKE_NVML_") + changed).c_str());
  }
  static void set_used(int64_t bytes) {
    ::setenv("FAKE_NVML_USED", std::to_string(bytes).c_str(), 1);
  }
  static GpuMonitor monitor() { return {std::make_unique<Nvml>(CAPSTAN_FAKE_NVML), 0}; }
  // As often as it is asked.
  static GpuMonitor eager(const char* library = CAPSTAN_FAKE_NVML) {
    return {std::make_unique<Nvml>(library), 0, GpuMonitor::Duration::zero()};
  }
  static void sample(GpuMonitor& m, const char* mhz, const char* reasons, const char* watts = "1",
                     const char* millijoules = "0") {
    ::setenv("FAKE_NVML_MHZ", mhz, 1);
    ::setenv("FAKE_NVML_REASONS", reasons, 1);
    ::setenv("FAKE_NVML_MILLIWATTS", (std::string(watts) + "000").c_str(), 1);
    ::setenv("FAKE_NVML_MILLIJOULES", millijoules, 1);
    m.sample();
  }
  static void expect_holds(const GpuUse& use, const ClockHolds& expected) {
    ASSERT_TRUE(use.holds);
    EXPECT_EQ(use.holds->power, expected.power);
    EXPECT_EQ(use.holds->heat, expected.heat);
    EXPECT_EQ(use.holds->board, expected.board);
    EXPECT_EQ(use.holds->settings, expected.settings);
  }
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

TEST_F(GpuMonitored, MeansAreOfAllReadingsAndMostIsTheMost) {
  GpuMonitor m = eager();
  sample(m, "1980", "0x0", "300");
  sample(m, "1400", "0x4", "700");
  sample(m, "1500", "0x4", "650");
  sample(m, "1120", "0x24", "550");
  const auto use = m.use(0);
  ASSERT_TRUE(use);
  EXPECT_EQ(use->readings, 4);
  EXPECT_EQ(use->mean_mhz, 1500);
  EXPECT_EQ(use->mhz_most, 1980);
  EXPECT_EQ(use->mean_watts, 550);
  EXPECT_EQ(use->most_watts, 700);
  EXPECT_EQ(use->watts_limit, 700);
  expect_holds(*use, {.power = 0.75, .heat = 0.25});
}

TEST_F(GpuMonitored, TheBoardsOwnSlowdownIsHeatWhereItSaysSo) {
  GpuMonitor m = eager();
  sample(m, "900", "0x48");  // hardware, and that it was heat
  sample(m, "900", "0x88");  // hardware, and that it was the power supply
  sample(m, "900", "0x8");   // hardware
  sample(m, "900", "0x2");
  const auto use = m.use(0);
  ASSERT_TRUE(use);
  expect_holds(*use, {.heat = 0.25, .board = 0.5, .settings = 0.25});
}

TEST_F(GpuMonitored, EnergyIsFromTheSetupToTheEndOfTheTraining) {
  GpuMonitor m = eager();
  ::setenv("FAKE_NVML_MILLIJOULES", "1000000", 1);
  sample(m, "1", "0x0", "1", "1500000");
  m.training_done();
  EXPECT_FALSE(m.use(0)->joules) << "was not set up";
  ::setenv("FAKE_NVML_MILLIJOULES", "2000000", 1);
  m.setup_done();
  sample(m, "1", "0x0", "1", "2500000");
  EXPECT_FALSE(m.use(0)->joules) << "not done yet";
  ::setenv("FAKE_NVML_MILLIJOULES", "5250000", 1);
  m.training_done();
  EXPECT_EQ(m.use(0)->joules, 3250);
  EXPECT_EQ(m.use(0)->readings, 2) << "at work";
}

TEST_F(GpuMonitored, AnOlderLibraryTellsClockAndReasonsAlone) {
  GpuMonitor m = eager(CAPSTAN_FAKE_NVML_OLDER);
  m.setup_done();
  sample(m, "1400", "0x4", "600");
  m.training_done();
  const auto use = m.use(0);
  ASSERT_TRUE(use && use->holds);
  EXPECT_EQ(use->holds->power, 1);
  EXPECT_EQ(use->mean_mhz, 1400);
  EXPECT_EQ(use->mean_watts, 600);
  EXPECT_FALSE(use->mhz_most);
  EXPECT_FALSE(use->watts_limit);
  EXPECT_FALSE(use->joules);
}

TEST_F(GpuMonitored, AReadingThatDoesNotTellDoesNotCountForTheMean) {
  GpuMonitor m = eager();
  sample(m, "1400", "0x4", "600");
  ::setenv("FAKE_NVML_REFUSES", "nvmlDeviceGetClockInfo", 1);
  sample(m, "1400", "0x0", "600");
  ::setenv("FAKE_NVML_REFUSES", "nvmlDeviceGetCurrentClocksEventReasons", 1);
  sample(m, "1600", "0x0", "600");
  const auto use = m.use(0);
  ASSERT_TRUE(use && use->holds);
  EXPECT_EQ(use->readings, 3);
  EXPECT_EQ(use->mean_mhz, 1500);
  EXPECT_EQ(use->holds->power, 0.5);
}

TEST_F(GpuMonitored, OnACpuThereIsNothingToTell) {
  GpuMonitor m(Device::cpu);
  m.setup_done();
  m.sample();
  m.training_done();
  EXPECT_EQ(m.process_bytes(), 0);
  EXPECT_FALSE(m.use(0));
}

constexpr int64_t kGiB = int64_t{1} << 30;

GpuUse some_use() {
  return {.context_bytes = kGiB / 2,
          .setup_bytes = 10 * kGiB,
          .peak_bytes = 11 * kGiB,
          .by_process = true,
          .card_peak_bytes = 12 * kGiB,
          .card_bytes = 80 * kGiB,
          .readings = 3,
          .mean_busy = 0.98,
          .mean_mhz = 1450.4,
          .mhz_most = 1980,
          .holds = ClockHolds{.power = 1},
          .mean_watts = 690,
          .most_watts = 702,
          .watts_limit = 700,
          .joules = 44280,
          .most_celsius = 71};
}

// The line that begins with `name`, without it; "" where there is none.
std::string line(const GpuUse& use, const std::string& name) {
  const std::string table = gpu_table(use, kGiB, kGiB);
  const size_t at = table.find("\n  " + name + " ");
  if (at == std::string::npos) return "";
  const size_t from = table.find_first_not_of(' ', at + 3 + name.size());
  return table.substr(from, table.find('\n', from) - from);
}

TEST(GpuTable, ShowsMemoryAndWork) {
  GpuUse use = some_use();
  EXPECT_EQ(gpu_table(use, 10 * kGiB, 10 * kGiB),
            "  GPU\n"
            "  planned           10.0 GiB\n"
            "  allocated         10.0 GiB\n"
            "  process           11.0 GiB   (peak; measured for this process)\n"
            "  after setup       10.0 GiB\n"
            "  CUDA context       512 MiB   (before the plan was allocated)\n"
            "  libraries          512 MiB   (process minus allocation and context)\n"
            "  card              12.0 GiB   (used by all processes, of 80.0 GiB)\n"
            "  busy                  98 %   (a kernel was running; 3 readings)\n"
            "  clock            1,450 MHz   (of 1,980 at most; limited by power in 100 % of "
            "readings)\n"
            "  power                690 W   (up to 702 W, limit 700 W)\n"
            "  energy             12.3 Wh   (of the whole card, during training)\n"
            "  temperature          71 °C   (peak)\n");
  use.readings = 0;
  use.peak_bytes = 10 * kGiB;
  EXPECT_EQ(line(use, "busy"), "");
  EXPECT_EQ(line(use, "clock"), "");
  EXPECT_EQ(gpu_table(use, 10 * kGiB, 10 * kGiB).find("libraries"), std::string::npos);
}

TEST(GpuTable, SaysNothingOfWhatIsNotKnown) {
  GpuUse use = some_use();
  use.mhz_most.reset();
  EXPECT_EQ(line(use, "clock"), "1,450 MHz   (limited by power in 100 % of readings)");
  use.holds.reset();
  EXPECT_EQ(line(use, "clock"), "1,450 MHz");
  use.mhz_most = 1980;
  EXPECT_EQ(line(use, "clock"), "1,450 MHz   (of 1,980 at most)");
  use.watts_limit.reset();
  EXPECT_EQ(line(use, "power"), "690 W   (up to 702 W)");
  use.mean_busy.reset();
  use.mean_mhz.reset();
  use.mean_watts.reset();
  use.joules.reset();
  use.most_celsius.reset();
  for (const char* name : {"busy", "clock", "power", "energy", "temperature"})
    EXPECT_EQ(line(use, name), "") << name;
}

TEST(GpuTable, NamesAllThatHeldTheClock) {
  const auto note = [](const ClockHolds& holds) {
    GpuUse use = some_use();
    use.holds = holds;
    return line(use, "clock").substr(std::string("1,450 MHz   ").size());
  };
  EXPECT_EQ(note({}), "(of 1,980 at most; not limited)");
  EXPECT_EQ(
      note({.power = 0.97, .heat = 0.004}),
      "(of 1,980 at most; limited by power in 97 % of readings, by temperature in under 1 %)");
  EXPECT_EQ(
      note({.board = 0.5, .settings = 1}),
      "(of 1,980 at most; limited by the board in 50 % of readings, by clock settings in 100 %)");
}

TEST(GpuTable, EnergyIsInTheUnitThatFits) {
  const auto energy = [](double joules) {
    GpuUse use = some_use();
    use.joules = joules;
    const std::string found = line(use, "energy");
    return found.substr(0, found.find("   "));
  };
  EXPECT_EQ(energy(0), "") << "the card's counter has not moved";
  EXPECT_EQ(energy(850), "850 J");
  EXPECT_EQ(energy(3599.9), "1.0 Wh");
  EXPECT_EQ(energy(3600 * 99.97), "100 Wh");
  EXPECT_EQ(energy(3600 * 640.0), "640 Wh");
  EXPECT_EQ(energy(3600 * 999.9), "1.0 kWh");
  EXPECT_EQ(energy(3.6e6 * 16.8), "16.8 kWh");
}

TEST(GpuTable, IsOnTheRunsPage) {
  RunSummary run;
  run.memory.planned_bytes = run.memory.measured_bytes = 10 * kGiB;
  EXPECT_EQ(report_html(run, {}).find("CUDA context"), std::string::npos);
  run.gpu = some_use();
  run.gpu_memory = {run.memory.planned_bytes, run.memory.measured_bytes};
  const std::string page = report_html(run, {});
  EXPECT_NE(page.find("<td>CUDA context</td><td>512 MiB</td>"), std::string::npos);
  EXPECT_NE(page.find("<td>clock</td><td>1,450 MHz</td><td>of 1,980 at most; limited by power "
                      "in 100 % of readings</td>"),
            std::string::npos);
}

}  // namespace
}  // namespace capstan
