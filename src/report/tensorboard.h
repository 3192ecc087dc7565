#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "report/crc32.h"

// TensorBoard's event files: records of serialized protocol buffers.
//
//   record   u64 length · u32 masked CRC of the length · bytes · u32 masked CRC of the bytes,
//            little-endian; masked = rotate_right(crc32c, 15) + 0xa282ead8
//   Event    1 double wall_time · 2 int64 step · 3 string file_version · 5 Summary · 7 SessionLog
//   Summary  1 repeated Value {1 string tag · 2 float simple_value}
//   SessionLog  1 enum status (START = 1)
//
// The first record of a file is a file_version. These functions make whole records; metrics.h
// describes the files.
namespace capstan {

uint32_t masked_crc32c(std::string_view bytes);

std::string event_record(std::string_view event);  // frames a serialized Event

std::string version_event(double wall_time);  // "brain.Event:2"
// TensorBoard drops the points of earlier files in the folder from this step on.
std::string restart_event(double wall_time, int64_t step);
using Scalar = std::pair<std::string_view, float>;
std::string scalars_event(double wall_time, int64_t step, std::span<const Scalar> scalars);

}  // namespace capstan
