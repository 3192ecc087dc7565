#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace capstan {

// Iterates over the fields of one Protocol Buffers message in file order: a bounds-checked view of
// its bytes. (protobuf.dev/programming-guides/encoding)
//
//   for (ProtobufReader r(bytes, where); r.next();)
//     if (r.field() == 3) use(r.bytes());
//
// Throws Fault::file, with the offset in the file, for bytes that are not a message.
class ProtobufReader {
 public:
  // `file` is the whole file and `message` a part of it: offsets in errors count from the start of
  // `file`.
  ProtobufReader(std::string_view message, std::string_view file, std::string_view where)
      : message_(message), file_(file), where_(where) {}

  // Moves to the next field, if there is one.
  bool next();

  uint32_t field() const { return field_; }
  // The value, which must have the requested type.
  std::string_view bytes() const;
  uint64_t integer() const;
  float real() const;

 private:
  enum class Kind : uint8_t { integer = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

  [[noreturn]] void refuse(std::string_view what) const;
  uint64_t varint();
  std::string_view take(uint64_t count);
  void require_kind(Kind kind) const;

  std::string_view message_, file_, where_;
  size_t at_ = 0;
  uint32_t field_ = 0;
  Kind kind_ = Kind::integer;
  uint64_t integer_ = 0;
  std::string_view bytes_;
};

}  // namespace capstan
