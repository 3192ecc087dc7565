// Feeds bytes to the reader of tables: it must accept or throw Fault::file, and cells that it has
// read must come back the same when they are written in quotes.
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "data/records/csv.h"

namespace {

using namespace capstan;

void check(bool ok) {
  if (!ok) std::abort();
}

std::string in_double_quotes(const std::string& cell) {
  std::string text = "\"";
  for (const char c : cell) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + "\"";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<RecordPlace> rows;
  try {
    rows = find_rows(text, "fuzz", ',');
  } catch (const Error& e) {
    check(e.fault() == Fault::file);
  }
  size_t last = 0;
  int64_t line = 1;
  for (const RecordPlace& p : rows) {
    check(p.begin >= last && p.begin < p.end && p.end <= size && p.line >= line);
    last = p.end;
    line = p.line;
    const auto cells = cells_of(text.substr(p.begin, p.end - p.begin), ',');
    std::string written;
    for (const std::string& cell : cells)
      written += (written.empty() ? "" : ",") + in_double_quotes(cell);
    const auto again = find_rows(written, "fuzz", ',');
    check(again.size() == 1 && again[0].end == written.size());
    check(cells_of(written, ',') == cells);
  }
  return 0;
}
