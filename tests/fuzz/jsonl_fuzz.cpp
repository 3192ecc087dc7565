// Feeds bytes to the reader of records: it must accept or throw Fault::file, and what it accepts
// must be what it promises.
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "data/records/find_records.h"
#include "data/records/record_source.h"

namespace {

using namespace capstan;

void check(bool ok) {
  if (!ok) std::abort();
}

void check_record(const Record& r) {
  if (r.is_document()) return check(!r.is_chat() && r.output.empty());
  if (!r.is_chat()) return check(!(r.instruction + r.input + r.output).empty());
  const size_t first = r.messages[0].role == Role::system ? 1 : 0;
  check((r.messages.size() - first) % 2 == 0 && r.messages.size() > first);
  for (size_t i = first; i < r.messages.size(); ++i)
    check(r.messages[i].role == ((i - first) % 2 == 0 ? Role::user : Role::assistant));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<RecordPlace> places;
  try {
    places = find_records(text, "fuzz");
  } catch (const Error& e) {
    check(e.fault() == Fault::file);
  }
  size_t last = 0;
  for (const RecordPlace& p : places) {
    check(p.begin >= last && p.begin < p.end && p.end <= size && p.line >= 1 && p.column >= 1);
    last = p.end;
    try {
      check_record(parse_record(text.substr(p.begin, p.end - p.begin), "fuzz", p.line, p.column));
    } catch (const Error& e) {
      check(e.fault() == Fault::file);
    }
  }
  return 0;
}
