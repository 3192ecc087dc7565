#include "data/data_source.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <set>

#include "base/files.h"
#include "data/errors.h"
#include "data/tokenizer/fake_tokenizer.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

std::string instructions(int n) {
  std::string text;
  for (int i = 0; i < n; ++i)
    text += R"({"instruction": "q)" + std::to_string(i) + R"(", "output": "a)" + std::to_string(i) +
            "\"}\n";
  return text;
}

constexpr const char* kChat =
    R"({"messages": [{"role": "user", "content": "u1"}, {"role": "assistant", "content": "a1"},
 {"role": "user", "content": "u2"}, {"role": "assistant", "content": "a2"}]})";

std::string one_line(std::string text) {
  std::erase(text, '\n');
  return text + "\n";
}

class DataSource : public testing::Test {
 protected:
  DataSource() {
    options_.cache_folder = folder_ / "cache";
    options_.style = "default";
  }
  LoadedData load() { return load_data(options_, tokenizer_); }
  void write(const std::string& text) { options_.path = folder_.write("data.jsonl", text); }
  std::string text_of_sample(const Dataset& data, int64_t i) {
    return tokenizer_.decode(data.tokens_of(i));
  }
  // The learned parts of a sample, with | between them.
  std::string learned(const Dataset& data, int64_t i) {
    std::string all;
    for (const TargetSpan& s : data.target_spans_of(i))
      all += (all.empty() ? "" : "|") +
             tokenizer_.decode(data.tokens_of(i).subspan(static_cast<size_t>(s.begin),
                                                         static_cast<size_t>(s.end - s.begin)));
    return all;
  }

  TempFolder folder_;
  FakeTokenizer tokenizer_{{"<s>", "</s>", "<|im_start|>", "<|im_end|>"}, "<s>", "</s>"};
  DataOptions options_;
};

TEST_F(DataSource, InstructionsAreBosPromptResponseEos) {
  write(instructions(1) + R"({"instruction": "i", "input": "in", "output": "out"})");
  options_.validation_fraction = 0;
  options_.style = "";
  const LoadedData data = load();
  ASSERT_EQ(data.train.size(), 2);
  EXPECT_EQ(text_of_sample(data.train, 0),
            "<s>" + text_of(render(prompt_style("alpaca"), "q0")) + "a0</s>");
  EXPECT_EQ(text_of_sample(data.train, 1),
            "<s>" + text_of(render(prompt_style("alpaca"), "i", "in")) + "out</s>");
  EXPECT_EQ(learned(data.train, 0), text_of_sample(data.train, 0).substr(3)) << "all but bos";
  EXPECT_EQ(data.train.cut(), Cut::tokens);
  EXPECT_EQ(data.style, &prompt_style("alpaca")) << "LitGPT's default";
  EXPECT_EQ(data.train.where_of(1), options_.path.string() + ":2");
}

TEST_F(DataSource, AMaskedPromptLeavesResponseAndEos) {
  write(instructions(1));
  options_.mask_prompt = true;
  const LoadedData data = load();
  EXPECT_EQ(learned(data.train, 0), "a0</s>");
}

TEST_F(DataSource, NoBosBeforeAStyleThatHasItsOwn) {
  const FakeTokenizer llama3({"<|begin_of_text|>", "<|eot_id|>"}, "<|begin_of_text|>",
                             "<|eot_id|>");
  write(instructions(1));
  options_.style = "llama3";
  const LoadedData data = load_data(options_, llama3);
  EXPECT_EQ(data.train.tokens_of(0)[0], llama3.bos());
  EXPECT_NE(data.train.tokens_of(0)[1], llama3.bos());
  EXPECT_TRUE(data.lint.clean());
}

TEST_F(DataSource, TextThatBeginsWithBosIsWarnedOf) {
  write(R"({"instruction": "<s>hi", "output": "x</s>"})");
  const LoadedData data = load();
  EXPECT_EQ(data.lint.doubled_bos.count, 1);
  EXPECT_EQ(text_of_sample(data.train, 0), "<s><s>hix</s>") << "an eos is not doubled";
}

TEST_F(DataSource, ConversationsLearnTheAnswers) {
  write(one_line(kChat));
  options_.style = "";
  options_.chat_template = *find_chat_template("chatml");
  for (const bool mask : {true, false}) {
    options_.mask_prompt = mask;
    const LoadedData data = load();
    EXPECT_EQ(learned(data.train, 0), "a1<|im_end|>|a2<|im_end|>");
    EXPECT_EQ(data.chat_template->name, "chatml");
    EXPECT_EQ(data.style, nullptr);
    EXPECT_TRUE(data.lint.clean()) << warnings(data.lint)[0];
  }
}

