#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// Numbers formatted for people.
namespace capstan {

std::string format_bytes(double bytes);  // "1.25 GiB", "640 B": powers of 1024
inline std::string format_bytes(int64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}
std::string format_count(double count);               // "1.10 B", "15.2 M", "640": powers of 1000
std::string format_grouped(int64_t n);                // "1,980", "230,325": every digit
std::string count(int64_t n, std::string_view noun);  // "1 sample", "12 samples"
// "812 ms", "4.2 s", "3:07", "2:03:07"; "?" if negative, NaN or infinite.
std::string format_duration(double seconds);

// "80GiB", "24 GB", "512MiB", "1024" (bytes); GB is 10^9 and GiB 2^30. At least one byte.
// Throws Fault::usage.
int64_t parse_bytes(const std::string& text);

}  // namespace capstan
