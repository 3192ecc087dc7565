// A run that is stopped at any moment goes on as if nothing had happened.

#include <array>

#include "base/error.h"
#include "base/rng.h"
#include "checkpoint/find.h"
#include "program.h"
#include "report/metrics.h"
#include "support/variable.h"

namespace capstan::cli_test {
namespace {

constexpr int64_t kSteps = 60, kInterval = 5;

class Resume : public Cli, public testing::WithParamInterface<int> {
 protected:
  Words command(const std::string& out, bool async) const {
    return tiny({"--resume=auto", "--out_dir=" + out, "--train.max_steps=" + std::to_string(kSteps),
                 "--train.save_interval=" + std::to_string(kInterval), "--eval.interval=7",
                 "--eval.max_iters=1", "--train.lr_warmup_steps=5",
                 std::string("--train.save_async=") + (async ? "true" : "false")});
  }
  // Of the newest version: a run that was killed before its first checkpoint begins another.
  fs::path metrics_of(const std::string& out) const {
    fs::path newest;
    for (int n = 0; fs::exists(at(fmt::format("{}/logs/csv/version_{}", out, n))); ++n)
      newest = at(fmt::format("{}/logs/csv/version_{}/metrics.csv", out, n));
    return newest;
  }
  // All that a run measured but its times.
  std::string losses(const std::string& out) const {
    std::string text;
    for (const MetricsRow& row : read_metrics(metrics_of(out)))
      text +=
          fmt::format("{} {} {} {} {} {}\n", row.step, row.iter, row.loss.value_or(-1),
                      row.learning_rate.value_or(-1), row.total_tokens, row.val_loss.value_or(-1));
    return text;
  }
  int64_t steps_logged(const std::string& out) const {
    int64_t last = 0;
    const fs::path csv = metrics_of(out);
    if (csv.empty() || !fs::exists(csv)) return 0;
    try {
      for (const MetricsRow& row : read_metrics(csv)) last = std::max(last, row.step);
    } catch (const Error&) {  // it was made this moment, and has no line yet
    }
    return last;
  }
  int64_t steps_saved(const std::string& out) const {
    const auto search = newest_checkpoint(at(out));
    return search.newest ? search.newest->state.step : 0;
  }
  bool saving(const std::string& out) const {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(at(out), error))
      if (entry.path().filename().string().find(".capstan-part") != std::string::npos) return true;
    return false;
  }
};

// Five stops each: a signal or a kill, after a random number of steps, or in the middle of a save.
TEST_P(Resume, IsBitForBitAfterStopsAtRandomMoments) {
  const bool async = GetParam() % 2 == 0;
  ASSERT_EQ(run(command("whole", async)).code, 0);
  const Rng rng({.seed = static_cast<uint64_t>(GetParam()), .site = 77});
  int64_t goal = 0;
  int stops = 0;
  for (uint64_t stop = 0; stop < 5; ++stop) {
    // A step that no process before it has logged, so that this one has begun to train.
    goal =
        std::max(goal, steps_logged("parts")) + 1 + static_cast<int64_t>(rng.below(3 * stop, 10));
    const bool in_save = rng.below(3 * stop + 1, 3) == 0;
    const int signal = std::array{SIGKILL, SIGTERM, SIGKILL, SIGINT}[rng.below(3 * stop + 2, 4)];
    const pid_t pid = start(command("parts", async));
    for (int i = 0; i < 20'000; ++i) {
      if (in_save ? saving("parts") && steps_logged("parts") >= goal
                  : steps_logged("parts") >= goal)
        break;
      int status = 0;
      ::usleep(500);
      if (waitpid(pid, &status, WNOHANG | WNOWAIT) == pid) break;
    }
    ::kill(pid, signal);
    const int code = finish(pid).code;
    if (code == 0) break;  // it was done before the signal came
    EXPECT_EQ(code, 128 + signal) << slurp(at("stderr"));
    ++stops;
    const int64_t done = steps_logged("parts"), kept = steps_saved("parts");
    if (signal == SIGKILL) {
      EXPECT_GE(kept, done - kInterval) << "of " << done << " steps";
    } else {
      EXPECT_EQ(kept, done) << "a signal loses nothing";
    }
  }
  EXPECT_GE(stops, 3) << "a run that is over before it is stopped shows nothing";
  const Outcome last = run(command("parts", async));
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_TRUE(slurp(at("parts/final/model.safetensors")) ==
              slurp(at("whole/final/model.safetensors")));
  EXPECT_EQ(losses("parts"), losses("whole"));
  for (const auto& entry : fs::directory_iterator(at("parts")))
    EXPECT_EQ(entry.path().filename().string().find("capstan-part"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(SixTimesFiveStops, Resume, testing::Range(0, 6));

// A model that takes long enough to be written.
TEST_F(Resume, ASignalWhileTheFinalModelIsSavedWaitsForIt) {
  const pid_t pid = start(tiny({"--out_dir=out", "--train.max_steps=1", "--model.hidden_size=384",
                                "--model.intermediate_size=1024", "--model.num_hidden_layers=10",
                                "--train.save_async=false"}));
  // The rehearsal saves, too, before the first step.
  for (int i = 0; i < 60'000 && !(steps_logged("out") == 1 && saving("out")); ++i) ::usleep(500);
  ASSERT_EQ(::kill(pid, SIGTERM), 0);
  const Outcome o = finish(pid);
  EXPECT_EQ(o.code, 128 + SIGTERM) << o.err;
  expect_holds(o.err, {"interrupted at the end: the final model is complete"});
  expect_holds(o.out, {"Saved To"});
  EXPECT_EQ(o.out.find("Final evaluation"), std::string::npos);
  EXPECT_EQ(steps_saved("out"), 1);
  EXPECT_TRUE(fs::exists(at("out/final/MANIFEST.json")));
}

TEST_F(Resume, ADamagedCheckpointIsPassedOverForTheOneBeforeIt) {
  ASSERT_EQ(run(command("whole", true)).code, 0);
  fs::remove_all(at("whole/final"));
  std::string bytes = slurp(at("whole/step-00000055/model.safetensors"));
  bytes[bytes.size() / 2] ^= 4;
  write("whole/step-00000055/model.safetensors", bytes);
  const Outcome o = run(command("whole", true));
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.err, {"skipped a damaged checkpoint: ", "step-00000055/model.safetensors"});
  expect_holds(o.out, {"resumed from whole/step-00000050: 50 of 60 steps are done"});
}

TEST_F(Resume, WhereEveryCheckpointIsDamagedANewRunStartsAndSaysSo) {
  ASSERT_EQ(run(command("whole", true)).code, 0);
  for (const auto& entry : fs::directory_iterator(at("whole"))) {
    if (!fs::exists(entry.path() / "model.safetensors")) continue;
    const std::string file = "whole/" + entry.path().filename().string() + "/model.safetensors";
    std::string bytes = slurp(at(file));
    bytes[bytes.size() / 2] ^= 4;
    write(file, bytes);
  }
  const Outcome o = run(command("whole", true));
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.err, {"skipped a damaged checkpoint: ",
                       "every checkpoint in whole is damaged: a new run starts"});
  EXPECT_TRUE(fs::exists(at("whole/previous-1/final"))) << "none is lost";
}

TEST_F(Resume, ACheckpointThatIsNamedPutsLaterOnesAside) {
  const auto from = [&](const char* resume) {
    return tiny({std::string("--resume=") + resume, "--out_dir=whole", "--train.max_steps=60",
                 "--train.save_interval=5", "--train.keep_last=2"});
  };
  ASSERT_EQ(run(tiny({"--out_dir=whole", "--train.max_steps=60", "--train.save_interval=5"})).code,
            0);
  const Outcome o = run(from("whole/step-00000020"));
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.out, {"resumed from whole/step-00000020: 20 of 60",
                       "moved checkpoints of an earlier run to whole/previous-1"});
  for (const char* name : {"step-00000025", "step-00000055", "final"})
    EXPECT_TRUE(fs::exists(at("whole/previous-1") / name)) << name;
  for (const char* name : {"step-00000050", "step-00000055", "final"})
    EXPECT_TRUE(fs::exists(at("whole") / name)) << name;
  EXPECT_FALSE(fs::exists(at("whole/step-00000045"))) << "two are kept";
  EXPECT_TRUE(slurp(at("whole/final/model.safetensors")) ==
              slurp(at("whole/previous-1/final/model.safetensors")));
}

// What is in out_dir then is another run's: none of it is replaced, and its metrics are its own.
TEST_F(Resume, ACheckpointFromElsewherePutsEverythingAside) {
  const auto with = [&](const Words& more) {
    Words words = tiny({"--out_dir=x", "--train.save_interval=2"});
    words.insert(words.end(), more.begin(), more.end());
    const Outcome o = run(words);
    EXPECT_EQ(o.code, 0) << o.err;
  };
  with({"--train.max_steps=6"});
  const std::string first = slurp(at("x/final/model.safetensors"));
  with({"--train.max_steps=4", "--optimizer.lr=0.05"});
  const std::string second = slurp(at("x/final/model.safetensors"));
  with({"--train.max_steps=6", "--resume=x/previous-1/step-00000004"});
  EXPECT_TRUE(slurp(at("x/final/model.safetensors")) == first);
  EXPECT_TRUE(slurp(at("x/previous-2/final/model.safetensors")) == second);
  EXPECT_FALSE(fs::exists(at("x/step-00000002")));
  std::vector<int64_t> steps;
  for (const MetricsRow& row : read_metrics(metrics_of("x")))
    if (row.loss) steps.push_back(row.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{5, 6}));
}

// A state that is damaged, and beside it the model of as many steps.
TEST_F(Resume, AFinalModelIsNeverReplacedByARunThatBeganBeforeIt) {
  const auto with = [&](const char* steps) {
    return run(tiny({"--resume=auto", "--out_dir=out", "--train.save_interval=2",
                     std::string("--train.max_steps=") + steps}));
  };
  ASSERT_EQ(with("4").code, 0);
  const std::string model = slurp(at("out/final/model.safetensors"));
  fs::copy(at("out/step-00000002"), at("out/step-00000004"), fs::copy_options::recursive);
  auto state = slurp(at("out/step-00000004/training_state/state.json"));
  state.replace(state.find("\"step\": 2"), 9, "\"step\": 4");
  write("out/step-00000004/training_state/state.json", state);
  expect_holds(with("4").out, {"nothing left to do"});
  const Outcome longer = with("6");
  ASSERT_EQ(longer.code, 0) << longer.err;
  expect_holds(longer.out, {"resumed from out/step-00000002",
                            "moved checkpoints of an earlier run to out/previous-1"});
  EXPECT_TRUE(slurp(at("out/previous-1/final/model.safetensors")) == model);
  EXPECT_TRUE(fs::exists(at("out/step-00000004"))) << "written anew";
}

TEST_F(Resume, AFolderThatCannotBeReadIsPutAside) {
  const auto with = [&](const char* resume, const char* steps) {
    return run(tiny({std::string("--resume=") + resume, "--out_dir=out", "--train.save_interval=2",
                     std::string("--train.max_steps=") + steps}));
  };
  ASSERT_EQ(with("false", "4").code, 0);
  write("out/final/model.safetensors", "the user's own");
  fs::remove_all(at("out/final/training_state"));
  const Outcome o = with("auto", "6");
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.out, {"resumed from out/step-00000002",
                       "moved checkpoints of an earlier run to out/previous-1"});
  EXPECT_EQ(slurp(at("out/previous-1/final/model.safetensors")), "the user's own");
}