TEST_F(DataSource, InstructionsCanUseAChatTemplate) {
  write(R"({"instruction": "i", "input": "in", "output": "out"})");
  options_.style = "chat_template:chatml";
  const LoadedData data = load();
  EXPECT_EQ(text_of_sample(data.train, 0),
            "<|im_start|>user\ni\n\nin<|im_end|>\n<|im_start|>assistant\nout<|im_end|>\n");
}

TEST_F(DataSource, SaysWhenAStyleCannotHoldTheData) {
  write(one_line(kChat));
  expect_error(Fault::file,
               {"data.jsonl:1: a conversation of 2 turns", "default", "chat_template:llama3.1"},
               [&] { load(); });
  options_.style = "";
  expect_error(Fault::file, {"a conversation of 2 turns"}, [&] { load(); });
  options_.style = "chat_template";
  expect_error(Fault::usage, {"no known chat template", "chat_template:chatml"}, [&] { load(); });
  options_.style = "chat_template:nope";
  expect_error(Fault::usage, {"no chat template \"nope\""}, [&] { load(); });
  options_.style = "alpacca";
  expect_error(Fault::usage, {"did you mean alpaca?"}, [&] { load(); });
}

TEST_F(DataSource, TheFirstTurnCanBeTaken) {
  write(one_line(kChat));
  options_.first_turn = true;
  const LoadedData data = load();
  EXPECT_EQ(text_of_sample(data.train, 0), "<s>u1a1</s>");
  EXPECT_EQ(data.lint.first_turn.count, 1);
}

TEST_F(DataSource, DocumentsAreLearnedWhole) {
  write(R"({"text": "Once upon a time"})");
  options_.mask_prompt = true;
  options_.style = "";
  const LoadedData data = load();
  EXPECT_EQ(text_of_sample(data.train, 0), "<s>Once upon a time</s>");
  EXPECT_EQ(learned(data.train, 0), "Once upon a time</s>") << "there is no prompt to mask";
  EXPECT_EQ(data.style, nullptr);
  EXPECT_FALSE(data.chat_template);
  EXPECT_TRUE(data.lint.clean());
  const ExamplePrompt example = data.example(data.train, 0, tokenizer_);
  EXPECT_EQ(example.prompt, "Once upon a") << "to be continued";
  EXPECT_EQ(example.expected, " time");
  write(R"({"text": "Once upon a time"})"
        "\n" +
        instructions(1));
  EXPECT_EQ(load().style, &prompt_style("alpaca")) << "of the records that have one";
}

TEST_F(DataSource, ASystemTextIsNotLost) {
  write(
      R"({"system": "Be brief.", "instruction": "q", "output": "a"})"
      "\n"
      R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "q"},
            {"role": "assistant", "content": "a"}]})");
  std::string text = read_text(options_.path);
  text.erase(text.find("\n            "), 13);
  write(text);
  options_.validation_fraction = 0;
  const LoadedData plain = load();
  ASSERT_EQ(plain.train.size(), 2);
  for (int64_t i = 0; i < 2; ++i)
    EXPECT_EQ(text_of_sample(plain.train, i), "<s>Be brief.\n\nqa</s>") << "no place in the style";
  EXPECT_EQ(plain.lint.joined_system.count, 2);
  options_.style = "chat_template:chatml";
  const LoadedData chat = load();
  for (int64_t i = 0; i < 2; ++i)
    EXPECT_EQ(text_of_sample(chat.train, i),
              "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nq<|im_end|>\n"
              "<|im_start|>assistant\na<|im_end|>\n");
  options_.style = "alpaca";
  EXPECT_EQ(text_of_sample(load().train, 0),
            "<s>Be brief.\n\n### Instruction:\nq\n\n### Response:\na</s>")
      << "a blank line, as after the style's own";
  options_.style = "llama2";
  const LoadedData llama = load();
  EXPECT_NE(text_of_sample(llama.train, 0).find("<<SYS>>\nBe brief."), std::string::npos);
  EXPECT_EQ(llama.lint.joined_system.count, 0);
}

