#include "cli/deadline.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"

namespace capstan::cli {
namespace {

using Clock = std::chrono::system_clock;
constexpr int kEndOfDay = 17;  // o'clock

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// A number with one of these units, in what they are of.
std::optional<double> scaled(const std::string& text,
                             std::span<const std::pair<std::string_view, double>> units) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const size_t begin = std::min(text.find_first_not_of(' ', digits), text.size());
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + digits, number);
  if (error != std::errc() || end != text.data() + digits) return std::nullopt;
  for (const auto& [unit, of_it] : units)
    if (text.substr(begin) == unit) return number * of_it;
  return std::nullopt;
}

std::optional<double> duration_of(const std::string& text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"s", 1},        {"m", 60},        {"min", 60},      {"minute", 60}, {"minutes", 60},
      {"h", 3600},     {"hour", 3600},   {"hours", 3600},  {"d", 86400},   {"day", 86400},
      {"days", 86400}, {"week", 604800}, {"weeks", 604800}};
  return scaled(text, kUnits);
}

// Without seconds and hours, which no contract is about; a month has 730 hours (cost/need.h).
std::optional<double> term_of(const std::string& text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"d", 24},   {"day", 24},    {"days", 24},    {"w", 168},  {"week", 168},  {"weeks", 168},
      {"mo", 730}, {"month", 730}, {"months", 730}, {"y", 8760}, {"year", 8760}, {"years", 8760}};
  return scaled(text, kUnits);
}

std::optional<Clock::time_point> day_of(const std::string& text, Clock::time_point now) {
  static constexpr std::array<std::string_view, 7> kDays = {
      "sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"};
  const std::time_t seconds = Clock::to_time_t(now);
  std::tm day{};
  ::localtime_r(&seconds, &day);
  const bool day_has_ended = day.tm_hour >= kEndOfDay;
  day.tm_hour = kEndOfDay;
  day.tm_min = day.tm_sec = 0;
  day.tm_isdst = -1;
  const auto named = std::find_if(kDays.begin(), kDays.end(), [&](std::string_view name) {
    return text == name || (text.size() == 3 && text == name.substr(0, 3));
  });
  if (named != kDays.end()) {
    const auto wanted = static_cast<int>(named - kDays.begin());
    const int ahead = (wanted - day.tm_wday + 7) % 7;
    day.tm_mday += ahead == 0 && day_has_ended ? 7 : ahead;
  } else if (text == "today" || text == "tomorrow") {
    day.tm_mday += text == "tomorrow" ? 1 : 0;
  } else {
    int year = 0, month = 0, date = 0, hour = kEndOfDay, minute = 0, used = 0;
    if (std::sscanf(text.c_str(), "%4d-%2d-%2d%n", &year, &month, &date, &used) != 3)
      return std::nullopt;
    const std::string rest = text.substr(static_cast<size_t>(used));
    int end = 0;
    if (!rest.empty() && (std::sscanf(rest.c_str(), "%*[ t]%2d:%2d%n", &hour, &minute, &end) != 2 ||
                          static_cast<size_t>(end) != rest.size()))
      return std::nullopt;
    if (month < 1 || month > 12 || date < 1 || date > 31 || hour > 23 || minute > 59)
      return std::nullopt;
    day.tm_year = year - 1900;
    day.tm_mon = month - 1;
    day.tm_mday = date;
    day.tm_hour = hour;
    day.tm_min = minute;
  }
  const int month = day.tm_mon, date = day.tm_mday;
  const std::time_t then = std::mktime(&day);
  // There is no 31st of February; a named day may be in the next month.
  if (named == kDays.end() && (day.tm_mon != month || day.tm_mday != date)) return std::nullopt;
  return Clock::from_time_t(then);
}

}  // namespace

double hours_of_term(std::string_view text, std::string_view name) {
  const auto hours = term_of(lower(text));
  require(hours && *hours >= 0, Fault::usage,
          "{}: expected a time such as 2 weeks, 6mo or 1y, found '{}'", name, text);
  return *hours;
}

double seconds_until(std::string_view deadline, Clock::time_point now) {
  const std::string text = lower(deadline);
  double seconds = 0;
  if (const auto duration = duration_of(text)) {
    seconds = *duration;
  } else {
    const auto day = day_of(text, now);
    require(day.has_value(), Fault::usage,
            "deadline: expected a time from now (36h, 3 days), a day (tomorrow, friday, "
            "2026-12-24) or a day "
            "with a time (2026-12-24 09:00), found '{}'",
            deadline);
    seconds = std::chrono::duration<double>(*day - now).count();
  }
  require(seconds > 0, Fault::usage,
          "deadline: '{}' has passed; give a later one, such as 36h or friday", deadline);
  return seconds;
}

}  // namespace capstan::cli
