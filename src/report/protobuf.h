#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// Appends fields of protocol buffers to a message.
namespace capstan::protobuf {

void put_varint(std::string& to, uint32_t field, uint64_t value);
void put_bytes(std::string& to, uint32_t field, std::string_view bytes);
void put_double(std::string& to, uint32_t field, double value);
void put_float(std::string& to, uint32_t field, float value);

// Little-endian bytes, without a field's key.
template <class T>
void put_fixed(std::string& to, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) to += static_cast<char>(value >> (8 * i) & 0xff);
}

}  // namespace capstan::protobuf
