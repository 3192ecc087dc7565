#include "doctor/bug_report.h"

#include <gtest/gtest.h>

#include "doctor/secrets.h"
#include "support/temp_folder.h"
#include "support/variable.h"

namespace capstan {
namespace {

TEST(Secrets, AreMaskedInEveryForm) {
  const std::string secret = "s3cr3t-Value";
  for (const std::string& text : std::vector<std::string>{
           "--access_token " + secret, "--access_token=" + secret, "data.access_token: " + secret,
           "\"api_key\": \"" + secret + "\"", "HF_TOKEN=" + secret,
           "export WANDB_API_KEY='" + secret + "'", "Authorization: Bearer " + secret,
           "http://me:" + secret + "@host/path", "https://" + secret + "@host",
           "password=" + secret + ",next=1",
           "a line\nMLFLOW_TRACKING_PASSWORD=" + secret + "\nanother"}) {
    const std::string shown = masked(text, "");
    EXPECT_EQ(shown.find(secret), std::string::npos) << shown;
    EXPECT_NE(shown.find("***"), std::string::npos) << shown;
  }
  EXPECT_EQ(masked("tokens like hf_abcdefghijklmnop and ghp_0123456789abcdef", ""),
            "tokens like *** and ***");
}

TEST(Secrets, WhatIsNoSecretStays) {
  for (const std::string& text : std::vector<std::string>{
           "max_new_tokens: 50", "train.max_tokens: 1000", "tokenizer.json 1234", "lora_key: true",
           "total_tokens,val_loss\n12,0.5\n", "keep_last: 3", "data.access_token: null", "token",
           ""})
    EXPECT_EQ(masked(text, ""), text);
  EXPECT_EQ(masked("/home/me/out and /home/me", "/home/me"), "~/out and ~");
}

TEST(BugReport, HasTheRunAndTheEnvironmentWithoutSecrets) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "final");
  std::filesystem::create_directories(folder / "logs/csv/version_0");
  folder.write("final/hyperparameters.yaml", "seed: 1337\naccess_token: my-own-token\n");
  std::string metrics = "epoch,iter,loss\n";
  for (int i = 0; i < 100; ++i) metrics += "1," + std::to_string(i) + ",0.5\n";
  folder.write("logs/csv/version_0/metrics.csv", metrics);
  const Variable one("CAPSTAN_TRIAL_TOKEN", "my-own-token"), two("OMP_NUM_THREADS", "3");
  MachineFacts facts;
  facts.program.version = "1.2.3";
  const std::string report =
      bug_report(facts, {{Severity::problem, "disk", "is full", "free some"}}, folder.path());
  for (const char* part :
       {"capstan 1.2.3", "problem disk: is full; free some", "seed: 1337", "access_token: ***",
        "CAPSTAN_TRIAL_TOKEN=***", "OMP_NUM_THREADS=3", "epoch,iter,loss\n…\n1,60,0.5", "1,99,0.5",
        "final/hyperparameters.yaml"})
    EXPECT_NE(report.find(part), std::string::npos) << part << " is not in:\n" << report;
  EXPECT_EQ(report.find("my-own-token"), std::string::npos) << report;
  EXPECT_EQ(report.find("1,59,0.5"), std::string::npos) << "only the end";
}

TEST(BugReport, SaysThatThereIsNoRun) {
  const TempFolder folder;
  EXPECT_NE(bug_report({}, {}, folder / "none").find("There is no run in"), std::string::npos);
}

}  // namespace
}  // namespace capstan
