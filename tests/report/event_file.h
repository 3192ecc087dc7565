#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/tensorboard.h"

namespace capstan {

// An event as a reader of TensorBoard's files sees it.
struct ReadEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string file_version = {};
  std::map<std::string, float> scalars = {};
  std::optional<uint64_t> session_status = {};
};

// Takes a message apart, field by field. Test failures for what is not such a message.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}
  bool done() const { return bytes_.empty(); }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70 && !bytes_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    ADD_FAILURE() << "a varint without end";
    return 0;
  }
  template <class T>
  T fixed() {
    T value{};
    EXPECT_GE(bytes_.size(), sizeof(T));
    std::memcpy(&value, bytes_.data(), std::min(sizeof(T), bytes_.size()));
    bytes_.remove_prefix(std::min(sizeof(T), bytes_.size()));
    return value;
  }
  std::string_view bytes(size_t n) {
    EXPECT_GE(bytes_.size(), n);
    const std::string_view result = bytes_.substr(0, n);
    bytes_.remove_prefix(result.size());
    return result;
  }
  std::string_view message() { return bytes(static_cast<size_t>(varint())); }

 private:
  std::string_view bytes_;
};

inline void read_summary(std::string_view bytes, std::map<std::string, float>& scalars) {
  for (WireReader in(bytes); !in.done();) {
    EXPECT_EQ(in.varint(), 1u << 3 | 2u);
    WireReader value(in.message());
    EXPECT_EQ(value.varint(), 1u << 3 | 2u);
    const std::string tag(value.message());
    EXPECT_EQ(value.varint(), 2u << 3 | 5u);
    EXPECT_TRUE(scalars.emplace(tag, value.fixed<float>()).second) << tag << " is there twice";
    EXPECT_TRUE(value.done());
  }
}

inline ReadEvent read_event(std::string_view bytes) {
  ReadEvent e;
  for (WireReader in(bytes); !in.done();) {
    switch (const uint64_t key = in.varint(); key) {
      case 1 << 3 | 1: e.wall_time = in.fixed<double>(); break;
      case 2 << 3 | 0: e.step = static_cast<int64_t>(in.varint()); break;
      case 3 << 3 | 2: e.file_version = in.message(); break;
      case 5 << 3 | 2: read_summary(in.message(), e.scalars); break;
      case 7 << 3 | 2: {
        WireReader log(in.message());
        EXPECT_EQ(log.varint(), 1u << 3 | 0u);
        e.session_status = log.varint();
        break;
      }
      default: ADD_FAILURE() << "field key " << key; return e;
    }
  }
  return e;
}

inline std::vector<ReadEvent> read_event_file(std::string_view bytes) {
  std::vector<ReadEvent> events;
  for (WireReader in(bytes); !in.done();) {
    const std::string_view length = in.bytes(8);
    EXPECT_EQ(in.fixed<uint32_t>(), masked_crc32c(length));
    const std::string_view event = in.bytes(WireReader(length).fixed<uint64_t>());
    EXPECT_EQ(in.fixed<uint32_t>(), masked_crc32c(event));
    if (testing::Test::HasFailure()) return events;
    events.push_back(read_event(event));
  }
  return events;
}

}  // namespace capstan
