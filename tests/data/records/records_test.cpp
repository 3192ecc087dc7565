#include "base/shell_words.h"
#include "data/records/find_records.h"
#include "data/records/read_records.h"
#include "data/records/record_source.h"
#include "data/records/text_files.h"

#include <gtest/gtest.h>

#include "data/errors.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

Record parse(std::string_view text) {
  return parse_record(text, "f", 3, 5);
}

TEST(Record, HasTheAlpacaForm) {
  EXPECT_EQ(parse(R"({"instruction": "do", "input": "this", "output": "done", "id": 7})"),
            (Record{"do", "this", "done", {}}));
  EXPECT_EQ(parse(R"({"instruction": "do", "output": "d\u00e9"})"), (Record{"do", "", "dé", {}}));
  EXPECT_EQ(parse(R"({"instruction": "do", "input": null, "output": ""})"),
            (Record{"do", "", "", {}}));
}

TEST(Record, FieldsMayHaveOtherNames) {
  const RecordFields dolly{"instruction", "context", "response"}, flan{"inputs", "", "targets"};
  EXPECT_EQ(
      parse_record(R"({"instruction": "a", "context": "b", "response": "c"})", "f", 1, 1, dolly),
      (Record{"a", "b", "c", {}}));
  EXPECT_EQ(parse_record(R"({"inputs": "a", "input": 1, "targets": "c"})", "f", 1, 1, flan),
            (Record{"a", "", "c", {}}));
}

TEST(Record, HasTheChatForms) {
  const std::vector<Message> expected = {
      {Role::system, "s"}, {Role::user, "u"}, {Role::assistant, "a"}};
  EXPECT_EQ(parse(R"({"messages": [{"role": "system", "content": "s"},
      {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]})")
                .messages,
            expected);
  EXPECT_EQ(parse(R"({"conversations": [{"from": "system", "value": "s"},
      {"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}]})")
                .messages,
            expected);
  EXPECT_EQ(
      parse(R"({"conversations": ["u", "a", "v", "b"]})").messages,
      (std::vector<Message>{
          {Role::user, "u"}, {Role::assistant, "a"}, {Role::user, "v"}, {Role::assistant, "b"}}));
}

TEST(Record, WithBothFormsIsAnInstruction) {
  for (const char* more : {R"("messages": null)", R"("conversations": [])",
                           R"("messages": [{"role": "user", "content": "x"}])"}) {
    const Record r =
        parse_record(fmt::format(R"({{"instruction": "a", "output": "b", {}}})", more), "f", 1, 1);
    EXPECT_EQ(r.instruction, "a") << more;
    EXPECT_EQ(r.output, "b") << more;
    EXPECT_TRUE(r.messages.empty()) << more;
  }
}

TEST(Record, SaysWhatIsWrongAndWhere) {
  const auto wrong = [](std::string_view text) {
    return message_of(Fault::file, [&] { parse(text); });
  };
  EXPECT_EQ(wrong(R"({"instruction": "a"})"),
            "f:3:5: expected the field \"output\", found \"instruction\"");
  EXPECT_EQ(wrong(R"({"instruction": 5, "output": "b"})"),
            "f:3:5: \"instruction\" must be text, found 5");
  EXPECT_EQ(wrong(R"({"instruction": "", "output": ""})"),
            "f:3:5: every field is empty. Remove the record");
  EXPECT_EQ(wrong("{}"), "f:3:5: expected the field \"instruction\", found no field");
  EXPECT_NE(wrong("[1]").find("f:3:5: expected a record"), std::string::npos);
  EXPECT_NE(wrong("[1]").find("found a list"), std::string::npos);
  EXPECT_EQ(wrong(R"({"messages": []})"),
            "f:3:5: \"messages\" must be a list of messages, found an empty list");
  EXPECT_EQ(wrong(R"({"messages": "hi"})"),
            "f:3:5: \"messages\" must be a list of messages, found \"hi\"");
  EXPECT_EQ(wrong(R"({"messages": [4]})"),
            "f:3:5: message 1: expected an object with role and content, found 4");
  EXPECT_EQ(wrong(R"({"messages": [{"role": "narrator", "content": "x"}]})"),
            "f:3:5: message 1: expected the role system, user or assistant, found \"narrator\"");
  EXPECT_EQ(wrong(R"({"messages": [{"role": "user"}]})"),
            "f:3:5: expected the field \"content\", found \"role\"");
}

