#include "site/sharing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"
#include "base/units.h"

namespace capstan {
namespace {

struct Wish {
  std::string person;
  int64_t gpus = 0;
};

// A name is printed where a shell may read it.
bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
}

Wish wish_of(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const std::string_view number =
      colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  int64_t gpus = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), gpus);
  const bool good = error == std::errc() && end == number.data() + number.size() && gpus >= 1 &&
                    gpus <= 1'000'000;
  require(good && is_name(name), Fault::usage,
          "people: expected NAME:GPUS (letters, digits, '.', '_' and '-'; at least 1 GPU), such as "
          "ana:2,ben:4, found '{}'",
          text);
  return {std::string(name), gpus};
}

std::vector<Wish> wishes_of(std::string_view people) {
  std::vector<Wish> wishes;
  for (;;) {
    const size_t comma = people.find(',');
    Wish wish = wish_of(people.substr(0, comma));
    const bool again = std::any_of(wishes.begin(), wishes.end(),
                                   [&](const Wish& w) { return w.person == wish.person; });
    require(!again, Fault::usage, "people: {} is named twice; give each person one number of GPUs",
            wish.person);
    wishes.push_back(std::move(wish));
    if (comma == std::string_view::npos) return wishes;
    people.remove_prefix(comma + 1);
  }
}

}  // namespace

std::string GpuShare::visible_devices() const {
  return fmt::format("{}", fmt::join(gpus, ","));
}

std::vector<GpuShare> parse_shares(std::string_view people, int64_t gpus) {
  const std::vector<Wish> wishes = wishes_of(people);
  int64_t all = 0;
  for (const Wish& w : wishes) all += w.gpus;
  require(all <= gpus, Fault::usage,
          "people: {} want {} in all, but a server has {}; lower a share, or let them take turns "
          "with a scheduler (Slurm)",
          wishes.size() == 1 ? wishes[0].person : fmt::format("{} people", wishes.size()),
          count(all, "GPU"), gpus);
  std::vector<GpuShare> shares;
  int64_t next = 0;
  for (const Wish& w : wishes) {
    GpuShare share{w.person, {}};
    while (std::ssize(share.gpus) < w.gpus) share.gpus.push_back(next++);
    shares.push_back(std::move(share));
  }
  return shares;
}

}  // namespace capstan
