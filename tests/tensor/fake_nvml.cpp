// A library with the driver's names, built for the tests: one card, whose answers are known. The
// environment changes some: FAKE_NVML_BROKEN, FAKE_NVML_USED (bytes), FAKE_NVML_HIDES_PROCESSES,
// FAKE_NVML_MHZ, FAKE_NVML_REASONS (bits), FAKE_NVML_MILLIJOULES, FAKE_NVML_MILLIWATTS;
// FAKE_NVML_REFUSES names a function that the card does not support. Built with FAKE_NVML_OLDER, it
// has fewer functions, and one under its older name.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace {

// Sets `to` to what the environment says, or else to `usual`: the status of `function`.
template <class T>
[[maybe_unused]] int answer(const char* function, T* to, const char* variable, T usual) {
  const char* refused = std::getenv("FAKE_NVML_REFUSES");
  if (refused != nullptr && std::strcmp(refused, function) == 0) return 3;
  const char* text = std::getenv(variable);
  *to = text != nullptr ? static_cast<T>(std::strtoull(text, nullptr, 0)) : usual;
  return 0;
}

}  // namespace

extern "C" {

using Handle = struct nvmlDevice_st*;

int nvmlInit_v2() {
  return std::getenv("FAKE_NVML_BROKEN") != nullptr ? 9 : 0;
}
int nvmlShutdown() {
  return 0;
}
const char* nvmlErrorString(int) {
  return "Driver Not Loaded";
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::strncpy(text, "580.65.06", size);
  return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 1;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle* card) {
  static char the_card;
  *card = reinterpret_cast<Handle>(&the_card);
  return index == 0 ? 0 : 2;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, Handle* card) {
  return std::strcmp(id, "0000:19:00.0") == 0 ? nvmlDeviceGetHandleByIndex_v2(0, card) : 6;
}
int nvmlDeviceGetIndex(Handle, unsigned* index) {
  *index = 0;
  return 0;
}
int nvmlDeviceGetName(Handle, char* text, unsigned size) {
  std::strncpy(text, "NVIDIA Imaginary", size);
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(Handle, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return 0;
}

struct Memory {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
int nvmlDeviceGetMemoryInfo_v2(Handle, Memory* m) {
  if (m->version != (sizeof(Memory) | 2u << 24)) return 25;
  const char* used = std::getenv("FAKE_NVML_USED");
  *m = {m->version, 1000, 10, 600, used != nullptr ? std::strtoull(used, nullptr, 10) : 400};
  return 0;
}

struct Process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
// More of them than a first guess has room for; this process is the last.
int nvmlDeviceGetComputeRunningProcesses_v3(Handle, unsigned* count, Process* list) {
  constexpr unsigned kProcesses = 100;
  if (std::getenv("FAKE_NVML_HIDES_PROCESSES") != nullptr) {
    *count = 0;
    return 0;
  }
  const bool fits = *count >= kProcesses;
  *count = kProcesses;
  if (!fits) return 7;
  for (unsigned i = 0; i < kProcesses; ++i) list[i] = {1000000 + i, ~0ULL, ~0u, ~0u};
  list[kProcesses - 1] = {static_cast<unsigned>(getpid()), 300, ~0u, ~0u};
  return 0;
}

struct Utilization {
  unsigned gpu, memory;
};
int nvmlDeviceGetUtilizationRates(Handle, Utilization* u) {
  *u = {75, 20};
  return 0;
}
int nvmlDeviceGetPowerUsage(Handle, unsigned* milliwatts) {
  return answer(__func__, milliwatts, "FAKE_NVML_MILLIWATTS", 512500u);
}
int nvmlDeviceGetClockInfo(Handle, int type, unsigned* mhz) {
  return type == 1 ? answer(__func__, mhz, "FAKE_NVML_MHZ", 1450u) : 2;
}
int nvmlDeviceGetTemperature(Handle, int sensor, unsigned* celsius) {
  *celsius = 41;
  return sensor == 0 ? 0 : 2;
}
// Does not know about ECC.
int nvmlDeviceGetTotalEccErrors(Handle, int, int, unsigned long long*) {
  return 3;
}
#ifdef FAKE_NVML_OLDER
int nvmlDeviceGetCurrentClocksThrottleReasons(Handle, unsigned long long* bits) {
  return answer(__func__, bits, "FAKE_NVML_REASONS", 0x4 | 0x80ULL);
}
#else
int nvmlDeviceGetCurrentClocksEventReasons(Handle, unsigned long long* bits) {
  return answer(__func__, bits, "FAKE_NVML_REASONS", 0x4 | 0x80ULL);
}
int nvmlDeviceGetMaxClockInfo(Handle, int type, unsigned* mhz) {
  return type == 1 ? answer(__func__, mhz, "", 1980u) : 2;
}
int nvmlDeviceGetEnforcedPowerLimit(Handle, unsigned* milliwatts) {
  return answer(__func__, milliwatts, "", 700000u);
}
int nvmlDeviceGetTotalEnergyConsumption(Handle, unsigned long long* millijoules) {
  return answer(__func__, millijoules, "FAKE_NVML_MILLIJOULES", 5'000'000'000'500ULL);
}
#endif
int nvmlDeviceGetCurrPcieLinkGeneration(Handle, unsigned* n) {
  *n = 4;
  return 0;
}
int nvmlDeviceGetCurrPcieLinkWidth(Handle, unsigned* n) {
  *n = 8;
  return 0;
}
}
