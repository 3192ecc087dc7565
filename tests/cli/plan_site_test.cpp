// capstan plan site: what GPUs need of a room.

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/wrapped.h"
#include "program.h"

namespace capstan::cli_test {
namespace {

class PlanSite : public Cli {
 protected:
  std::string text(const Words& more) const {
    const Outcome o = site(more);
    EXPECT_EQ(o.code, 0) << o.err;
    std::istringstream lines(o.out);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(columns_of(line), 80) << line;
    }
    return o.out;
  }
  Outcome site(const Words& more) const {
    Words words = {"plan", "site"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
};

TEST_F(PlanSite, TellsPowerNetworkStorageAndRacks) {
  // 16 x 10.2 kW; √3·208·60·0.8 VA; 128 / 32 leaves and 128 / 64 spines.
  expect_holds(text({"--gpu", "h100-sxm", "--servers", "16"}),
               {"16 servers with 8 h100-sxm each: 128 GPUs", "10.2 kW", "17,292.8 VA (17.3 kVA)",
                "163.2 kW", "556,862 BTU/h", "4 leaves and 2 spines for 128 endpoints",
                "400 Gb/s NDR (50 GB/s)", "2 TB and 1 GB/s", "NFS", "640 GiB", "Slurm"});
  EXPECT_EQ(text({"--gpus=128"}).find("spare"), std::string::npos);
  expect_holds(text({"--gpus=121", "--other_kw=11.5", "--pue=1.25"}),
               {"7 GPUs beyond the 121 asked for", "174.7 kW, of which 11.5 kW", "218.4 kW"});
}

TEST_F(PlanSite, EveryCaseFitsATerminal) {
  const std::vector<Words> cases = {
      {},
      {"--gpu=l40s", "--gpus_per_server=10", "--servers=21", "--circuit=415x60"},
      {"--gpu=b200", "--servers=100000", "--redundancy=n+1", "--rack_kw=15"},
      {"--gpu=gh200-141", "--gpus=99999", "--storage_tb=123456.7", "--storage_gb_per_s=98765.4"},
      {"--gpu=a100-80-sxm", "--servers=999", "--oversubscription=2.5", "--node_gb_per_s=123.4",
       "--circuit=123.4x56.7x3", "--server_watts=6789", "--pdus_per_rack=9"},
      {"--server_units=41", "--redundancy=none", "--people=somebody.with-a-long-name:8"}};
  for (const Words& words : cases) text(words);
}

TEST_F(PlanSite, SaysWhenTwoLevelsDoNotSuffice) {
  expect_holds(text({"--servers=257"}),
               {"two levels do not suffice for 2056 endpoints", "at most 2,048", "66 ports or more",
                "third level", "65,536"});
}

TEST_F(PlanSite, NamesADirectorSwitch) {
  expect_holds(text({"--gpu=l40s", "--servers=27"}),
               {"CS7520: 216 ports, 6 spines of 36 ports", "12 leaves and 6 spines"});
  EXPECT_EQ(text({"--gpu=l40s", "--servers=28"}).find("CS7520"), std::string::npos);
}

TEST_F(PlanSite, DividesAServer) {
  expect_holds(text({"--people=ana:2,ben:4"}),
               {"  export CUDA_VISIBLE_DEVICES=0,1  # ana\n",
                "  export CUDA_VISIBLE_DEVICES=2,3,4,5  # ben\n", "2 GPUs", "none needed yet"});
  expect_refused(2, {"plan", "site", "--people=ana:6,ben:4"}, {"10 GPUs", "has 8", "Slurm"});
  expect_refused(2, {"plan", "site", "--people="}, {"--people"});
}

TEST_F(PlanSite, JsonHasFiguresWithTheirUnits) {
  const auto out = nlohmann::json::parse(
      site({"--servers=32", "--circuit=415x60", "--people=ana:3", "--json"}).out);
  EXPECT_EQ(out["servers"]["watts_per_server"], 10200);
  EXPECT_EQ(out["servers"]["host_cores"], 8 * 5 + 4);
  EXPECT_NEAR(out["power"]["circuit"]["capacity_va"].get<double>(), 34502.5, 0.1);
  EXPECT_EQ(out["power"]["pdus"], 22);
  EXPECT_EQ(out["racks"]["count"], 11);
  EXPECT_EQ(out["fabric"]["leaves"], 8);
  EXPECT_EQ(out["fabric"]["spines"], 4);
  EXPECT_EQ(out["storage"]["tier"], "nfs");
  EXPECT_EQ(out["sharing"]["shares"][0]["cuda_visible_devices"], "0,1,2");
  EXPECT_TRUE(out["sharing"]["needs_scheduler"]);
}

TEST_F(PlanSite, RefusesWhatIsWrong) {
  const std::pair<Words, Words> cases[] = {
      {{"--gpu=h10-sxm"}, {"did you mean h100-sxm?"}},
      {{"--circuit=230x32"}, {"number of phases"}},
      {{"--circuit=l15-30"}, {"needs 2 PDUs", "--pdus_per_rack 4"}},
      {{"--servers=2", "--switch_ports=35"}, {"even number"}},
      {{"--servers=0"}, {"from 1 to 1000000"}},
      {{"--server=2"}, {"no such option", "did you mean --servers"}},
      {{"--switch_ports=40"}, {"one server has no network to others"}},
      {{"site"}, {"unexpected argument"}}};
  for (const auto& [words, parts] : cases) {
    Words all = {"plan", "site"};
    all.insert(all.end(), words.begin(), words.end());
    expect_refused(2, all, parts);
  }
}

TEST_F(PlanSite, HelpIsFoundFromPlan) {
  expect_holds(run({"plan", "--help"}).out, {"capstan plan site"});
  expect_holds(site({"--help"}).out, {"--redundancy", "--people", "208x60x3", "n+1"});
}

}  // namespace
}  // namespace capstan::cli_test