// What people bring, as it is.
TEST(Record, HasTheNamesOfOtherPairs) {
  for (const char* pair :
       {R"({"instruction": "q", "response": "a"})", R"({"prompt": "q", "completion": "a"})",
        R"({"prompt": "q", "response": "a"})", R"({"question": "q", "answer": "a", "text": "t"})",
        R"({"question": "q", "response": "a"})", R"({"query": "q", "response": "a"})"})
    EXPECT_EQ(parse(pair), (Record{.instruction = "q", .output = "a"})) << pair;
  for (const char* with_input : {R"({"instruction": "q", "context": "c", "response": "a"})",
                                 R"({"question": "q", "context": "c", "answer": "a"})"})
    EXPECT_EQ(parse(with_input), (Record{.instruction = "q", .input = "c", .output = "a"}));
  EXPECT_EQ(message_of(Fault::file, [] { parse(R"({"prompt": "q", "answers": []})"); }),
            "f:3:5: expected the field \"completion\", found \"answers, prompt\"");
  EXPECT_EQ(message_of(Fault::file, [] { parse(R"({"frage": "q", "antwort": "a"})"); }),
            "f:3:5: expected the field \"instruction\", found \"antwort, frage\". Name the "
            "columns: --data.columns.instruction COLUMN --data.columns.output COLUMN");
}

TEST(Record, MayBeADocument) {
  EXPECT_EQ(parse(R"({"text": "Once.\nTwice.", "meta": {"id": 3}})"),
            (Record{.text = "Once.\nTwice."}));
  EXPECT_FALSE(parse(R"({"text": "t", "instruction": "i", "output": "o"})").is_document());
  EXPECT_FALSE(parse(R"({"text": "t", "messages": ["u", "a"]})").is_document());
  EXPECT_EQ(message_of(Fault::file, [] { parse(R"({"text": ""})"); }),
            "f:3:5: \"text\" is empty. Remove the record");
}

TEST(Record, ColumnsMayBeNamed) {
  const auto read = [](std::string_view text, const RecordFields& fields) {
    return parse_record(text, "f", 1, 1, fields);
  };
  const std::string_view text =
      R"({"q": "Q", "c": "C", "a": "A", "s": "S", "input": "I", "instruction": "no",
          "output": "no", "dialog": ["u", "v"], "body": "B"})";
  EXPECT_EQ(read(text, {.instruction = "q", .output = "a", .named = true}),
            (Record{.instruction = "Q", .input = "I", .output = "A"}));
  EXPECT_EQ(
      read(text, {.instruction = "q", .input = "c", .output = "a", .system = "s", .named = true}),
      (Record{.instruction = "Q", .input = "C", .output = "A", .system = "S"}));
  EXPECT_EQ(read(text, {.messages = "dialog"}).messages,
            (std::vector<Message>{{Role::user, "u"}, {Role::assistant, "v"}}));
  EXPECT_EQ(read(text, {.text = "body"}), (Record{.text = "B"}));
  EXPECT_EQ(message_of(Fault::file, [&] { read(text, {.instruction = "x", .named = true}); }),
            "f:1: expected the field \"x\", found \"a, body, c, dialog, input, instruction, "
            "output, q, s\"");
  EXPECT_NE(message_of(Fault::file, [&] { read(text, {.text = "x"}); }).find("the field \"x\""),
            std::string::npos);
}

