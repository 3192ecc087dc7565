// Several ranks, as a user starts them: --devices, and mpirun.

#include <chrono>
#include <thread>

#include "lora_program.h"
#include "support/sanitized.h"

namespace capstan::cli_test {
namespace {

class RanksOfThreads : public Lora {
 protected:
  // On a machine with a GPU, too.
  static Words tiny(Words more = {}) {
    more.emplace_back("--accelerator=cpu");
    return Lora::tiny(more);
  }
  static Words finetune(Words more = {}) {
    more.emplace_back("--accelerator=cpu");
    return Lora::finetune(more);
  }
  static Words layered(Words more = {}) {
    more.emplace_back("--model.num_hidden_layers=3");
    return tiny(more);
  }
  // A run that is long enough to be stopped.
  static Words lasting(const Words& more) {
    Words words = tiny({"--train.max_steps=100000", "--train.save_interval=20",
                        "--train.keep_last=2", "--timeout=3", "--out_dir=x"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  bool has_saved() const {
    for (int i = 0; i < 1000; ++i) {
      if (fs::exists(at("x/step-00000020"))) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  std::string newest() const {
    std::string last;
    for (const auto& entry : fs::directory_iterator(at("x")))
      if (entry.path().filename().string().starts_with("step-"))
        last = std::max(last, entry.path().filename().string());
    return last;
  }
  static size_t times(const std::string& text, const std::string& part) {
    size_t n = 0;
    for (size_t i = 0; (i = text.find(part, i)) != std::string::npos; ++i) ++n;
    return n;
  }
};

TEST_F(RanksOfThreads, TrainAsOneDeviceDoesAndTellOfThemselves) {
  const auto losses = [](const std::string& out) {
    std::string all;
    for (size_t i = 0; (i = out.find("loss train: ", i)) != std::string::npos; ++i)
      all += out.substr(i + 12, 6);
    return all;
  };
  const Outcome alone = run(tiny({"--out_dir=alone"}));
  ASSERT_EQ(alone.code, 0);
  for (const char* strategy : {"auto", "ddp", "fsdp:shard_grad_op", "deepspeed_stage_1"}) {
    const Outcome o =
        run(tiny({"--devices=3", std::string("--strategy=") + strategy, "--out_dir=three"}));
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(times(o.out, "Verifying settings"), 1u);
    EXPECT_EQ(times(o.out, "saved to three/final"), 1u);
    expect_holds(o.out, {"compute  communication", "the slowest rank is"});
    EXPECT_EQ(losses(o.out), losses(alone.out));
    fs::remove_all(at("three"));
  }
}

// Of one span: what a rank waits for while others validate or save is none of its training.
TEST_F(RanksOfThreads, ComputeAtLeastNothingInTheTableOfRanks) {
  const Outcome o = run(
      tiny({"--devices=3", "--train.max_steps=8", "--eval.interval=1", "--train.save_interval=1",
            "--train.save_async=false", "--data.val_split_fraction=0.5"}));
  ASSERT_EQ(o.code, 0) << o.err;
  std::istringstream lines(o.out);
  std::string line;
  while (std::getline(lines, line) && line.find("compute  communication") == std::string::npos) {
  }
  for (int r = 0; r < 3; ++r) {
    int rank = -1;
    double compute = -1, communication = -1, waiting = -1;
    std::getline(lines, line);
    ASSERT_EQ(std::sscanf(line.c_str(), "%d %lf s %lf s %lf s", &rank, &compute, &communication,
                          &waiting),
              4)
        << line;
    EXPECT_EQ(rank, r);
    for (const double seconds : {compute, communication, waiting}) EXPECT_GE(seconds, 0) << line;
  }
}

TEST_F(RanksOfThreads, TrainAdaptersBesideAnyBase) {
  ASSERT_EQ(run(finetune()).code, 0);
  const double alone = loss_of("out/final");
  for (const char* quantize : {"null", "bnb.nf4"}) {
    ASSERT_EQ(run(finetune({"--devices=3", std::string("--quantize=") + quantize,
                            "--precision=32-true", "--out_dir=three"}))
                  .code,
              0);
    EXPECT_NEAR(loss_of("three/final"), alone, 0.05 * alone) << quantize;
    fs::remove_all(at("three"));
  }
}

TEST_F(RanksOfThreads, StagesGiveTheBitsOfOneRankAndArePlanned) {
  ASSERT_EQ(run(layered({"--out_dir=alone"})).code, 0);
  for (const char* schedule : {"1f1b", "zero_bubble"}) {
    const Words stages = {"--devices=2", "--pipeline_parallel=2",
                          std::string("--pipeline_schedule=") + schedule};
    Words words = layered({"--out_dir=stages"});
    words.insert(words.end(), stages.begin(), stages.end());
    const Outcome o = run(words);
    ASSERT_EQ(o.code, 0) << o.err;
    expect_holds(o.out, {fmt::format("strategy 2 stages ({})", schedule)});
    EXPECT_EQ(
        slurp(at("alone/final/model.safetensors")) == slurp(at("stages/final/model.safetensors")),
        true);
    fs::remove_all(at("stages"));
    words.insert(words.begin(), "plan");
    const Outcome planned = run(words);
    EXPECT_EQ(planned.code, 0) << planned.err;
    expect_holds(planned.out, {"each of 2 ranks needs", schedule});
  }
  expect_refused(2, tiny({"--devices=3", "--pipeline_parallel=2"}),
                 {"pipeline_parallel: 2 stages need as many ranks or a multiple of it, but there "
                  "are 3; set devices"});
  expect_refused(2, tiny({"--pipeline_schedule=2f2b"}), {"interleaved:CHUNKS with 2 to 64 chunks"});
}

TEST_F(RanksOfThreads, ShareLayersAndSequences) {
  ASSERT_EQ(run(layered({"--out_dir=alone"})).code, 0);
  const double alone = loss_of("alone/final");
  for (const auto& [keys, said] :
       {std::pair<Words, const char*>{{"--devices=2", "--tensor_parallel=2"},
                                      "2 sharing each layer"},
        {{"--devices=2", "--context_parallel=2"}, "zero3, 2 sharing each sequence"},
        {{"--devices=4", "--tensor_parallel=2", "--strategy=zero1"}, "zero1, 2 sharing each layer"},
        {{"--devices=4", "--tensor_parallel=2", "--pipeline_parallel=2"},
         "2 sharing each layer in each of 2 stages"}}) {
    Words words = layered({"--out_dir=shared", "--self_check=true"});
    words.insert(words.end(), keys.begin(), keys.end());
    const Outcome o = run(words);
    ASSERT_EQ(o.code, 0) << o.err;
    expect_holds(o.out, {"self check: loss", said});
    EXPECT_NEAR(loss_of("shared/final"), alone, 1e-4 * alone);
    fs::remove_all(at("shared"));
    words.insert(words.begin(), "plan");
    const Outcome planned = run(words);
    EXPECT_EQ(planned.code, 0) << planned.err;
    expect_holds(unwrapped(planned.out), {"ranks needs", said});
  }
  expect_refused(2, tiny({"--devices=3", "--tensor_parallel=2"}),
                 {"tensor_parallel 2 × context_parallel 1 × pipeline_parallel 1 need 2 ranks or a "
                  "multiple of it, but there are 3; set devices"});
  expect_refused(2, tiny({"--devices=64", "--tensor_parallel=64"}),
                 {"tensor_parallel: 64 ranks cannot share a layer of"});
}

// A run goes on with any other mesh.
TEST_F(RanksOfThreads, AnotherMeshGoesOn) {
  // Each part of the run goes one step on from the one before.
  const auto run_on = [&](const std::string& name, const std::vector<Words>& meshes) {
    int64_t step = 0;
    std::string from;
    for (const Words& mesh : meshes) {
      ++step;
      Words words = {fmt::format("--train.max_steps={}", step + 1), "--train.save_interval=1",
                     fmt::format("--out_dir={}{}", name, step)};
      words.insert(words.end(), mesh.begin(), mesh.end());
      if (!from.empty()) words.push_back("--resume=" + from);
      const Outcome o = run(layered(words));
      ASSERT_EQ(o.code, 0) << o.err;
      if (!from.empty()) expect_holds(o.out, {"resumed from " + from});
      from = fmt::format("{}{}/step-{:08}", name, step, step);
    }
  };
  const Words one = {"--devices=1"}, two = {"--devices=2"};
  const auto with = [&](const char* key) { return Words{two[0], key}; };
  run_on("alone", {one, one, one, one, one});
  run_on("meshes", {one, with("--tensor_parallel=2"), with("--context_parallel=2"),
                    with("--pipeline_parallel=2"), with("--strategy=zero3")});
  EXPECT_NEAR(loss_of("meshes5/final"), loss_of("alone5/final"), 1e-4);
}

TEST_F(RanksOfThreads, AreRefusedBeforeAnythingStarts) {
  expect_refused(2, tiny({"--devices=65"}), {"devices: 65 requested; expected 1 to 64"});
  expect_refused(2, tiny({"--num_nodes=2"}), {"num_nodes: 2 requested", "mpirun"});
  expect_refused(2, tiny({"--strategy=zero4"}), {"strategy: expected one of auto, ddp"});
}

// Each would train alone, with exit code 0.
TEST_F(RanksOfThreads, CopiesThatNobodyConnectsAreRefusedWithTheLineThatDoes) {
  const auto in = [&](const Words& variables, const Words& words) {
    Words all = {"/usr/bin/env"};
    all.insert(all.end(), variables.begin(), variables.end());
    all.emplace_back(CAPSTAN_PROGRAM);
    all.insert(all.end(), words.begin(), words.end());
    return finish(start_program("/usr/bin/env", all));
  };
  const Words srun = {"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_STEP_ID=0",
                      "SLURM_STEP_NUM_TASKS=4"};
  const Words torchrun = {"RANK=0", "WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=none"};
  const Words batch = {"SLURM_PROCID=0", "SLURM_NTASKS=4"};
  for (const Words& words : {tiny(), Words{"bench", "comm"}}) {
    const Outcome o = in(srun, words);
    EXPECT_EQ(o.code, 2) << o.out;
    expect_holds(o.err,
                 {"srun started 4 copies of this program", "mpirun -n 4 capstan " + words[0]});
  }
  const Outcome o = in(torchrun, tiny());
  EXPECT_EQ(o.code, 2) << o.out;
  expect_holds(o.err, {"torchrun started 2 copies", "mpirun -n 2 capstan pretrain …"});
  const Outcome other = in({"RANK=1", "WORLD_SIZE=2"}, tiny());
  EXPECT_EQ(other.code, 2);
  EXPECT_EQ(other.err, "error: copy 1 of 2 ends; the first says why\n");
  EXPECT_EQ(in(srun, {"pretrain", "--help"}).code, 0);
  EXPECT_EQ(in(srun, {"doctor", "--json"}).code, in({}, {"doctor", "--json"}).code);
  const Outcome alone = in(batch, tiny({"--train.max_steps=1"}));
  EXPECT_EQ(alone.code, 0) << alone.err;
  expect_holds(alone.err, {"SLURM_NTASKS is 4, but this process trains alone"});
  const Outcome several = in(batch, tiny({"--train.max_steps=1", "--devices=2", "--out_dir=two"}));
  EXPECT_EQ(several.code, 0) << several.err;
  EXPECT_EQ(several.err.find("SLURM_NTASKS"), std::string::npos) << several.err;
}

TEST_F(RanksOfThreads, StopOnASignalAndGoOn) {
  const pid_t pid = start(lasting({"--devices=3"}));
  const bool saved = has_saved();
  ::kill(pid, SIGINT);
  const Outcome o = finish(pid);
  ASSERT_TRUE(saved) << o.err;
  EXPECT_EQ(o.code, 128 + SIGINT);
  EXPECT_EQ(times(o.err, "interrupted after step"), 1u) << o.err;
  const auto done = std::stoll(newest().substr(5));
  const Outcome again =
      run(lasting({"--devices=2", "--resume=auto", fmt::format("--train.max_steps={}", done + 2)}));
  EXPECT_EQ(again.code, 0) << again.err;
  expect_holds(again.out, {fmt::format("resumed from x/step-{:08}", done)});
}

#ifdef CAPSTAN_MPIEXEC

class RanksOfMpi : public RanksOfThreads {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "Open MPI is built without sanitizers";
    for (const auto& [name, value] : {std::pair{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                      {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                      {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                                      {"OMPI_MCA_plm_rsh_agent", "/bin/false"},
                                      {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
                                      {"OMPI_MCA_btl", "self,vader"}})
      ::setenv(name, value, 1);
  }

  pid_t mpirun(int ranks, const Words& words) const {
    Words all = {CAPSTAN_MPIEXEC, "-n", std::to_string(ranks), CAPSTAN_PROGRAM};
    all.insert(all.end(), words.begin(), words.end());
    return start_program(CAPSTAN_MPIEXEC, all);
  }
  Outcome run_mpi(int ranks, const Words& words) const { return finish(mpirun(ranks, words)); }
  // A rank for each of these names of machines.
  Outcome run_on(const Words& hosts, const Words& words) const {
    Words all = {CAPSTAN_MPIEXEC,
                 "-n",
                 std::to_string(hosts.size()),
                 "-x",
                 "LD_PRELOAD=" CAPSTAN_HOST_NAMES,
                 "-x"};
    std::string& names = all.emplace_back("CAPSTAN_HOSTS=");
    for (const std::string& host : hosts) names += host + " ";
    all.emplace_back(CAPSTAN_PROGRAM);
    all.insert(all.end(), words.begin(), words.end());
    return finish(start_program(CAPSTAN_MPIEXEC, all));
  }

  // Processes that run in the test's folder.
  int processes_here() const {
    int found = 0;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      std::error_code error;
      found += fs::read_symlink(entry.path() / "cwd", error) == fs::canonical(folder.path());
    }
    return found;
  }

  // Three ranks, with these words for mpirun before the program's. One of them comes no further:
  // the others say which, and all end, in time.
  void expect_end_without(const Words& how, const std::string& who) {
    SCOPED_TRACE(testing::PrintToString(how));
    Words words = {CAPSTAN_MPIEXEC, "-n", "3"};
    words.insert(words.end(), how.begin(), how.end());
    words.emplace_back(CAPSTAN_PROGRAM);
    for (const std::string& word : tiny({"--timeout=1", "--out_dir=x", "--train.max_steps=1"}))
      words.push_back(word);
    const auto start = std::chrono::steady_clock::now();
    const pid_t all = start_program(CAPSTAN_MPIEXEC, words);
    std::thread limit([all] {  // so that a failure is one, and not a wait
      for (int i = 0; i < 200 && ::kill(all, 0) == 0; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      ::kill(all, SIGTERM);
    });
    const Outcome o = finish(all);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    limit.join();
    EXPECT_EQ(o.code, 6) << o.err;
    // On a busy machine a rank may start a second after another one, and then tells as well.
    EXPECT_GE(times(o.err, "error: "), 1u) << o.err;
    expect_holds(o.err, {"within 1 s: rank 1 on ", who});
    EXPECT_LT(seconds.count(), 10) << "the start, the timeout, a second, and mpirun's own end";
    for (int i = 0; i < 30 && processes_here() > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(processes_here(), 0);
    fs::remove_all(at("x"));
  }

  // A shell's command line that pipes what mpirun prints.
  Outcome run_mpi_piped(int ranks, const Words& words, const std::string& into) const {
    std::string line = fmt::format("'{}' -n {} '{}'", CAPSTAN_MPIEXEC, ranks, CAPSTAN_PROGRAM);
    for (const std::string& word : words) line += " '" + word + "'";
    return finish(start_program("/bin/bash",
                                {"bash", "-c", line + " | " + into + "; exit ${PIPESTATUS[0]}"}));
  }

  // The process of a rank of ours.
  pid_t process_of(int rank) const {
    const std::string mine = fmt::format("OMPI_COMM_WORLD_RANK={}", rank);
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string pid = entry.path().filename();
      std::error_code error;
      if (pid.find_first_not_of("0123456789") != std::string::npos ||
          fs::read_symlink(entry.path() / "cwd", error) != fs::canonical(folder.path()) ||
          fs::read_symlink(entry.path() / "exe", error) != fs::canonical(CAPSTAN_PROGRAM))
        continue;
      const std::string environment = slurp(entry.path() / "environ");
      if (environment.find(mine + '\0') != std::string::npos) return std::stoi(pid);
    }
    return 0;
  }

  // A signal to one of three ranks ends all, in time; the last checkpoint is whole.
  void expect_all_end(int rank, int signal, int code, const Words& parts) {
    SCOPED_TRACE(fmt::format("signal {} to rank {}", signal, rank));
    fs::remove_all(at("x"));
    const pid_t all = mpirun(3, lasting({}));
    const bool saved = has_saved();
    const pid_t one = process_of(rank);
    EXPECT_NE(one, 0);
    const auto start = std::chrono::steady_clock::now();
    if (one != 0) ::kill(one, signal);
    const Outcome o = finish(all);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    ASSERT_TRUE(saved) << o.err;
    // The timeout and a second; mpirun gives a rank that is frozen a second before it kills it; and
    // another for a busy machine.
    EXPECT_LT(seconds.count(), 4.0 + 1.0 + 1.0);
    if (code != 0) {
      EXPECT_EQ(o.code, code) << o.err;
    }
    expect_holds(o.err, parts);
    for (int r = 0; r < 3; ++r) EXPECT_EQ(process_of(r), 0) << "rank " << r << " is left running";
    const Words more = lasting(
        {"--resume=auto", fmt::format("--train.max_steps={}", std::stoll(newest().substr(5)) + 1)});
    Outcome again = run(more);
    // mpirun does not wait for a process that it killed: it may hold the folder a little longer.
    for (int i = 0; i < 20 && again.err.find("another process is using") != std::string::npos;
         ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      again = run(more);
    }
    EXPECT_EQ(again.code, 0) << again.err;
    expect_holds(again.out, {"resumed from x/" + newest()});
  }
};

// mpirun itself would end, and all ranks with it.
TEST_F(RanksOfMpi, GoOnWhenTheReaderOfTheirOutputGoesAway) {
  const Words words = tiny({"--train.max_steps=200", "--out_dir=x"});
  const Outcome o = run_mpi_piped(2, words, "head -1");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(fs::exists(at("x/final/model.safetensors"))) << o.err;
  EXPECT_EQ(o.err.find("SIGPIPE"), std::string::npos) << o.err;
  const Outcome all = run_mpi_piped(2, words, "cat");
  expect_holds(all.out, {"iter 400 step 200 |", "saved to x/final"});
}

TEST_F(RanksOfMpi, GiveTheBitsOfThreads) {
  for (const char* strategy : {"ddp", "zero2", "zero3"}) {
    const Words words = tiny({std::string("--strategy=") + strategy, "--train.save_interval=2"});
    Words threads = words, processes = words;
    threads.insert(threads.end(), {"--devices=3", "--out_dir=threads"});
    processes.emplace_back("--out_dir=mpi");
    ASSERT_EQ(run(threads).code, 0);
    const Outcome o = run_mpi(3, processes);
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(times(o.out, "saved to mpi/final"), 1u);
    expect_holds(o.out, {"communication ", "the slowest rank is"});
    for (const char* file : {"final/model.safetensors", "step-00000002/model.safetensors",
                             "step-00000002/training_state/optimizer.safetensors"})
      EXPECT_EQ(slurp(at("threads") / file) == slurp(at("mpi") / file), true) << file;
    fs::remove_all(at("threads"));
    fs::remove_all(at("mpi"));
  }
}

TEST_F(RanksOfMpi, StagesGiveTheBitsOfOneRank) {
  ASSERT_EQ(run(layered({"--train.save_interval=2", "--out_dir=alone"})).code, 0);
  const Outcome o =
      run_mpi(2, layered({"--train.save_interval=2", "--pipeline_parallel=2", "--out_dir=stages"}));
  ASSERT_EQ(o.code, 0) << o.err;
  for (const char* file : {"final/model.safetensors", "step-00000002/model.safetensors",
                           "step-00000002/training_state/optimizer.safetensors"})
    EXPECT_EQ(slurp(at("alone") / file) == slurp(at("stages") / file), true) << file;
}

TEST_F(RanksOfMpi, ShareLayersWithTheBitsOfThreads) {
  const Words words = layered({"--tensor_parallel=2", "--pipeline_parallel=2"});
  Words threads = words, processes = words;
  threads.insert(threads.end(), {"--devices=4", "--out_dir=threads"});
  processes.insert(processes.end(), {"--out_dir=mpi"});
  const Outcome alone = run(threads);
  ASSERT_EQ(alone.code, 0) << alone.err;
  const Outcome o = run_mpi(4, processes);
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(
      slurp(at("threads/final/model.safetensors")) == slurp(at("mpi/final/model.safetensors")),
      true);
}

// Two "machines" of two ranks; of threads, one machine of four: its hybrid is zero3.
TEST_F(RanksOfMpi, AreHybridOverMachines) {
  const Words words = tiny({"--strategy=hybrid", "--num_nodes=2", "--devices=2"});
  Words processes = words;
  processes.insert(processes.end(), {"--out_dir=hybrid"});
  const Outcome o = run_on({"a", "a", "b", "b"}, processes);
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.out, {"strategy hybrid"});
  ASSERT_EQ(run(tiny({"--strategy=zero3", "--devices=4", "--out_dir=zero3"})).code, 0);
  EXPECT_NEAR(loss_of("hybrid/final"), loss_of("zero3/final"), 1e-4);
  const Outcome ddp = run_on({"a", "a", "b", "b"}, tiny({"--strategy=ddp", "--out_dir=ddp"}));
  ASSERT_EQ(ddp.code, 0) << ddp.err;
  EXPECT_EQ(slurp(at("hybrid/final/model.safetensors")) == slurp(at("ddp/final/model.safetensors")),
            true);
  const Outcome one = run(tiny({"--strategy=hybrid", "--devices=4", "--out_dir=one"}));
  expect_holds(one.out + one.err, {"hybrid on one machine is zero3"});
  const Outcome each = run_on({"a", "b", "c"}, tiny({"--strategy=hybrid", "--num_nodes=3"}));
  EXPECT_EQ(each.code, 0) << each.err;
}

TEST_F(RanksOfMpi, AreRefusedOnMachinesThatAreNotAsTheRecipeSays) {
  const auto expect = [&](const Words& hosts, const Words& keys, const std::string& why) {
    const Outcome o = run_on(hosts, tiny(keys));
    EXPECT_EQ(o.code, 2) << o.err;
    EXPECT_EQ(times(o.err, why), 1u) << o.err;
  };
  const Words one = {"a", "a", "a", "a"}, uneven = {"a", "a", "a", "b"},
              turns = {"a", "b", "a", "b"};
  const Words nodes = {"--num_nodes=2", "--devices=2"}, hybrid = {"--strategy=hybrid"};
  expect(one, nodes, "num_nodes: 2 requested, but mpirun started the ranks on 1 machine (a has 4)");
  expect({"a", "b", "c", "c"}, nodes, "on 3 machines (a has 1, b has 1, c has 2)");
  expect(uneven, nodes, "devices: 2 on each machine requested, but of the ranks, a has 3, b has 1");
  expect(uneven, hybrid,
         "strategy: hybrid needs as many ranks on each machine, but a has 3, b has 1");
  expect(turns, hybrid, "the machines take turns: a, b, a, b; use mpirun --map-by slot");
  EXPECT_EQ(run_on(uneven, tiny({"--strategy=zero3"})).code, 0);
}

TEST_F(RanksOfMpi, OtherCommandsRunOnce) {
  const Outcome o = run_mpi(
      3, {"plan", "finetune_full", "Llama-3.2-1B", "--memory=80GiB", "--train.max_seq_length=64"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(times(o.out, "Llama-3.2-1B: "), 1u) << o.out;
}

TEST_F(RanksOfMpi, MeasureWhatConnectsThem) {
  const Outcome o = run_mpi(2, {"bench", "comm", "--quick", "--accelerator=cpu"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(times(o.out, "all_reduce "), 5u) << o.out;
  expect_holds(o.out, {"among 2 ranks: "});
  expect_holds(o.err, {"there is no calibration yet"});
}

TEST_F(RanksOfMpi, TellOfAnErrorOnce) {
  const Outcome usage = run_mpi(3, tiny({"--train.max_steps=-4"}));
  EXPECT_EQ(usage.code, 2);
  EXPECT_EQ(times(usage.err, "train.max_steps: expected a whole number above 0"), 1u) << usage.err;
  const Outcome mesh = run_mpi(3, tiny({"--devices=2"}));
  EXPECT_EQ(mesh.code, 2);
  EXPECT_EQ(times(mesh.err, "make 2 ranks, but mpirun started 3"), 1u) << mesh.err;
}

TEST_F(RanksOfMpi, EndTogetherWhenOneIsKilledOrStopped) {
  expect_all_end(1, SIGKILL, 0, {});
  expect_all_end(2, SIGSTOP, 6, {"waited 3 s for rank 2"});
  expect_all_end(0, SIGSTOP, 6, {"waited 3 s for rank 0"});
  expect_all_end(1, SIGUSR1, 128 + SIGUSR1, {"interrupted after step"});
}

TEST_F(RanksOfMpi, EndInTimeIfOneDoesNotStartOrEndMpi) {
  for (const char* first : {"kill -STOP $$", "exit 0"})
    expect_end_without(
        {"sh", "-c", fmt::format("test $OMPI_COMM_WORLD_RANK = 1 && {}; exec \"$@\"", first), "sh"},
        " has not reached that point");
  for (const char* function : {"MPI_Init_thread", "MPI_Finalize"})
    expect_end_without({"-x", "LD_PRELOAD=" CAPSTAN_STOP_IN_MPI, "-x", "CAPSTAN_STOP_RANK=1", "-x",
                        std::string("CAPSTAN_STOP_IN=") + function},
                       ") does not answer");
}

#endif

}  // namespace
}  // namespace capstan::cli_test
