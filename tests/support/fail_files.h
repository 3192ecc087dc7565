#pragma once

#include <cstdint>

// A library that makes files of a disk with bad blocks: what would read a certain byte of a file
// gets the bytes before it, and EIO there; fsync of a certain file fails with EIO, or of
// another one takes three seconds. Files are told by the end of their path. It stands before the C
// library: link it, and arm it by a call, or preload it, and arm it by the environment
// (CAPSTAN_FAIL_READ=PATH@BYTE, CAPSTAN_FAIL_SYNC=PATH, CAPSTAN_SLOW_SYNC=PATH).
extern "C" {
void fail_reads_arm(const char* path, int64_t byte);  // null: none fails
int64_t fail_reads_count();                           // that failed since
}