TEST(Record, ContentsMayBeInParts) {
  EXPECT_EQ(parse(R"({"messages": [
      {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
      {"role": "assistant", "content": [{"type": "text", "text": "three"}]}]})")
                .messages,
            (std::vector<Message>{{Role::user, "one two"}, {Role::assistant, "three"}}));
  const auto wrong = [](std::string_view part) {
    return message_of(Fault::file, [&] {
      parse(fmt::format(R"({{"messages": [{{"role": "user", "content": [{}]}}]}})", part));
    });
  };
  EXPECT_EQ(wrong(R"({"type": "image_url", "image_url": {"url": "x"}})"),
            "f:3:5: message 1: has a part of type \"image_url\": only text is supported");
  EXPECT_NE(wrong(R"({"type": "image"})").find("\"image\""), std::string::npos);
  EXPECT_NE(wrong("5").find("expected parts such as"), std::string::npos);
}

TEST(Record, ASystemTextMayStandBesideIt) {
  EXPECT_EQ(parse(R"({"system_prompt": "s", "question": "q", "response": "a"})"),
            (Record{.instruction = "q", .output = "a", .system = "s"}));
  const std::vector<Message> expected = {
      {Role::system, "s"}, {Role::user, "u"}, {Role::assistant, "a"}};
  EXPECT_EQ(parse(R"({"system": "s", "conversations": ["u", "a"]})").messages, expected);
  EXPECT_EQ(parse(R"({"system": "other", "messages": [{"role": "developer", "content": "s"},
      {"role": "user", "content": "u"}, {"role": "model", "content": "a"}]})")
                .messages,
            expected)
      << "a conversation's own counts";
  EXPECT_EQ(parse(R"({"system": {"os": "x"}, "prompt": "q", "completion": "a"})").system, "");
}

TEST(Record, PromptAndCompletionMayBePartsOfAConversation) {
  EXPECT_EQ(parse(R"({"prompt": [{"role": "user", "content": "u"}],
      "completion": [{"role": "assistant", "content": "a"}]})")
                .messages,
            (std::vector<Message>{{Role::user, "u"}, {Role::assistant, "a"}}));
}

TEST(Record, TheUseOfToolsIsNeverLearnedAsText) {
  const auto wrong = [](std::string_view messages, std::string_view more = "") {
    return message_of(Fault::file, [&] {
      parse(fmt::format(R"({{"messages": [{{"role": "user", "content": "u"}}, {}]{}}})", messages,
                        more));
    });
  };
  const std::string answer = R"({"role": "assistant", "content": "a"})";
  EXPECT_TRUE(
      wrong(R"({"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]})")
          .starts_with("f:3:5: message 2: calls a tool (\"tool_calls\"). No known chat template"));
  EXPECT_NE(wrong(R"({"role": "assistant", "content": "", "function_call": {"name": "f"}})")
                .find("calls a tool (\"function_call\")"),
            std::string::npos);
  for (const std::string role : {"tool", "function", "ipython", "observation", "function_call"})
    EXPECT_NE(wrong(R"({"role": ")" + role + R"(", "content": "x"})")
                  .find("the role \"" + role + "\" is for tool calls"),
              std::string::npos);
  EXPECT_NE(wrong(answer, R"(, "tools": [{"name": "f"}])").find("has \"tools\" for the model"),
            std::string::npos);
  // Fields that are there and empty say nothing.
  EXPECT_EQ(parse(R"({"tools": "[]", "functions": [], "messages": [{"role": "user", "content": "u"},
      {"role": "assistant", "content": "a", "tool_calls": null}]})")
                .messages.size(),
            2u);
}