TEST_F(Resume, ADamagedFinalModelIsMadeAgain) {
  const auto with = [&](const char* steps) {
    return run(tiny({"--resume=auto", "--out_dir=out", "--train.save_interval=2",
                     std::string("--train.max_steps=") + steps}));
  };
  ASSERT_EQ(with("4").code, 0);
  fs::remove_all(at("out/final"));
  ASSERT_EQ(with("2").code, 0);
  std::string bytes = slurp(at("out/final/model.safetensors"));
  bytes[bytes.size() / 2] ^= 4;
  write("out/final/model.safetensors", bytes);
  ASSERT_EQ(with("2").code, 0);
  EXPECT_TRUE(slurp(at("out/final/model.safetensors")) ==
              slurp(at("out/step-00000002/model.safetensors")));
}

TEST_F(Resume, AFolderIsTheRunsOwnByAnyOfItsNames) {
  ASSERT_EQ(run(tiny({"--out_dir=out", "--train.save_interval=2", "--train.max_steps=6"})).code, 0);
  fs::create_directory_symlink("out/step-00000004", at("latest"));
  for (const char* name : {"latest", "out/step-00000004/.", "out/../out/step-00000004/"}) {
    const Outcome o = run(tiny({std::string("--resume=") + name, "--out_dir=out",
                                "--train.save_interval=2", "--train.max_steps=6"}));
    ASSERT_EQ(o.code, 0) << name << o.err;
    EXPECT_TRUE(fs::exists(at("out/step-00000002"))) << name;
    EXPECT_TRUE(fs::exists(at("out/step-00000004"))) << name;
  }
}

