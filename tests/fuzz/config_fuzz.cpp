// Feeds bytes to the reader of config.json: it must accept or throw Fault::file, and what it
// accepts must survive being written and read again.
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "model/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  capstan::ModelConfig config;
  try {
    config = capstan::parse_config(text, "fuzz");
  } catch (const capstan::Error& e) {
    if (e.fault() != capstan::Fault::file) std::abort();
    return 0;
  }
  if (capstan::parse_config(capstan::config_json(config), "again") != config) std::abort();
  return 0;
}