TEST(Record, PairsOfPreferencesAreRefusedWithWhatReadsThem) {
  const auto keys = [](std::string_view text) {
    const std::string message = message_of(Fault::file, [&] { parse(text); });
    EXPECT_TRUE(message.starts_with("f:3:5: a preference pair (chosen and rejected)")) << message;
    return message.substr(std::min(message.size(), message.find("--")));
  };
  EXPECT_EQ(keys(R"({"prompt": "q", "chosen": "a", "rejected": "b"})"),
            "--data.columns.instruction prompt --data.columns.output chosen");
  EXPECT_EQ(keys(R"({"chosen": "Human: …", "rejected": "Human: …"})"),
            "--data.columns.text chosen");
  EXPECT_EQ(keys(R"({"prompt": "q", "messages": [], "rejected": [],
      "chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})"),
            "--data.columns.messages chosen");
  EXPECT_EQ(keys(R"({"question": "q", "rejected": [],
      "chosen": [{"role": "assistant", "content": "a"}]})"),
            "--data.columns.instruction question --data.columns.output chosen");
  // And that line does it.
  const RecordFields fields{.instruction = "question", .output = "chosen", .named = true};
  EXPECT_EQ(parse_record(R"({"question": "q", "rejected": [],
      "chosen": [{"role": "assistant", "content": "a"}]})",
                         "f", 1, 1, fields)
                .messages,
            (std::vector<Message>{{Role::user, "q"}, {Role::assistant, "a"}}));
  EXPECT_TRUE(message_of(Fault::file, [] {
                parse(R"({"prompt": "q", "completion": "bad", "label": false})");
              }).starts_with("f:3:5: \"label\" is false: an unwanted answer"));
  EXPECT_EQ(parse(R"({"prompt": "q", "completion": "good", "label": true})").output, "good");
  EXPECT_EQ(parse(R"({"instruction": "q", "output": "a", "chosen": "", "rejected": ""})").output,
            "a")
      << "as for LitGPT";
}

TEST(Record, RolesMustTakeTurns) {
  const auto wrong = [](std::string_view roles) {
    std::string text;
    for (const char r : roles)
      text += std::string(text.empty() ? "" : ",") + R"({"content":"x","role":")" +
              (r == 's'   ? "system"
               : r == 'u' ? "user"
                          : "assistant") +
              "\"}";
    return message_of(Fault::file, [&] { parse("{\"messages\":[" + text + "]}"); });
  };
  EXPECT_NE(wrong("au").find("message 1 is from assistant, expected user"), std::string::npos);
  EXPECT_NE(wrong("uu").find("message 2 is from user, expected assistant"), std::string::npos);
  EXPECT_NE(wrong("sa").find("message 2 is from assistant, expected user"), std::string::npos);
  EXPECT_NE(wrong("usa").find("message 2 is from system"), std::string::npos);
  EXPECT_NE(wrong("uau").find("ends with user, expected assistant"), std::string::npos);
  EXPECT_NE(wrong("s").find("ends with system"), std::string::npos);
}

constexpr const char* kOne = R"({"instruction": "1", "output": "a"})";
constexpr const char* kTwo = R"({"instruction": "2", "output": "b"})";

TEST(RecordFile, TellsListsFromLinesByContent) {
  const TempFolder folder;
  const std::string one = kOne, two = kTwo;
  const std::vector<Record> expected = {{"1", "", "a", {}}, {"2", "", "b", {}}};
  const std::pair<const char*, std::string> files[] = {
      {"a.json", "[" + one + "," + two + "]"},
      {"b.jsonl", " \n[\n" + one + " ,\r\n" + two + "\n]\n\n"},
      {"c.json", one + "\n" + two},
      {"d.txt", "\n" + one + "\r\n\n  \n  " + two + "\n\n"},
      {"e.json", "\xEF\xBB\xBF" + one + "\n" + two},
  };
  for (const auto& file : files)
    EXPECT_EQ(read_records(folder.write(file.first, file.second)), expected) << file.first;
}