TEST_F(Resume, TheFinalModelOfFewerStepsIsNotThisRuns) {
  const auto with = [&](const char* steps, const char* interval) {
    return run(
        tiny({"--resume=auto", "--out_dir=out", std::string("--train.save_interval=") + interval,
              std::string("--train.max_steps=") + steps}));
  };
  ASSERT_EQ(with("3", "2").code, 0);
  fs::rename(at("out/final"), at("final-3"));
  ASSERT_EQ(with("5", "2").code, 0);
  fs::remove_all(at("out/final"));
  fs::rename(at("final-3"), at("out/final"));
  const Outcome o = with("4", "2");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(slurp(at("out/final/model.safetensors")) ==
              slurp(at("out/step-00000004/model.safetensors")));
}

TEST_F(Resume, AllStepsWithoutAFinalModelAreMadeOne) {
  const auto with = [&](const char* steps) {
    return tiny({"--resume=auto", "--out_dir=out", "--train.save_interval=2",
                 std::string("--train.max_steps=") + steps});
  };
  ASSERT_EQ(run(with("4")).code, 0);
  fs::remove_all(at("out/final"));
  write("out/.step-00000003.capstan-part/half", "of a file, when it was killed");
  const Outcome o = run(with("2"));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_FALSE(fs::exists(at("out/.step-00000003.capstan-part")));
  EXPECT_TRUE(slurp(at("out/final/model.safetensors")) ==
              slurp(at("out/step-00000002/model.safetensors")));
  expect_holds(run(with("2")).out, {"nothing left to do"});
}

