#pragma once

#include <chrono>
#include <string_view>

namespace capstan::cli {

// Seconds from `now` until a deadline that people write: a time from now ("36h", "90 min",
// "3 days", "2 weeks"), a day ("tomorrow", "friday": today if that has not ended, "2026-12-24"),
// or a day with a time ("2026-12-24 09:00"). Days are those of the local time zone and end at
// 17:00. Throws Fault::usage for anything else, and for what has passed.
double seconds_until(std::string_view deadline, std::chrono::system_clock::time_point now);

// Hours of a term of a contract or of a time until delivery: "2 weeks", "6mo", "1y", "10 days".
// `name`: of the option, for what is refused (Fault::usage).
double hours_of_term(std::string_view text, std::string_view name);

}  // namespace capstan::cli