TEST(RecordFile, KnowsLines) {
  const TempFolder folder;
  const RecordFile list(folder.write(
      "a.json",
      "[\n  {\"instruction\": \"}],{\\\"\",\n \"output\": \"a\"},\n  " + std::string(kTwo) + "]"));
  ASSERT_EQ(list.size(), 2);
  EXPECT_EQ(list.line_of(0), 2);
  EXPECT_EQ(list.line_of(1), 4);
  EXPECT_EQ(list.record(0).instruction, "}],{\"");
  const RecordFile lines(folder.write("b.jsonl", "\n" + std::string(kOne) + "\n\n" + kTwo));
  EXPECT_EQ(lines.line_of(0), 2);
  EXPECT_EQ(lines.line_of(1), 4);
}

std::string error_in(const std::string& text) {
  const TempFolder folder;
  const auto path = folder.write("f", text);
  const std::string message = message_of(Fault::file, [&] { read_records(path); });
  EXPECT_TRUE(message.starts_with(path.string() + ":")) << message;
  return message.substr(std::min(message.size(), path.string().size()));
}

TEST(RecordFile, PointsToBadJson) {
  const std::string one = kOne;
  EXPECT_TRUE(error_in(one + "\n{\"a\": x}").starts_with(":2:7: not valid JSON"));
  EXPECT_TRUE(error_in("[" + one + ",\n  {\"é\": x}]").starts_with(":2:9: not valid JSON"));
  EXPECT_TRUE(error_in("{\"instruction\":\n\"pretty\"}").starts_with(":1:16: not valid JSON"));
  EXPECT_TRUE(error_in("[" + one + "\n" + one + "]").starts_with(":2:1: not valid JSON"));
  EXPECT_TRUE(error_in("[" + one).starts_with(":1:37: expected a comma"));
  EXPECT_TRUE(error_in("[" + one + "}").starts_with(":1:37: expected a comma"));
  EXPECT_TRUE(error_in("[" + one + ",]").starts_with(":1:38: expected a record, found \"]\""));
  EXPECT_TRUE(error_in("[" + one + "] x").starts_with(":1:39: expected nothing after"));
  EXPECT_TRUE(error_in("[{\"instruction\": \"a").starts_with(":1:20: not valid JSON"));
  EXPECT_TRUE(error_in(R"({"output": "1", "output": "2"})").find("appears twice") !=
              std::string::npos);
}

TEST(RecordFile, SaysWhatElseAFileIs) {
  const std::string one = kOne;
  const auto expect = [](const std::string& text, const char* found) {
    EXPECT_EQ(error_in(text),
              std::string(":1:1: expected a JSON list of records or one record on each line, "
                          "found ") +
                  found);
  };
  expect("{\n \"rows\": [" + one + "]\n}",
         "an object over several lines; write each record on one line (jq -c . FILE), or, if it "
         "contains "
         "the list of records, name that \"data\"");
  expect("instruction: x", "\"i\"");
  EXPECT_TRUE(error_in(one + ",\n" + one + ",\n").starts_with(":1:")) << "no object is open";
  EXPECT_TRUE(error_in("[" + one + ",]").ends_with("; remove the comma before it"));
}

