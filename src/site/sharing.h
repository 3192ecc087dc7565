#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace capstan {

// A person's GPUs of one server, by their numbers there.
struct GpuShare {
  std::string person;
  std::vector<int64_t> gpus;

  std::string visible_devices() const;  // "0,1", for CUDA_VISIBLE_DEVICES
};

// "ana:2,ben:4": who gets how many of the server's GPUs, in order. Throws Fault::usage for what is
// not of this form, a person who is named twice, and more GPUs than the server has.
std::vector<GpuShare> parse_shares(std::string_view people, int64_t gpus);

}  // namespace capstan
