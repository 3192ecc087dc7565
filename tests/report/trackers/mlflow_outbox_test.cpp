#include "report/trackers/mlflow_outbox.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/files.h"
#include "base/log.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kRun =
    R"({"run":{"group":"g","id":"0123456789abcdef","name":"oak","params":{"k":"v"},"project":"trees","time":5}})";
constexpr const char* kMetrics = R"({"metrics":{"loss":2.5,"val_loss":"NaN"},"step":3,"time":6})";
constexpr const char* kFile = R"({"as":"report.html","file":"../../../report.html"})";
constexpr const char* kStatus = R"({"status":"FINISHED","time":7})";

const OutboxState kState{.id = "0123456789abcdef",
                         .experiment = "4",
                         .run = "run7",
                         .artifacts = "1/run7/artifacts",
                         .sent = 0};

std::string lines_of(std::initializer_list<const char*> lines) {
  std::string text;
  for (const char* line : lines) text += std::string(line) + "\n";
  return text;
}

json other_run() {
  return {{"run",
           {{"id", "other"},
            {"project", "p"},
            {"name", "n"},
            {"time", 1},
            {"params", json::object()}}}};
}

bool same(const OutboxState& a, const OutboxState& b) {
  return a.id == b.id && a.experiment == b.experiment && a.run == b.run &&
         a.artifacts == b.artifacts && a.sent == b.sent;
}

class Outbox : public testing::Test {
 protected:
  fs::path box() const { return outbox_in(folder_.path()); }
  fs::path state() const { return folder_.path() / "state.json"; }
  std::string mended(const std::string& text) {
    write_text(box(), text);
    mend_outbox(folder_.path(), other_run());
    return read_text(box());
  }

  const TempFolder folder_;
  const log::Quiet quiet_;
};

TEST_F(Outbox, KnowsItsRecords) {
  const auto kind = [](const char* line) { return outbox_kind(outbox_record(line)); };
  EXPECT_EQ(kind(kRun), OutboxRecord::run);
  EXPECT_EQ(kind(kMetrics), OutboxRecord::metrics);
  EXPECT_EQ(kind(kFile), OutboxRecord::file);
  EXPECT_EQ(kind(kStatus), OutboxRecord::status);
}

