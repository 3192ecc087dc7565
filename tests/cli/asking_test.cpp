// What a fine-tuned model is asked, and by which template: chat, generate, evaluate.

#include "finetune_program.h"

namespace capstan::cli_test {
namespace {

TEST_F(Finetune, ChatsAreLearnedWithTheirTemplate) {
  write(
      "chat.jsonl",
      R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]})"
      "\n"
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})"
      "\n");
  std::string text = slurp(at("chat.jsonl"));
  std::erase(text, '\n');
  text.replace(text.find("}]}{"), 4, "}]}\n{");
  write("chat.jsonl", text + "\n");
  // Of a base model any template is remembered, by which it is then asked.
  for (const std::string name : {"chatml", "zephyr", "llama3"}) {
    const Outcome o =
        run(finetune({"--data.json_path=chat.jsonl", "--out_dir=" + name,
                      "--data.prompt_style=chat_template:" + name, "--data.val_split_fraction=0"}));
    EXPECT_EQ(o.code, 0) << o.err;
    const std::string model = name + "/final";
    EXPECT_EQ(slurp(at(model + "/prompt_style.yaml")), "chat_template: " + name + "\n");
    const Words ask = {"generate", model, "--prompt=hi", "--temperature=0", "--max_new_tokens=9"};
    Words named = ask;
    named.push_back("--prompt_style=chat_template:" + name);
    const Outcome asked = run(ask);
    EXPECT_EQ(asked.code, 0) << asked.err;
    EXPECT_EQ(asked.out, run(named).out);
  }
}

// The loss on held-out data is what the run said, however the records were rendered.
TEST_F(Finetune, EvaluateAsksAsTheRunDid) {
  fs::create_directory(at("both"));
  nlohmann::json train, held;
  for (int i = 0; i < 30; ++i) (i % 3 == 0 ? held : train).push_back(record(i));
  write("both/train.json", train.dump());
  write("both/val.json", held.dump());
  write("both/LICENSE.txt", "not to be counted");
  const auto expect_same = [&](const std::string& style) {
    const Outcome o =
        run(finetune({"--data.json_path=both", "--out_dir=asked", "--data.prompt_style=" + style}));
    ASSERT_EQ(o.code, 0) << o.err;
    const Outcome e = run({"evaluate", "asked/final", "--data=both", "--json"});
    ASSERT_EQ(e.code, 0) << e.err;
    const double loss = nlohmann::json::parse(e.out)["loss"];
    expect_holds(o.out, {fmt::format("Final evaluation | val loss: {:.3f}", loss)});
    fs::remove_all(at("asked"));
  };
  for (const char* style :
       {"alpaca", "chat_template:chatml", "chat_template:zephyr", "chat_template:llama2"})
    expect_same(style);
  write("checkpoints/tiny/final/chat_template.jinja", "<start_of_turn>");
  expect_same("chat_template");
  expect_same("chat_template:chatml");
  expect_same("alpaca");
  // Conversations by the template and instructions by a style, which is what happens unasked.
  for (nlohmann::json* part : {&train, &held})
    for (size_t i = 0; i < part->size(); i += 2)
      (*part)[i] = {{"messages",
                     {{{"role", "user"}, {"content", "Say it"}},
                      {{"role", "assistant"}, {"content", "It"}}}}};
  write("both/train.json", train.dump());
  write("both/val.json", held.dump());
  expect_same("null");
}

// An adapter without files of the tokenizer, as PEFT's are, has the template of its model.
TEST_F(Finetune, AnAdapterIsAskedByTheTemplateOfItsModel) {
  write("checkpoints/tiny/final/chat_template.jinja", "<start_of_turn>");
  Words words = finetune({"--data.prompt_style=chat_template"});
  words[0] = "finetune_lora";
  const Outcome o = run(words);
  ASSERT_EQ(o.code, 0) << o.err;
  const Words ask = {"generate", "out/final", "--prompt=Say 3", "--temperature=0",
                     "--max_new_tokens=20"};
  const Outcome before = run(ask);
  ASSERT_EQ(before.code, 0) << before.err;
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "MANIFEST.json"})
    fs::remove(at("out/final") / name);
  EXPECT_EQ(run(ask).out, before.out);
  Words plain = ask;
  plain.emplace_back("--prompt_style=default");
  EXPECT_NE(run(plain).out, before.out);
}

