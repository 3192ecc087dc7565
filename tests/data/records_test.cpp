#include "data/records.h"

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
  EXPECT_EQ(wrong(R"({"messages": [{"role": "tool", "content": "x"}]})"),
            "f:3:5: message 1: expected the role system, user or assistant, found \"tool\"");
  EXPECT_EQ(wrong(R"({"messages": [{"role": "user"}]})"),
            "f:3:5: expected the field \"content\", found \"role\"");
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
  EXPECT_TRUE(error_in(R"({"output": "1", "output": "2"})").find("second time") !=
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
  expect("{\n \"data\": [" + one + "]\n}",
         "an object over several lines; if it holds the list of records, write that alone");
  expect("{\"version\": 1,\n \"data\": []}",
         "an object over several lines; if it holds the list of records, write that alone");
  expect("\x1f\x8b\x08 rest", "a file that gzip has packed; unpack it");
  expect("PAR1 rest", "a Parquet file; write its rows as JSON");
  expect("\xff\xfe{", "UTF-16; convert the file (iconv -f UTF-16 -t UTF-8)");
  EXPECT_TRUE(error_in(one + ",\n" + one + ",\n").starts_with(":1:")) << "no object is open";
  EXPECT_TRUE(error_in("[" + one + ",]").ends_with("; remove the comma before it"));
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
    EXPECT_EQ(error_in(empty), ": holds no record: the file is empty");
  EXPECT_EQ(error_in(" [ ]\n"), ": holds no record: the list is empty");
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
  for (int i = 0; i < 30; ++i) text += i % 2 == 0 ? std::string(kOne) + "\n" : "{}\n";
  const std::string message = error_in(text);
  EXPECT_TRUE(message.starts_with(":2: expected the field")) << message;
  EXPECT_NE(message.find(":20: expected the field"), std::string::npos) << "the tenth";
  EXPECT_EQ(message.find(":22:"), std::string::npos);
  EXPECT_TRUE(message.ends_with("\nand 5 more bad records")) << message;
}

}  // namespace
}  // namespace capstan
