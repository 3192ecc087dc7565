#pragma once

#include <cstdint>

// A library that makes one call of a process fail: the n-th of write, pwrite, writev, fsync,
// fdatasync, rename, renameat, renameat2, open and openat for writing, ftruncate, fallocate,
// posix_fallocate and mkdir, counted from its arming; standard streams do not count. It stands
// before the C library: link it, and arm it by a call, or preload it, and arm it by the environment
// (CAPSTAN_FAIL_AT=n, CAPSTAN_FAIL_MODE=enospc|eio|full|short|kill).
//
//   enospc, eio   the call fails with that error, those after it do not
//   full          this call and all later ones that need space fail with ENOSPC
//   short         a write takes half of its bytes; other calls are left alone
//   kill          the process dies by SIGKILL before the call; a write takes half of its bytes
//   first
extern "C" {
void fail_writes_arm(int64_t at, const char* mode);
int64_t fail_writes_calls();  // since it was armed
}
