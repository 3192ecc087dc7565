#include "report/tensorboard.h"

#include <bit>

#include "report/protobuf.h"

namespace capstan {

using namespace protobuf;

namespace {

std::string event_at(double wall_time, int64_t step) {
  std::string event;
  put_double(event, 1, wall_time);
  put_varint(event, 2, static_cast<uint64_t>(step));
  return event;
}

}  // namespace

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