// A template in the adapter's own folder, as PEFT leaves it there with the tokenizer.
TEST_F(Finetune, AnAdapterIsAskedByTheTemplateBesideIt) {
  Words words = finetune();
  words[0] = "finetune_lora";
  ASSERT_EQ(run(words).code, 0);
  fs::remove(at("out/final/prompt_style.yaml"));
  fs::remove(at("out/final/MANIFEST.json"));
  write("out/final/chat_template.jinja", "<|im_start|>");
  const auto ask = [&](const Words& more) {
    Words all = {"generate", "out/final", "--prompt=Say 3", "--temperature=0",
                 "--max_new_tokens=12"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome o = run(all);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.out;
  };
  EXPECT_EQ(ask({}), ask({"--prompt_style=chatml"}));
  EXPECT_EQ(ask({}), ask({"--prompt_style=chat_template"}));
  EXPECT_NE(ask({}), ask({"--prompt_style=default"}));
  // What the base records is not the adapter's way, before the two are one and afterwards.
  write("checkpoints/tiny/final/prompt_style.yaml", "class_path: litgpt.prompts.Alpaca\n");
  fs::remove(at("checkpoints/tiny/final/MANIFEST.json"));
  EXPECT_EQ(ask({}), ask({"--prompt_style=chatml"}));
  const std::string answer = ask({});
  ASSERT_EQ(run({"merge_lora", "out/final", "--out_dir=merged"}).code, 0);
  EXPECT_FALSE(fs::exists(at("merged/prompt_style.yaml")));
  const Outcome merged =
      run({"generate", "merged", "--prompt=Say 3", "--temperature=0", "--max_new_tokens=12"});
  EXPECT_EQ(merged.out, answer) << merged.err;
}

// What a template begins with it says itself: a tokenizer that puts a token before each text puts
// none before it. The texts fill the model's positions, so one token more would show.
TEST_F(Finetune, NothingComesBeforeATemplatesText) {
  const auto config = [](bool begins) {
    return fmt::format(R"({{"add_bos_token": {}, "bos_token": "<s>", "eos_token": "</s>"}})",
                       begins);
  };
  const fs::path tokens = fs::path(CAPSTAN_SOURCE_DIR) / "tests/golden_tokens/bytes";
  write("tokens/tokenizer.json", slurp(tokens / "tokenizer.json"));
  write("tokens/tokenizer_config.json", config(true));
  const Outcome trained = run(tiny({"--tokenizer_dir=tokens", "--out_dir=begins",
                                    "--train.max_steps=20", "--optimizer.lr=0.03"}));
  if (trained.code == 4 &&
      trained.err.find("needs ICU, but this program was built without it") != std::string::npos)
    GTEST_SKIP() << "built without ICU";
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto ask = [&](const char* style) {
    const Outcome o = run({"generate", "begins/final", "--prompt=Say 3", "--temperature=0",
                           "--max_new_tokens=60", std::string("--prompt_style=") + style});
    EXPECT_EQ(o.code, 0) << o.err;
    return o.out;
  };
  const std::string chat = ask("chatml"), plain = ask("default");
  write("begins/final/tokenizer_config.json", config(false));
  fs::remove(at("begins/final/MANIFEST.json"));
  EXPECT_EQ(ask("chatml"), chat);
  EXPECT_NE(ask("default"), plain);
}

TEST_F(Finetune, AnswersQuestionsOfTasks) {
  write("arc.jsonl", R"({"question": "Who?", "choices": {"text": ["a cat", "a very long dog"], )"
                     R"("label": ["A", "B"]}, "answerKey": "A"})"
                     "\n");
  write("gsm.jsonl", R"({"question": "1+1", "answer": "#### 2"})");
  const Outcome o = run({"evaluate", "tiny/final", "--tasks=arc_easy:arc.jsonl",
                         "--tasks=gsm8k:gsm.jsonl", "--json", "--accelerator=cpu"});
  ASSERT_EQ(o.code, 0) << o.err;
  const auto out = nlohmann::json::parse(o.out);
  EXPECT_EQ(out["arc_easy"]["items"], 1);
  for (const char* measure : {"acc", "acc_norm"}) {
    const double value = out["arc_easy"][measure];
    EXPECT_TRUE(value == 0 || value == 1) << measure;
  }
  EXPECT_TRUE(out["gsm8k"].contains("exact_match,flexible-extract"));
  expect_refused(4, {"evaluate", "tiny/final", "--tasks=arc_easy:none.jsonl"}, {"none.jsonl"});
}

TEST_F(Finetune, AnEvaluationCountsEveryTokenOnce) {
  const auto evaluate = [&](const std::string& data, const char* batch) {
    return run(
        {"evaluate", "tiny/final", "--data=" + data, "--json", "--precision=32-true", batch});
  };
  const Outcome o = evaluate("data.jsonl", "--batch_size=8");
  ASSERT_EQ(o.code, 0) << o.err;
  const auto all = nlohmann::json::parse(o.out);
  EXPECT_EQ(all["samples"], 30);
  EXPECT_NEAR(all["perplexity"].get<double>(), std::exp(all["loss"].get<double>()), 1e-9);
  // However it is cut into batches.
  for (const char* batch : {"--batch_size=1", "--batch_size=7", "--batch_size=100"}) {
    const auto other = nlohmann::json::parse(evaluate("data.jsonl", batch).out);
    EXPECT_EQ(other["tokens"], all["tokens"]);
    EXPECT_NEAR(other["loss"].get<double>(), all["loss"].get<double>(), 1e-5);
  }
  const auto text = nlohmann::json::parse(evaluate("text.txt", "--batch_size=8").out);
  EXPECT_EQ(text["tokens"], fs::file_size(at("text.txt")) + 1) << "all bytes and the end";
  expect_refused(4, {"evaluate", "tiny/final", "--data=none.txt"}, {"none.txt"});
}

TEST_F(Finetune, AChatRemembersAndEndsWithAnEmptyLine) {
  const Outcome o = run_with("hello\nagain\n\nnever read\n",
                             {"chat", "tiny/final", "--max_new_tokens=5", "--temperature=0"});
  EXPECT_EQ(o.code, 0) << o.err;
  size_t prompts = 0;
  for (size_t i = 0; (i = o.out.find(">> Prompt: ", i)) != std::string::npos; ++i) ++prompts;
  EXPECT_EQ(prompts, 3u) << o.out;
  expect_holds(o.out, {">> Reply: "});
  // With a template, the history is rendered anew each time and goes on from what is cached.
  EXPECT_EQ(run_with("hello\nagain\n", {"chat", "tiny/final", "--prompt_style=chatml",
                                        "--system=Be kind.", "--max_new_tokens=3"})
                .code,
            0);
  // A context that is too short drops the oldest turns.
  EXPECT_EQ(run_with("one\ntwo\nthree\nfour\n", {"chat", "tiny/final", "--prompt_style=chatml",
                                                 "--context=64", "--max_new_tokens=3"})
                .code,
            0);
}

}  // namespace
}  // namespace capstan::cli_test