// The usual case of people who fine-tune a base model on chats.
TEST_F(DataSource, SaysHowConversationsAreRenderedWithoutATemplate) {
  write(R"({"messages": ["u", "a"]})"
        "\n" +
        instructions(1));
  options_.style = "";
  const auto note = [&](bool mask) {
    options_.mask_prompt = mask;
    load();  // and the same from the cache
    const LoadedData data = load();
    EXPECT_TRUE(data.from_cache);
    return data.notes.size() == 1 ? data.notes[0] : "";
  };
  EXPECT_TRUE(note(false).starts_with(
      "1 of 2 samples are conversations, but the model has no known chat template: "
      "they use the prompt style alpaca, and prompts are trained on like answers"))
      << note(false);
  EXPECT_NE(note(true).find("style alpaca, and only the answers are trained on, not the prompts"),
            std::string::npos);
  EXPECT_NE(note(true).find("--data.prompt_style chat_template:chatml"), std::string::npos);
  options_.chat_template = *find_chat_template("chatml");
  EXPECT_TRUE(load().notes.empty());
  options_.chat_template.reset();
  options_.style = "default";
  EXPECT_TRUE(load().notes.empty()) << "as asked";
}

TEST_F(DataSource, ADataSetOfArrowFilesIsRefusedWithWhatConvertsIt) {
  fs::create_directory(folder_ / "set");
  folder_.write("set/state.json", "{}");
  folder_.write("set/data-00000-of-00001.arrow", "");
  options_.path = folder_ / "set";
  expect_error(Fault::file,
               {"Arrow or Parquet", "load_from_disk('" + options_.path.string() + "')"},
               [&] { load(); });
}

TEST_F(DataSource, HoldsOutAFraction) {
  write(instructions(40));
  LoadedData data = load();
  EXPECT_EQ(data.validation.size(), 2) << "0.05, as in LitGPT";
  EXPECT_TRUE(data.default_fraction);
  options_.validation_fraction = 0.5;
  data = load();
  EXPECT_EQ(data.validation.size(), 20);
  EXPECT_FALSE(data.default_fraction);
  EXPECT_EQ(data.train.tokens_of(0).data() < data.validation.tokens_of(0).data(),
            data.train.id_of(0) < data.validation.id_of(0))
      << "one piece of memory";
  const auto held = [&](uint64_t seed) {
    options_.seed = seed;
    std::set<int64_t> ids;
    const LoadedData d = load();
    for (int64_t i = 0; i < d.validation.size(); ++i) ids.insert(d.validation.id_of(i));
    return ids;
  };
  EXPECT_EQ(held(1), held(1));
  EXPECT_NE(held(1), held(2));
}

TEST_F(DataSource, AFolderHasTrainAndVal) {
  fs::create_directory(folder_ / "set");
  options_.path = folder_ / "set";
  expect_error(Fault::file, {"set: expected train.json, train.jsonl or train.csv"},
               [&] { load(); });
  folder_.write("set/train.jsonl", instructions(3));
  expect_error(Fault::file, {"set: expected val.json, val.jsonl or val.csv"}, [&] { load(); });
  folder_.write("set/val.json", "[" + one_line(instructions(1)) + "]");
  const LoadedData data = load();
  EXPECT_EQ(data.train.size(), 3);
  EXPECT_EQ(data.validation.size(), 1);
  EXPECT_EQ(data.lint.samples, 4);
  EXPECT_TRUE(data.validation.where_of(0).ends_with("set/val.json:1"));
  options_.validation_fraction = 0.1;
  expect_error(Fault::usage, {"val_split_fraction 0.1", "separate validation data"},
               [&] { load(); });
}

TEST_F(DataSource, GivesThePromptOfARecord) {
  write(instructions(10));
  options_.style = "phi-2";
  options_.validation_fraction = 0.3;
  const LoadedData data = load();
  for (const Dataset* part : {&data.train, &data.validation}) {
    const std::string number = std::to_string(part->id_of(1));
    const ExamplePrompt example = data.example(*part, 1, tokenizer_);
    EXPECT_EQ(example.instruction, "q" + number);
    EXPECT_EQ(example.prompt, "Instruct: q" + number + "\nOutput:");
    EXPECT_EQ(tokenizer_.decode(example.tokens), "<s>" + example.prompt);
    EXPECT_EQ(example.expected, "a" + number);
  }
  write(one_line(kChat));
  options_.style = "chat_template:chatml";
  options_.validation_fraction.reset();
  const LoadedData chat = load();
  const ExamplePrompt example = chat.example(chat.train, 0, tokenizer_);
  EXPECT_EQ(example.instruction, "u2");
  EXPECT_EQ(example.expected, "a2");
  EXPECT_TRUE(example.prompt.ends_with("u2<|im_end|>\n<|im_start|>assistant\n"));
}

