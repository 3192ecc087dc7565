#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace capstan {

// A checksum of some bytes of a whole, which begin at its byte `at`: those of parts add up to that
// of the whole (modulo 2^64), however it is cut. Any change within eight bytes that begin at a
// multiple of eight changes it; of larger changes one in 2^64 does not, if nobody looks for it.
// Several GB/s on each thread of this process.
uint64_t place_sum(std::span<const std::byte> bytes, int64_t at);

}  // namespace capstan