// A held-out text that takes long enough to be validated on.
TEST_F(Resume, WhatAKillLeftOfTheEndIsMadeOnce) {
  std::string held_out;
  for (int i = 0; i < 15'000; ++i) held_out += "Once there was a llama. It ate grass.\n";
  write("held_out.txt", held_out);
  const Words words = tiny({"--resume=auto", "--out_dir=out", "--data.val_data_path=held_out.txt",
                            "--eval.max_iters=100000", "--eval.interval=1000"});
  const pid_t pid = start(words);
  for (int i = 0; i < 60'000 && !fs::exists(at("out/final")); ++i) ::usleep(500);
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  ASSERT_EQ(finish(pid).code, 128 + SIGKILL);
  ASSERT_TRUE(fs::exists(at("out/final/MANIFEST.json")));
  const std::string model = slurp(at("out/final/model.safetensors"));
  const auto validations = [&] {
    int64_t count = 0;
    for (const MetricsRow& row : read_metrics(metrics_of("out"))) count += row.val_loss.has_value();
    return count;
  };
  ASSERT_EQ(validations(), 0) << "it was killed too late";
  const Outcome o = run(words);
  EXPECT_EQ(o.code, 0) << o.err;
  expect_holds(o.out, {"out/final has all 3 steps; only what follows them is missing (the last "
                       "validation, the report, what trackers get), and is made now",
                       "Final evaluation | val loss: "});
  EXPECT_EQ(validations(), 1);
  expect_holds(slurp(at("out/report.html")), {"<svg", "validation loss"});
  EXPECT_TRUE(fs::exists(at("out/loss.svg")));
  EXPECT_TRUE(slurp(at("out/final/model.safetensors")) == model);
  expect_holds(run(words).out, {"has all 3 steps: nothing left to do"});
  EXPECT_EQ(validations(), 1);

  // With the validation made, and killed before the report.
  fs::remove(at("out/report.html"));
  const Outcome again = run(words);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(fs::exists(at("out/report.html")));
  EXPECT_EQ(validations(), 1);
}

TEST_F(Resume, KeepsAsManyCheckpointsAsWithoutAKill) {
  const auto with = [&](const Words& more) {
    Words words = tiny({"--resume=auto", "--out_dir=out", "--train.save_interval=2"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  // Those that a kill before its deletions leaves: of step 8 there is none to come.
  ASSERT_EQ(run(with({"--train.max_steps=9"})).code, 0);
  fs::remove_all(at("out/final"));
  ASSERT_EQ(run(with({"--train.max_steps=9", "--train.keep_last=2"})).code, 0);
  for (const char* name : {"step-00000006", "step-00000008", "final"})
    EXPECT_TRUE(fs::exists(at("out") / name)) << name;
  for (const char* name : {"step-00000002", "step-00000004"})
    EXPECT_FALSE(fs::exists(at("out") / name)) << name;
}

TEST_F(Resume, ElsewhereItsBitsMayDiffer) {
  const auto with = [&](const char* steps) {
    return tiny({"--resume=auto", "--out_dir=out", "--accelerator=cpu", "--train.save_interval=2",
                 std::string("--train.max_steps=") + steps});
  };
  ASSERT_EQ(run(with("4")).code, 0);
  fs::remove_all(at("out/final"));
  expect_holds(slurp(at("out/step-00000002/training_state/state.json")),
               {"\"computed_on\": \"", "1 thread, OpenBLAS "});
  const Outcome here = run(with("4"));
  ASSERT_EQ(here.code, 0) << here.err;
  EXPECT_EQ(here.err.find("bits may differ"), std::string::npos) << here.err;
  fs::remove_all(at("out/final"));
  const Variable threads("OMP_NUM_THREADS", "2");
  const Outcome there = run(with("4"));
  ASSERT_EQ(there.code, 0) << there.err;
  expect_holds(there.err, {"warning: out/step-00000002 was computed on ", "1 thread, OpenBLAS ",
                           "and the run continues on ", "2 threads, OpenBLAS ", "bits may differ"});
}

TEST_F(Resume, ARunThatIsOutOfTimeGoesOnWithMore) {
  const auto with = [&](const char* out, const char* seconds) {
    return tiny({"--resume=auto", std::string("--out_dir=") + out, "--train.max_steps=20",
                 std::string("--train.max_time=") + seconds});
  };
  ASSERT_EQ(run(with("whole", "1000")).code, 0);
  const Outcome first = run(with("parts", "1e-6"));
  EXPECT_EQ(first.code, 0) << first.err;
  expect_holds(first.out, {"train.max_time ended after step 1;"});
  expect_holds(run(with("parts", "1e-6")).out, {"train.max_time ended after step 1;"});
  const Outcome rest = run(with("parts", "1000"));
  EXPECT_EQ(rest.code, 0) << rest.err;
  expect_holds(rest.out, {"resumed from parts/step-00000001: 1 of 20 steps are done"});
  EXPECT_TRUE(slurp(at("parts/final/model.safetensors")) ==
              slurp(at("whole/final/model.safetensors")));
}

TEST_F(Resume, TimeAloneIsNoNumberOfSteps) {
  const auto with = [&](const char* seconds) {
    return tiny({"--resume=auto", "--out_dir=out", "--train.max_steps=null",
                 "--train.schedule=constant", std::string("--train.max_time=") + seconds});
  };
  const Outcome first = run(with("1e-6"));
  ASSERT_EQ(first.code, 0) << first.err;
  expect_holds(first.out, {"as many steps as train.max_time allows, "});
  expect_holds(slurp(at("out/report.html")), {"Stopped by train.max_time after 1 step in"});
  const Outcome rest = run(with("0.3"));
  ASSERT_EQ(rest.code, 0) << rest.err;
  expect_holds(rest.out, {"resumed from out/step-00000001: 1 step is done"});
  for (const std::string& text : {first.out, rest.out, slurp(at("out/report.html"))})
    EXPECT_EQ(text.find("00000000000"), std::string::npos) << text;
}

TEST_F(Resume, WarnsOfADiskThatIsTooSmallForAllCheckpoints) {
  const auto with = [&](const char* keep) {
    return run(tiny({"--out_dir=out", "--train.save_interval=1", "--train.max_steps=1000000000000",
                     "--train.max_time=1e-6", std::string("--train.keep_last=") + keep}))
        .err;
  };
  expect_holds(with("null"),
               {"warning: the checkpoints of this run may take ", "lower train.keep_last"});
  EXPECT_EQ(with("3").find("checkpoints of this run may take"), std::string::npos);
}

TEST_F(Resume, TwoRunsDoNotShareAnOutDir) {
  const auto with = [&](const char* steps) {
    return tiny({"--resume=auto", "--out_dir=out", "--train.log_interval=1",
                 std::string("--train.max_steps=") + steps});
  };
  const pid_t first = start(with("1000000"), "/dev/null");
  for (int i = 0; i < 60'000 && steps_logged("out") == 0; ++i) ::usleep(500);
  expect_refused(4, with("1000000"),
                 {"out: another process is using this folder", "another folder"});
  ASSERT_EQ(::kill(first, SIGTERM), 0);
  EXPECT_EQ(finish(first, "/dev/null").code, 128 + SIGTERM);
  EXPECT_EQ(run(with(std::to_string(steps_saved("out") + 1).c_str())).code, 0);
}

TEST_F(Resume, TakesPythonsTrueAndFalse) {
  expect_refused(4, tiny({"--resume=True", "--out_dir=none"}),
                 {"has no complete checkpoint; --resume auto starts a new run"});
  EXPECT_FALSE(fs::exists(at("none")));
  EXPECT_EQ(run(tiny({"--resume=False", "--train.max_steps=1"})).code, 0);
  expect_refused(4, tiny({"--resume=maybe"}),
                 {"resume: maybe does not exist; expected true, false, auto, or the folder"});
}

TEST_F(Resume, ItsRecordIsThatOfARunOfItsOwn) {
  ASSERT_EQ(run(tiny({"--out_dir=a", "--train.max_steps=2", "--train.save_interval=1"})).code, 0);
  fs::remove_all(at("a/final"));
  ASSERT_EQ(run(tiny({"--out_dir=a", "--train.max_steps=2", "--resume=true"})).code, 0);
  const Outcome o = run({"pretrain", "--config=a/final/hyperparameters.yaml", "--out_dir=b"});
  EXPECT_EQ(o.code, 0) << o.err;
}

TEST_F(Resume, ARunFromAFolderThatItWouldMoveIsRefused) {
  ASSERT_EQ(run(tiny({"--out_dir=whole"})).code, 0);
  for (const char* name : {"whole/final", "./whole/final/"})
    expect_refused(2, brief({std::string("--initial_checkpoint_dir=") + name, "--out_dir=whole"}),
                   {"is in the run's own out_dir", "Give another --out_dir"});
  EXPECT_TRUE(fs::exists(at("whole/final/config.json")));
  EXPECT_FALSE(fs::exists(at("whole/previous-1")));
}

TEST_F(Resume, AFinishedRunIsLeftAlone) {
  ASSERT_EQ(run(command("whole", true)).code, 0);
  const Outcome o = run(command("whole", true));
  EXPECT_EQ(o.code, 0);
  expect_holds(o.out, {"has all 60 steps: nothing left to do"});
}

TEST_F(Resume, WantsACheckpointWhenToldTo) {
  expect_refused(4, tiny({"--resume=true"}),
                 {"has no complete checkpoint; --resume auto starts a new run"});
  expect_refused(4, tiny({"--resume=none/step-5"}), {"none/step-5"});
}

}  // namespace
}  // namespace capstan::cli_test
