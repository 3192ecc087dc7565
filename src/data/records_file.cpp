#include <utility>

#include "base/error.h"
#include "data/records.h"

namespace capstan {
namespace {

std::string_view without_bom(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return text;
}

}  // namespace

RecordFile::RecordFile(const std::filesystem::path& path, RecordFields fields)
    : name_(path.string()), fields_(std::move(fields)), file_(path) {
  const auto bytes = file_.bytes();
  text_ = without_bom({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  places_ = find_records(text_, name_, fields_);
}

Record RecordFile::record(int64_t index) const {
  const RecordPlace& p = places_.at(static_cast<size_t>(index));
  return parse_record(text_.substr(p.begin, p.end - p.begin), name_, p.line, p.column, fields_);
}

std::vector<Record> read_records(const std::filesystem::path& path, const RecordFields& fields) {
  const RecordFile file(path, fields);
  std::vector<Record> records;
  RecordErrors errors;
  for (int64_t i = 0; i < file.size(); ++i) {
    try {
      records.push_back(file.record(i));
    } catch (const Error& e) {
      errors.add(e.what());
    }
  }
  errors.throw_if_any();
  return records;
}

void RecordErrors::add(std::string message) {
  constexpr size_t kShown = 10;
  ++count_;
  if (first_.size() < kShown) first_.push_back(std::move(message));
}

void RecordErrors::throw_if_any() const {
  if (empty()) return;
  std::string all;
  for (const std::string& message : first_) all += (all.empty() ? "" : "\n") + message;
  if (const int64_t more = count_ - std::ssize(first_); more > 0)
    all += fmt::format("\nand {} more bad record{}", more, more == 1 ? "" : "s");
  throw Error(Fault::file, all);
}

}  // namespace capstan
