#include "base/url.h"

namespace capstan {

std::string without_password(std::string_view url) {
  const size_t scheme = url.find("://");
  const size_t begin = scheme == std::string_view::npos ? 0 : scheme + 3;
  // A password may hold anything but '/', '?' and '#', so the last '@' before them ends it.
  const size_t end = url.substr(0, url.find_first_of("/?#", begin)).rfind('@');
  if (end == std::string_view::npos || end < begin) return std::string(url);
  return std::string(url.substr(0, begin)) + "***" + std::string(url.substr(end));
}

}  // namespace capstan
