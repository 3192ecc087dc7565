#include "data/tokenizer/protobuf_reader.h"

#include <cstring>

#include "base/error.h"

namespace capstan {

void ProtobufReader::refuse(std::string_view what) const {
  const auto offset = static_cast<size_t>(message_.data() - file_.data()) + at_;
  fail(Fault::file, "{}: byte {}: {}; the file is damaged or is not a SentencePiece model", where_,
       offset, what);
}

uint64_t ProtobufReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at_ == message_.size()) refuse("a number is cut short");
    const auto byte = static_cast<unsigned char>(message_[at_++]);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  refuse("a number has more than 64 bits");
}

std::string_view ProtobufReader::take(uint64_t count) {
  if (count > message_.size() - at_) refuse("a field is longer than its container");
  const std::string_view taken = message_.substr(at_, count);
  at_ += count;
  return taken;
}

bool ProtobufReader::next() {
  if (at_ == message_.size()) return false;
  const uint64_t key = varint();
  if (key >> 3 == 0 || key >> 32 != 0) refuse("a field's number is out of range");
  field_ = static_cast<uint32_t>(key >> 3);
  kind_ = static_cast<Kind>(key & 7);
  switch (kind_) {
    case Kind::integer: integer_ = varint(); return true;
    case Kind::fixed64: bytes_ = take(8); return true;
    case Kind::bytes: bytes_ = take(varint()); return true;
    case Kind::fixed32: bytes_ = take(4); return true;
  }
  refuse("a field has an unsupported wire type");
}

void ProtobufReader::require_kind(Kind kind) const {
  if (kind_ != kind) refuse("a field has the wrong wire type for its number");
}

std::string_view ProtobufReader::bytes() const {
  require_kind(Kind::bytes);
  return bytes_;
}

uint64_t ProtobufReader::integer() const {
  require_kind(Kind::integer);
  return integer_;
}

float ProtobufReader::real() const {
  require_kind(Kind::fixed32);
  float value = 0;
  std::memcpy(&value, bytes_.data(), sizeof value);
  return value;
}

}  // namespace capstan
