#include "report/protobuf.h"

#include <bit>

namespace capstan::protobuf {
namespace {

enum class Wire : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_bare(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>((value & 0x7f) | 0x80);
  to += static_cast<char>(value);
}

void put_key(std::string& to, uint32_t field, Wire wire) {
  put_bare(to, field << 3 | static_cast<uint32_t>(wire));
}

}  // namespace

void put_varint(std::string& to, uint32_t field, uint64_t value) {
  put_key(to, field, Wire::varint);
  put_bare(to, value);
}

void put_bytes(std::string& to, uint32_t field, std::string_view bytes) {
  put_key(to, field, Wire::bytes);
  put_bare(to, bytes.size());
  to += bytes;
}

void put_double(std::string& to, uint32_t field, double value) {
  put_key(to, field, Wire::fixed64);
  put_fixed(to, std::bit_cast<uint64_t>(value));
}

void put_float(std::string& to, uint32_t field, float value) {
  put_key(to, field, Wire::fixed32);
  put_fixed(to, std::bit_cast<uint32_t>(value));
}

}  // namespace capstan::protobuf
