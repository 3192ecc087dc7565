// Where libcurl was not found.

#include "hub/http.h"
#include "base/error.h"

namespace capstan {

struct Http::State {};

Http::Http(double, std::function<bool()>) {
  fail(Fault::device,
       "this capstan was built without libcurl and cannot download; install libcurl4-openssl-dev "
       "and build it again, or use 'hf download NAME --local-dir checkpoints/NAME'");
}
Http::~Http() = default;
HttpAnswer Http::send(const HttpRequest&, const Receive&) {
  return {};
}
std::string HttpAnswer::header(const std::string&) const {
  return {};
}
std::string origin_of(const std::string& url) {
  return url;
}
bool is_open_to_others(const std::string&) {
  return false;
}
std::string resolve_url(const std::string&, const std::string& location) {
  return location;
}
std::string percent_encoded(const std::string& text, const char*) {
  return text;
}

}  // namespace capstan
