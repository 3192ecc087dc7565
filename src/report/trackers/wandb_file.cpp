#include "report/trackers/wandb_file.h"

#include <charconv>
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "report/crc32.h"
#include "report/protobuf.h"

namespace capstan {

using namespace protobuf;

namespace {

constexpr double kLatestTime = 1e11;  // seconds since 1970
constexpr size_t kBlock = 32 << 10, kChunkHeader = 7;
enum Chunk : char { kWhole = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

uint32_t little_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return value;
}

// Takes a number from the beginning of a text; false if there is none.
template <class T>
bool take(std::string_view& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}
bool take_space(std::string_view& text) {
  if (!text.starts_with(' ')) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string wandb_file_begin() {
  std::string magic = ":W&B";
  put_fixed(magic, uint16_t{0xBEE1});
  magic += '\0';
  return magic;
}

void put_wandb_record(std::string& to, int64_t place, std::string_view record) {
  const auto left_in_block = [&] {
    return kBlock - (static_cast<size_t>(place) + to.size()) % kBlock;
  };
  for (bool first = true, more = true; more; first = false) {
    if (left_in_block() < kChunkHeader) to.append(left_in_block(), '\0');
    const size_t left = left_in_block();
    const std::string_view data = record.substr(0, left - kChunkHeader);
    record.remove_prefix(data.size());
    more = !record.empty();
    const char type = first ? (more ? kFirst : kWhole) : (more ? kMiddle : kLast);
    const std::string checked = std::string(1, type) + std::string(data);
    put_fixed(to, crc32(checked));
    put_fixed(to, static_cast<uint16_t>(data.size()));
    to += checked;
  }
}

std::vector<int64_t> wandb_record_ends(std::string_view bytes, const std::string& where) {
  const std::string begin = wandb_file_begin();
  size_t at = begin.size();
  const auto check = [&](bool ok) {
    require(ok, Fault::file, "{}: byte {}: expected a record of W&B with its checksum", where, at);
  };
  check(bytes.starts_with(begin));
  std::vector<int64_t> ends;
  for (bool in_record = false; at < bytes.size();) {
    if (const size_t left = kBlock - at % kBlock; left < kChunkHeader) {
      at += left;
      continue;
    }
    const std::string_view chunk = bytes.substr(at);
    check(chunk.size() >= kChunkHeader);
    const size_t length = little_endian(chunk.substr(4, 2));
    check(chunk.size() >= kChunkHeader + length &&
          crc32(chunk.substr(6, 1 + length)) == little_endian(chunk.substr(0, 4)));
    const char type = chunk[6];
    check(in_record ? type == kMiddle || type == kLast : type == kWhole || type == kFirst);
    in_record = type == kFirst || type == kMiddle;
    at += kChunkHeader + length;
    if (!in_record) ends.push_back(static_cast<int64_t>(at));
  }
  return ends;
}

WandbIndex read_wandb_index(const std::filesystem::path& file, int64_t last_step) {
  const std::string text = read_text(file, std::numeric_limits<int64_t>::max());
  WandbIndex index;
  int64_t number = 1;
  for (size_t at = 0, stop = 0; (stop = text.find('\n', at)) != std::string::npos; at = stop + 1) {
    std::string_view line(text.data() + at, stop - at);
    int64_t step = 0, end = 0;
    bool ok = take(line, step) && take_space(line) && take(line, end) && end > index.end;
    if (number == 1)
      ok = ok && step == -1 && take_space(line) && take(line, index.start) && index.start >= 0 &&
           index.start < kLatestTime;
    if (number > 1) ok = ok && step > index.last_step;
    require(ok && line.empty(), Fault::file, "{}:{}: expected the step and the end of a row",
            file.string(), number);
    if (step > last_step && number > 1) break;
    index.text = text.substr(0, stop + 1);
    index.last_step = step;
    index.end = end;
    ++number;
  }
  require(number > 1, Fault::file, "{}: is empty", file.string());
  return index;
}

}  // namespace capstan