bool same(const Dataset& a, const Dataset& b) {
  if (a.size() != b.size()) return false;
  for (int64_t i = 0; i < a.size(); ++i)
    if (!std::ranges::equal(a.tokens_of(i), b.tokens_of(i)) ||
        !std::ranges::equal(a.target_spans_of(i), b.target_spans_of(i)) ||
        a.origin_of(i) != b.origin_of(i) || a.id_of(i) != b.id_of(i))
      return false;
  return true;
}

TEST_F(DataSource, TheSecondTimeComesFromTheCache) {
  write(instructions(20));
  options_.mask_prompt = true;
  const LoadedData first = load(), second = load();
  EXPECT_FALSE(first.from_cache);
  EXPECT_TRUE(second.from_cache);
  EXPECT_TRUE(same(first.train, second.train));
  EXPECT_TRUE(same(first.validation, second.validation));
  EXPECT_EQ(warnings(first.lint), warnings(second.lint));
  EXPECT_EQ(second.example(second.validation, 0, tokenizer_).prompt,
            first.example(first.validation, 0, tokenizer_).prompt);

  fs::rename(folder_ / "data.jsonl", folder_ / "moved.jsonl");
  options_.path = folder_ / "moved.jsonl";
  const LoadedData moved = load();
  EXPECT_TRUE(moved.from_cache) << "contents count, not names";
  EXPECT_TRUE(moved.train.where_of(0).find("moved.jsonl:") != std::string::npos);
}

TEST_F(DataSource, ChangesMissTheCache) {
  write(instructions(20));
  load();
  options_.style = "phi-2";
  EXPECT_FALSE(load().from_cache) << "style";
  options_.mask_prompt = true;
  EXPECT_FALSE(load().from_cache) << "mask";
  write(instructions(19));
  EXPECT_FALSE(load().from_cache) << "contents";
  options_.fields.input = "context";
  EXPECT_FALSE(load().from_cache) << "fields";
  options_.fields.named = true;
  EXPECT_FALSE(load().from_cache) << "columns that were named";
  options_.fields.system = "persona";
  EXPECT_FALSE(load().from_cache) << "another column";
  EXPECT_FALSE(load_data(options_, FakeTokenizer({"<s>"}, "<s>")).from_cache) << "tokenizer";
  options_.max_seq_length = 100;
  EXPECT_TRUE(load().from_cache) << "records are cut later";
  options_.cache = false;
  EXPECT_FALSE(load().from_cache);
}

TEST_F(DataSource, ADamagedCacheIsMadeAgain) {
  write(instructions(20));
  const LoadedData first = load();
  for (const auto& entry : fs::directory_iterator(options_.cache_folder)) {
    std::string bytes = read_text(entry.path());
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    write_text(entry.path(), bytes);
  }
  const LoadedData second = load();
  EXPECT_FALSE(second.from_cache);
  EXPECT_TRUE(same(first.train, second.train));
  EXPECT_TRUE(load().from_cache);
}

TEST_F(DataSource, ThreadsChangeNothing) {
  write(instructions(3000));
  options_.cache = false;
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const LoadedData one = load();
  omp_set_num_threads(4);
  const LoadedData four = load();
  omp_set_num_threads(threads);
  EXPECT_TRUE(same(one.train, four.train));
}

TEST_F(DataSource, ProgressReachesTheEnd) {
  write(instructions(1500));
  int64_t last = 0, calls = 0;
  load_data(options_, tokenizer_, [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, 1500);
    EXPECT_GT(done, last);
    last = done;
    ++calls;
  });
  EXPECT_EQ(last, 1500);
  EXPECT_GT(calls, 1);
}

TEST_F(DataSource, BadRecordsAreReportedTogether) {
  std::string text = instructions(600);
  for (int i = 0; i < 12; ++i) text += "{\"output\": 1}\n";
  write(text);
  const std::string message = message_of(Fault::file, [&] { load(); });
  EXPECT_TRUE(message.starts_with(options_.path.string() + ":601: expected the field"));
  EXPECT_TRUE(message.ends_with(" (the same at 602, 603, 604, 605, 606 and 6 more)")) << message;
  write("");
  expect_error(Fault::file, {"data.jsonl: contains no record"}, [&] { load(); });
  options_.path = folder_ / "none.json";
  expect_error(Fault::file, {"none.json: no such file or folder", "train.json and val.json"},
               [&] { load(); });
}