TEST(RecordFile, SaysHowOtherKindsOfFilesAreConverted) {
  using namespace std::string_literals;
  const TempFolder folder;
  const auto found = [&](const char* name, const std::string& bytes) {
    const auto path = folder.write(name, bytes);
    std::string message = message_of(Fault::file, [&] { read_records(path); });
    const std::string begin =
        path.string() + ":1:1: expected records as JSON, JSONL or CSV, found ";
    EXPECT_TRUE(message.starts_with(begin)) << message;
    message.erase(0, begin.size());
    for (size_t at; (at = message.find(folder.path().string() + "/")) != std::string::npos;)
      message.erase(at, folder.path().string().size() + 1);
    return message;
  };
  EXPECT_EQ(found("a.json", "\x1f\x8b\x08 rest"), "a gzip file; decompress it");
  EXPECT_EQ(found("a.parquet", "PAR1 rest"),
            "a Parquet file; convert it: python3 -c \"import pandas; pandas.read_parquet("
            "'a.parquet').to_json('a.jsonl', orient='records', lines=True)\"");
  EXPECT_EQ(found("a.feather", "ARROW1\0\0 rest"s),
            "an Arrow file; convert it: python3 -c \"import pandas; pandas.read_feather("
            "'a.feather').to_json('a.jsonl', orient='records', lines=True)\"");
  EXPECT_EQ(found("data-00000-of-00001.arrow", "\xff\xff\xff\xff\x10\0\0\0"s),
            "an Arrow file; convert it: python3 -c \"from datasets import *; Dataset.from_file("
            "'data-00000-of-00001.arrow').to_json('data-00000-of-00001.jsonl')\"");
  EXPECT_EQ(found("it's $x.parquet", "PAR1"),
            "a Parquet file; convert it: python3 -c " +
                in_shell("import pandas; pandas.read_parquet('it\\'s $x.parquet').to_json("
                         "'it\\'s $x.jsonl', orient='records', lines=True)"))
      << "nothing that a shell would take for more than a name";
  EXPECT_EQ(found("a.json", "\xff\xfe{"), "UTF-16; convert the file (iconv -f UTF-16 -t UTF-8)");
  const std::string little = "[\0{\0\"\0t\0e\0x\0t\0\"\0:\0"s;
  EXPECT_EQ(found("a.json", little),
            "UTF-16 without a byte order mark; convert the file (iconv -f UTF-16LE -t UTF-8)");
  EXPECT_EQ(found("a.json", "\0"s + little),
            "UTF-16 without a byte order mark; convert the file (iconv -f UTF-16BE -t UTF-8)");
  EXPECT_NE(found("a.json",
                  "[\0{\0\"\0a\0\"\0:\0\"\0"
                  "\x2d\x4e\x87\x65\x2d\x4e\x87\x65\x2d\x4e"
                  "\x87\x65\x2d\x4e\x87\x65\x2d\x4e\x87\x65\x2d\x4e\x87\x65"s)
                .find("UTF-16LE"),
            std::string::npos)
      << "Chinese";
  EXPECT_EQ(found("a.json", "{\"a\": \"\0\"}"s),
            "a zero byte at offset 7: a binary file, not text");
}

TEST(RecordFile, MayHoldTheListUnderData) {
  const TempFolder folder;
  const std::string one = kOne, two = kTwo;
  const std::vector<Record> expected = {{"1", "", "a", {}}, {"2", "", "b", {}}};
  for (const std::string& text :
       {"{\"data\": [" + one + ", " + two + "]}",
        "{\n \"version\": \"[1]\", \"splits\": [\"a\"],\n \"data\" :\n [\n" + one + ",\n" + two +
            "],\n \"n\": 2}\n"})
    EXPECT_EQ(read_records(folder.write("f.json", text)), expected) << text;
  const RecordFile file(folder.write("f.json", "{\n\"data\": [" + one + ",\n" + two + "]}"));
  EXPECT_EQ(file.line_of(0), 2);
  EXPECT_EQ(file.line_of(1), 3);
  EXPECT_EQ(error_in("{\"version\": 1,\n \"data\": []}"),
            ": contains no record: the list is empty");
  EXPECT_TRUE(
      error_in("{\"data\": [" + one + ",\n{\"x\": 1}]}").starts_with(":2: expected the field"));
  EXPECT_TRUE(error_in("{x, \"data\": [" + one + "]}").starts_with(":1:2: not valid JSON"));
  EXPECT_TRUE(error_in("{\"data\": [" + one + "],\n x}").starts_with(":2:2: not valid JSON"));
  EXPECT_TRUE(error_in("{\"data\": [" + one).starts_with(":1:46: expected a comma"));
  // On each line a record with such a field: records, not lists of them.
  const std::string line = R"({"prompt": "q", "completion": "a", "data": [{}]})";
  EXPECT_EQ(read_records(folder.write("f.jsonl", line + "\n" + line + "\n")).size(), 2u);
}

