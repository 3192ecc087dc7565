#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "base/visible.h"

namespace capstan::log {
namespace {

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = std::make_shared<spdlog::logger>(
        "capstan", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%^%v%$");
    return made;
  }();
  return *instance;
}

}  // namespace

void set_level(Level level) {
  switch (level) {
    case Level::quiet: return logger().set_level(spdlog::level::off);
    case Level::warning: return logger().set_level(spdlog::level::warn);
    case Level::info: return logger().set_level(spdlog::level::info);
    case Level::debug: return logger().set_level(spdlog::level::debug);
  }
}

void write(Level level, std::string_view text) {
  const std::string line = visible(text);  // names of files and pieces of data are in it
  switch (level) {
    case Level::quiet: return;
    case Level::warning: return logger().warn("warning: {}", line);
    case Level::info: return logger().log(spdlog::level::info, line);
    case Level::debug: return logger().log(spdlog::level::debug, line);
  }
}

}  // namespace capstan::log