TEST_F(DataSource, TooLongAndAllMaskedSamplesAreCounted) {
  write(instructions(2) +
        R"({"instruction": "a long instruction", "output": "x"})"
        "\n" +
        R"({"instruction": "q", "output": ""})");
  options_.mask_prompt = true;
  options_.max_seq_length = 6;
  options_.validation_fraction = 0;
  const LoadedData data = load();
  EXPECT_EQ(data.lint.truncated.count, 1);
  EXPECT_EQ(data.lint.all_masked.count, 1);
  EXPECT_EQ(data.lint.empty_response.count, 1);
  EXPECT_EQ(data.lint.truncated.places[0], options_.path.string() + ":3");
  options_.max_seq_length = 1;
  expect_error(Fault::usage, {"max_seq_length must be 2 or more"}, [&] { load(); });
}

TEST_F(DataSource, ReadsTextFiles) {
  options_.kind = DataOptions::Kind::text_files;
  options_.path = folder_.write("a.txt", "hello world");
  options_.max_seq_length = 4;
  const LoadedData data = load();
  EXPECT_EQ(data.train.size(), 3) << "13 tokens, 12 inputs";
  EXPECT_EQ(data.validation.size(), 0);
  EXPECT_EQ(data.train.cut(), Cut::inputs);
  EXPECT_EQ(text_of_sample(data.train, 0), "<s>hell");
  EXPECT_TRUE(load().from_cache);
  options_.max_seq_length = 5;
  EXPECT_FALSE(load().from_cache) << "samples depend on their length";
  options_.validation_path = folder_.write("b.txt", "other");
  EXPECT_EQ(load().validation.size(), 2);
  options_.max_seq_length = 0;
  expect_error(Fault::usage, {"max_seq_length must be 1 or more"}, [&] { load(); });
}

// The same bytes are text under one name and documents under another, and once were text under
// both.
TEST_F(DataSource, DocumentsAndTextHaveTheirOwnTokens) {
  options_.kind = DataOptions::Kind::text_files;
  options_.max_seq_length = 100;
  options_.path = folder_.write("a.txt", "{\"text\": \"x\", \"body\": \"y\"}");
  EXPECT_EQ(text_of_sample(load().train, 0), "<s>{\"text\": \"x\", \"body\": \"y\"}</s>");
  options_.path = folder_.write("a.jsonl", "{\"text\": \"x\", \"body\": \"y\"}");
  const LoadedData documents = load();
  EXPECT_FALSE(documents.from_cache);
  EXPECT_EQ(text_of_sample(documents.train, 0), "<s>x</s>");
  EXPECT_TRUE(load().from_cache);
  options_.fields.text = "body";
  const LoadedData body = load();
  EXPECT_FALSE(body.from_cache);
  EXPECT_EQ(text_of_sample(body.train, 0), "<s>y</s>");
}

TEST_F(DataSource, FilesOfAFolderThatAreNotReadAreToldOf) {
  options_.kind = DataOptions::Kind::text_files;
  options_.max_seq_length = 100;
  fs::create_directory(folder_ / "texts");
  folder_.write("texts/a.txt", "hello");
  options_.path = folder_ / "texts";
  EXPECT_TRUE(load().notes.empty());
  folder_.write("texts/b.csv", "text");
  const auto notes = load().notes;
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0], "1 file is not read (" + (options_.path / "b.csv").string() +
                          "): in a folder of text, only .txt and .jsonl files are");
}

TEST(ModelPrompting, FollowsTheFolderThenTheName) {
  const TempFolder folder;
  const auto prompt = [&](const char* name) {
    return text_of(prompt_pieces(prompting_of(folder.path(), name), "hi"));
  };
  EXPECT_EQ(prompt("my-model"), "hi");
  EXPECT_EQ(prompt("CodeLlama-7b"), "[INST] hi [/INST]");
  folder.write("chat_template.jinja", "<start_of_turn>");
  EXPECT_EQ(prompt("CodeLlama-7b"),
            "<bos><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n");
  folder.write("prompt_style.yaml", prompt_style_yaml(prompt_style("phi-2")));
  EXPECT_EQ(prompt("CodeLlama-7b"), "Instruct: hi\nOutput:");
  folder.write("prompt_style.yaml", prompt_style_yaml(*find_chat_template("zephyr")));
  EXPECT_EQ(prompt("CodeLlama-7b"), "<|user|>\nhi</s>\n<|assistant|>\n");
}

}  // namespace
}  // namespace capstan