// Every value of every record, replaced by one of each other type, and left out.
TEST_F(Outbox, ARecordWithAWrongTypeIsNone) {
  const std::vector<json> wrong = {nullptr, true, 0.5, "x y", json::array({1}), {{"a", {1}}}};
  int tried = 0;
  for (const char* line : {kRun, kMetrics, kFile, kStatus}) {
    const json record = json::parse(line), flat = record.flatten();
    for (const auto& [path, value] : flat.items())
      for (const json& other : wrong) {
        // A text of other letters is as good, but for those that have a meaning.
        const bool may_be_any = value.is_string() && other.is_string() && value != "NaN" &&
                                path != "/run/id" && path != "/status";
        const bool is_number = path == "/metrics/loss" || path == "/metrics/val_loss";
        if (may_be_any || (is_number && other.is_number())) continue;
        json changed = record;
        changed[json::json_pointer(path)] = other;
        EXPECT_EQ(outbox_kind(changed), std::nullopt) << changed;
        ++tried;
      }
  }
  EXPECT_GT(tried, 60);
  for (const char* line : {"", "7", "[]", "{}", R"({"run":{}})", R"({"metrics":{}})",
                           R"({"as":"a/b","file":"x"})", R"({"as":"..","file":"x"})"})
    EXPECT_TRUE(outbox_record(line).is_null()) << line;
  EXPECT_TRUE(outbox_record(std::string(100'000, '[')).is_null());
}

TEST_F(Outbox, AnOutboxInOrderStaysAsItIs) {
  const std::string text = lines_of({kRun, kMetrics, kFile, kStatus});
  write_outbox_state(folder_.path(), kState);
  EXPECT_EQ(mended(text), text);
  EXPECT_TRUE(same(read_outbox_state(folder_.path()), kState));
  EXPECT_FALSE(fs::exists(box().string() + ".bad"));
}

TEST_F(Outbox, WhatAKilledProcessLeftOfALineIsCut) {
  OutboxState some = kState;
  some.sent = std::ssize(std::string(kRun)) + 1;
  write_text(box(), lines_of({kRun}));
  write_outbox_state(folder_.path(), some);
  EXPECT_EQ(mended(lines_of({kRun, kMetrics}) + "{\"metr"), lines_of({kRun, kMetrics}));
  EXPECT_EQ(read_outbox_state(folder_.path()).sent, some.sent) << "nothing is sent again";
}

TEST_F(Outbox, BadLinesArePutAsideAndTheRestIsSentAgain) {
  OutboxState all = kState;
  const std::string text = lines_of({kRun, "{\"metrics\": 7}", kMetrics, "\xff", kStatus});
  all.sent = std::ssize(text);
  write_text(box(), text);
  write_outbox_state(folder_.path(), all);
  EXPECT_EQ(mended(text), lines_of({kRun, kMetrics, kStatus}));
  EXPECT_EQ(read_text(box().string() + ".bad"), "{\"metrics\": 7}\n\xff\n");
  const OutboxState now = read_outbox_state(folder_.path());
  EXPECT_EQ(now.sent, 0);
  EXPECT_EQ(now.run, kState.run) << "it goes on under the same id";
}

TEST_F(Outbox, ARunWhoseRecordIsLostGoesOnUnderItsId) {
  write_outbox_state(folder_.path(), kState);
  json expected = other_run();
  expected["run"]["id"] = kState.id;
  EXPECT_EQ(mended(lines_of({"{}", kMetrics})), expected.dump() + "\n" + kMetrics + "\n");
  fs::remove(state());
  EXPECT_EQ(mended(lines_of({kMetrics})), other_run().dump() + "\n" + kMetrics + "\n");
}

TEST_F(Outbox, FilesThatCannotBeReadArePutAside) {
  fs::create_directory(box());
  fs::create_directory(state());
  mend_outbox(folder_.path(), other_run());
  EXPECT_EQ(read_text(box()), other_run().dump() + "\n");
  EXPECT_TRUE(fs::is_directory(box().string() + ".bad"));
  EXPECT_TRUE(fs::is_directory(state().string() + ".bad"));
}

TEST_F(Outbox, AStateOfAnEarlierVersionIsRead) {
  write_text(state(), R"({"artifacts":"a","experiment":"1","run":"r","sent":0})");
  const OutboxState s = read_outbox_state(folder_.path());
  EXPECT_EQ(s.run, "r");
  EXPECT_TRUE(s.id.empty());
}

// A state is what was written, or it is put aside: no change makes it name another run.
TEST_F(Outbox, NoChangeOfTheStateIsBelieved) {
  write_text(box(), lines_of({kRun, kMetrics, kStatus}));
  OutboxState written = kState;
  written.sent = std::ssize(std::string(kRun)) + 1;
  write_outbox_state(folder_.path(), written);
  const std::string good = read_text(state());
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  int believed = 0;
  for (int i = 0; i < 1500; ++i) {
    std::string text = good;
    for (uint64_t changes = 1 + random() % 3; changes > 0 && !text.empty(); --changes) {
      const size_t at = random() % text.size();
      if (random() % 3 == 0)
        text.erase(at, 1 + random() % 20);
      else if (random() % 2 == 0)
        text.insert(at, 1, static_cast<char>(random()));
      else
        text[at] = static_cast<char>(random());
    }
    { std::ofstream(state(), std::ios::binary) << text; }
    const OutboxState read = read_outbox_state(folder_.path());
    ASSERT_TRUE(same(read, written) || same(read, {})) << "seed " << seed << ": " << text;
    believed += same(read, written) ? 1 : 0;
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      if (entry.path().filename().string().starts_with("state.json.bad")) fs::remove(entry.path());
  }
  EXPECT_LT(believed, 300) << "white space at the end, and changes that undo each other";
}

TEST_F(Outbox, NoChangeOfTheOutboxIsInItsWay) {
  const std::string good = lines_of({kRun, kMetrics, kFile, kMetrics, kStatus});
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  for (int i = 0; i < 120; ++i) {
    std::string text = good;
    for (uint64_t changes = 1 + random() % 4; changes > 0 && !text.empty(); --changes) {
      const size_t at = random() % text.size();
      if (random() % 3 == 0)
        text.erase(at, 1 + random() % 60);
      else
        text[at] = static_cast<char>(random());
    }
    const std::string now = mended(text);
    size_t lines = 0;
    for (size_t at = 0, end = 0; at < now.size(); at = end + 1, ++lines) {
      end = now.find('\n', at);
      ASSERT_NE(end, std::string::npos) << "seed " << seed << ": " << text;
      const auto kind = outbox_kind(outbox_record(now.substr(at, end - at)));
      ASSERT_TRUE(kind.has_value()) << "seed " << seed << ": " << text;
      ASSERT_EQ(*kind == OutboxRecord::run, at == 0) << "seed " << seed << ": " << text;
    }
    ASSERT_GT(lines, 0u);
    // What no change has touched is still there.
    for (const char* line : {kFile, kStatus}) {
      const bool whole = ("\n" + text).find("\n" + std::string(line) + "\n") != std::string::npos;
      ASSERT_TRUE(!whole || now.find(line) != std::string::npos) << "seed " << seed << ": " << text;
    }
  }
}

}  // namespace
}  // namespace capstan