TEST(RecordFile, PointsToARecordOfSeveralOnALine) {
  const std::string one = kOne;
  EXPECT_TRUE(error_in("[" + one + ", {}]").starts_with(":1:39: expected the field"));
}

TEST(RecordFile, PointsToBytesThatAreNotUtf8) {
  const std::string one = kOne;
  EXPECT_EQ(error_in(one + "\n{\"instruction\": \"d\xE9\", \"output\": \"\"}"),
            ":2:19: not UTF-8: byte 0xe9. Convert the file (iconv -t UTF-8)");
  EXPECT_TRUE(error_in("[\n\n " + one + ", {\"instruction\": \"\xff\"}]")
                  .starts_with(":3:56: not UTF-8: byte 0xff"));
}

TEST(RecordFile, RefusesWhatHoldsNoRecord) {
  for (const char* empty : {"", "  \n\n"})
    EXPECT_EQ(error_in(empty), ": contains no record: the file is empty");
  EXPECT_EQ(error_in(" [ ]\n"), ": contains no record: the list is empty");
  EXPECT_TRUE(error_in("instruction,output\n").starts_with(":1:1: expected a JSON list"));
  expect_error(Fault::file, {"/nowhere/x.json: cannot open: No such file"},
               [] { read_records("/nowhere/x.json"); });
  expect_error(Fault::file, {"expected a file"}, [] { read_records("/"); });
}

TEST(RecordFile, ReadsARealSet) {
  const std::filesystem::path path = CAPSTAN_SOURCE_DIR "/../shared/data/gsm8k_train.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no such file beside the source";
  const auto records = read_records(path);
  EXPECT_EQ(records.size(), 7473u);
  EXPECT_TRUE(records[0].instruction.starts_with("Natalia sold clips"));
  for (const Record& r : records) EXPECT_FALSE(r.output.empty());
}

TEST(RecordFile, ReportsAllBadRecordsTogether) {
  std::string text;
  // Each has another field, so that no two have the same problem.
  for (int i = 0; i < 30; ++i)
    text += i % 2 == 0 ? std::string(kOne) + "\n" : "{\"field" + std::to_string(i) + "\": 1}\n";
  const std::string message = error_in(text);
  EXPECT_TRUE(message.starts_with(":2: expected the field")) << message;
  EXPECT_NE(message.find(":20: expected the field"), std::string::npos) << "the tenth";
  EXPECT_EQ(message.find(":22:"), std::string::npos);
  EXPECT_TRUE(message.ends_with("\nand 5 more bad records")) << message;
}

TEST(RecordFile, TellsOneProblemOfManyRecordsOnce) {
  std::string text;
  for (int i = 0; i < 12; ++i) text += "{\"instructio\": \"a\"}\n";
  const std::string message = error_in(text + "{\"x\": 1}\n");
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 1) << message;
  EXPECT_NE(message.find(" (the same at 2, 3, 4, 5, 6 and 6 more)\n"), std::string::npos)
      << message;
  EXPECT_NE(message.find(":13: "), std::string::npos) << message;
}

// A file system tells the size of a file whose bytes nobody wrote; reading them all takes minutes.
TEST(RecordFile, AHugeFileOfAnotherKindIsRefusedByItsBeginning) {
  const TempFolder folder;
  const std::filesystem::path huge = folder.write("data.json", "");
  std::filesystem::resize_file(huge, std::uintmax_t{1} << 40);
  expect_error(Fault::file, {"data.json:1:1", "a zero byte at offset 0"},
               [&] { read_records(huge); });
  expect_error(Fault::file, {"data.json", "a zero byte at offset 0"},
               [&] { read_utf8_file(huge); });
}

}  // namespace
}  // namespace capstan
