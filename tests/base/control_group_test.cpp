#include "base/control_group.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

// A machine's files, as far as control groups are in them.
class ControlGroups : public testing::Test {
 protected:
  void belongs_to(std::string_view lines) { write("proc/self/cgroup", lines); }
  void group(const std::string& file, std::string_view text) {
    write("sys/fs/cgroup/" + file, text);
  }
  GroupLimits limits() const { return group_limits(machine_.path()); }

 private:
  void write(const fs::path& path, std::string_view text) {
    fs::create_directories((machine_.path() / path).parent_path());
    write_text(machine_.path() / path, text);
  }
  const TempFolder machine_;
};

TEST_F(ControlGroups, WithoutAnyNothingIsLimited) {
  for (const char* lines : {"", "0::/\n", "0::/a/b\n4:memory:/a\n", "nonsense\n", "4:memory"}) {
    belongs_to(lines);
    EXPECT_FALSE(limits().memory) << lines;
    EXPECT_FALSE(limits().memory_left) << lines;
    EXPECT_FALSE(limits().cores) << lines;
  }
}

TEST_F(ControlGroups, TheLeastOfAllThatAreAboveCounts) {
  belongs_to("0::/job/step\n");
  group("job/memory.max", "1000\n");
  group("job/memory.current", "700\n");
  group("job/memory.stat", "anon 500\ninactive_file 50\nactive_file 9\n");
  group("job/cpu.max", "150000 100000\n");
  group("job/step/memory.max", "max\n");
  group("job/step/memory.current", "600\n");
  group("job/step/cpu.max", "max 100000\n");
  EXPECT_EQ(limits().memory, 1000);
  EXPECT_EQ(limits().memory_left, 350);
  EXPECT_EQ(limits().cores, 1.5);
  group("job/step/memory.max", "650\n");
  EXPECT_EQ(limits().memory, 650);
  EXPECT_EQ(limits().memory_left, 50);
  group("job/step/memory.max", "200\n");
  group("job/step/memory.current", "0\n");
  EXPECT_EQ(limits().memory_left, 200);
}

// A container sees its own group at the top, whatever the path is on its host.
TEST_F(ControlGroups, TheTopCounts) {
  belongs_to("0::/host/path\n");
  group("memory.max", "1000\n");
  group("memory.current", "2000\n");
  EXPECT_EQ(limits().memory, 1000);
  EXPECT_EQ(limits().memory_left, 0);
}

TEST_F(ControlGroups, Version1HasOneFolderForEachKind) {
  belongs_to(
      "12:cpu,cpuacct:/slurm/job_7\n9:cpuset:/slurm\n4:memory:/slurm/job_7\n1:name=systemd:/x\n"
      "0::/\n");
  group("memory/memory.limit_in_bytes", "9223372036854771712\n");
  group("memory/memory.usage_in_bytes", "99999\n");
  group("memory/slurm/job_7/memory.limit_in_bytes", "1000\n");
  group("memory/slurm/job_7/memory.usage_in_bytes", "400\n");
  group("memory/slurm/job_7/memory.stat", "inactive_file 1\ntotal_inactive_file 25\n");
  group("cpu,cpuacct/slurm/cpu.cfs_quota_us", "-1\n");
  group("cpu,cpuacct/slurm/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limits().memory, 1000);
  EXPECT_EQ(limits().memory_left, 625);
  EXPECT_FALSE(limits().cores);
  group("cpu,cpuacct/slurm/job_7/cpu.cfs_quota_us", "400000\n");
  group("cpu,cpuacct/slurm/job_7/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limits().cores, 4);
  belongs_to("12:cpuacct,cpu:/slurm/job_8\n");
  group("cpu/slurm/job_8/cpu.cfs_quota_us", "200000\n");
  group("cpu/slurm/job_8/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limits().cores, 2);
}

}  // namespace
}  // namespace capstan
