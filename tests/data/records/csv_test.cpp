#include "data/records/csv.h"

#include <gtest/gtest.h>

#include "data/records/read_records.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

using Cells = std::vector<std::string>;

TEST(Csv, CellsAreThoseOfRfc4180) {
  EXPECT_EQ(cells_of("a,b,c", ','), (Cells{"a", "b", "c"}));
  EXPECT_EQ(cells_of(",,", ','), (Cells{"", "", ""}));
  EXPECT_EQ(cells_of(R"("a, b","say ""hi""","")", ','), (Cells{"a, b", "say \"hi\"", ""}));
  EXPECT_EQ(cells_of("\"two\r\nlines\", spaces ", ','), (Cells{"two\r\nlines", " spaces "}));
  EXPECT_EQ(cells_of("a, b\tc", '\t'), (Cells{"a, b", "c"}));
  EXPECT_EQ(cells_of(R"("""")", ','), (Cells{"\""}));
}

TEST(Csv, RowsKnowTheirLines) {
  const std::string text = "x,y\r\n\r\n1,\"a\nb\"\n\n2,\"\"\n3,c";
  const auto rows = find_rows(text, "f", ',');
  ASSERT_EQ(rows.size(), 4u);
  const auto row = [&](size_t i) {
    return text.substr(rows[i].begin, rows[i].end - rows[i].begin);
  };
  EXPECT_EQ(row(0), "x,y");
  EXPECT_EQ(row(1), "1,\"a\nb\"");
  EXPECT_EQ(row(3), "3,c");
  EXPECT_EQ((std::vector{rows[0].line, rows[1].line, rows[2].line, rows[3].line}),
            (std::vector<int64_t>{1, 3, 6, 7}));
  EXPECT_TRUE(find_rows("\n\r\n", "f", ',').empty());
}

TEST(Csv, BadQuotesAreRefusedWithTheirPlace) {
  const auto wrong = [](std::string_view text) {
    return message_of(Fault::file, [&] { find_rows(text, "f", ','); });
  };
  EXPECT_EQ(wrong("a,b\n1,\"open\n2,3\n"),
            "f:2:3: the quote that opens here is not closed. Double the quotes within a cell");
  EXPECT_TRUE(
      wrong("a\n\"x\"y\n").starts_with("f:2:4: expected a delimiter or the end of the line"));
  EXPECT_TRUE(wrong("a\nfive \" pipe\n").starts_with("f:2:6: expected a delimiter, found a quote"));
}

TEST(Csv, ColumnsAreNamedByTheFirstRow) {
  const auto wrong = [](std::string_view row, char delimiter) {
    return message_of(Fault::file, [&] { columns_of(row, "f", 1, delimiter); });
  };
  EXPECT_EQ(columns_of(" id ,\"text\"", "f", 1, ','), (Cells{"id", "text"}));
  EXPECT_EQ(wrong("a,b,a", ','), "f:1: the column \"a\" appears twice; rename one of them");
  EXPECT_EQ(wrong("prompt;answer", ','),
            "f:1: expected column names separated by a comma, found one, "
            "\"prompt;answer\". Save the table with commas");
}

TEST(Csv, RowsAreRecords) {
  const TempFolder folder;
  const auto path = folder.write("rows.CSV",
                                 "\xEF\xBB\xBF,instruction,output\n0,Say \u00e9,\"a, \"\"b\"\"\"\n"
                                 "1,\"x\ny\",z\n2,last,\n");
  const auto records = read_records(path);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0], (Record{.instruction = "Say \u00e9", .output = "a, \"b\""}));
  EXPECT_EQ(records[1], (Record{.instruction = "x\ny", .output = "z"}));
  EXPECT_EQ(records[2].output, "");
  EXPECT_EQ(RecordFile(path).line_of(2), 5);
  EXPECT_EQ(read_records(folder.write("t.tsv", "prompt\tcompletion\na, b\tc\n"))[0].instruction,
            "a, b");
  EXPECT_EQ(read_records(folder.write("c.csv", "frage,antwort\nq,a\n"),
                         {.instruction = "frage", .output = "antwort", .named = true})[0]
                .output,
            "a");
}

TEST(Csv, BadRowsAreReportedWithTheirLines) {
  const TempFolder folder;
  const auto wrong = [&](std::string_view text) {
    const auto path = folder.write("f.csv", text);
    const std::string message = message_of(Fault::file, [&] { read_records(path); });
    EXPECT_TRUE(message.starts_with(path.string() + ":")) << message;
    return message.substr(std::min(message.size(), path.string().size()));
  };
  EXPECT_EQ(wrong("prompt,completion\na,b\nc\n"),
            ":3: expected 2 cells, as many as there are columns, found 1");
  EXPECT_EQ(wrong("prompt,completion\na,caf\xe9\n"),
            ":2:6: not UTF-8: byte 0xe9. Convert the file (iconv -t UTF-8)");
  EXPECT_EQ(wrong("prompt,completion\n"),
            ": contains no record: there is no row after the column names");
  EXPECT_EQ(wrong(""), ": contains no record: the file is empty");
  EXPECT_TRUE(
      wrong("a,b\n1,2\n").starts_with(":2: expected the field \"instruction\", found \"a, b\""));
}

}  // namespace
}  // namespace capstan
