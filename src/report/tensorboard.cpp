#include "report/tensorboard.h"

#include <array>
#include <bit>

namespace capstan {
namespace {

// The reflected Castagnoli polynomial.
constexpr auto kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = c;
  }
  return table;
}();

template <class T>
void put_fixed(std::string& to, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) to += static_cast<char>(value >> (8 * i) & 0xff);
}

// Wire types of protocol buffers.
enum class Wire : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>((value & 0x7f) | 0x80);
  to += static_cast<char>(value);
}

void put_key(std::string& to, uint32_t field, Wire wire) {
  put_varint(to, field << 3 | static_cast<uint32_t>(wire));
}

void put_varint(std::string& to, uint32_t field, uint64_t value) {
  put_key(to, field, Wire::varint);
  put_varint(to, value);
}

void put_bytes(std::string& to, uint32_t field, std::string_view bytes) {
  put_key(to, field, Wire::bytes);
  put_varint(to, bytes.size());
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

std::string event_at(double wall_time, int64_t step) {
  std::string event;
  put_double(event, 1, wall_time);
  put_varint(event, 2, static_cast<uint64_t>(step));
  return event;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t c = ~0u;
  for (const char byte : bytes) c = (c >> 8) ^ kCrcTable[(c ^ static_cast<uint8_t>(byte)) & 0xff];
  return ~c;
}

uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

std::string event_record(std::string_view event) {
  std::string record;
  put_fixed(record, static_cast<uint64_t>(event.size()));
  put_fixed(record, masked_crc32c(record));
  record += event;
  put_fixed(record, masked_crc32c(event));
  return record;
}

std::string version_event(double wall_time) {
  std::string event;
  put_double(event, 1, wall_time);
  put_bytes(event, 3, "brain.Event:2");
  return event_record(event);
}

std::string restart_event(double wall_time, int64_t step) {
  std::string start;
  put_varint(start, 1, 1);
  std::string event = event_at(wall_time, step);
  put_bytes(event, 7, start);
  return event_record(event);
}

std::string scalars_event(double wall_time, int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    put_bytes(value, 1, scalar.first);
    put_float(value, 2, scalar.second);
    put_bytes(summary, 1, value);
  }
  std::string event = event_at(wall_time, step);
  put_bytes(event, 5, summary);
  return event_record(event);
}

}  // namespace capstan
