#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

// HTTP by libcurl; where the program was built without it, Http's constructor throws Fault::device.
namespace capstan {

struct HttpRequest {
  std::string url;
  std::string token = {};  // sent as "Authorization: Bearer TOKEN" unless empty
  int64_t first_byte = 0;  // above 0: asks for the rest from there on
  std::string user = {};   // "name:password"
  // POSTs it, as JSON; empty: nothing to send.
  std::string json = {};
  // PUTs it; empty: nothing to send.
  std::filesystem::path file = {};
};

struct HttpAnswer {
  int status = 0;                              // 200, 404, …; 0: the connection failed or was cut
  std::string failure;                         // then, why
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;        // without `receive` whole, else the beginning of one that is an error's
  double retry_after = 0;  // seconds that the server asks to wait; 0: it does not

  std::string header(const std::string& name) const;
};

// Connections of one thread, which it keeps for further requests. Proxies and certificates of
// authorities are those of the environment (http_proxy, https_proxy, no_proxy; SSL_CERT_FILE,
// SSL_CERT_DIR, CURL_CA_BUNDLE, REQUESTS_CA_BUNDLE).
class Http {
 public:
  // A connection on which nothing arrives for so long is cut. `stopped` is asked many times a
  // second whether to end a transfer.
  explicit Http(double timeout_seconds, std::function<bool()> stopped = {});
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  // Gets the bytes of an answer with status 200 or 206 as they arrive, and the answer so far.
  // Returns false to end the transfer.
  using Receive = std::function<bool(const HttpAnswer&, std::span<const std::byte>)>;
  // Redirections are answers like others: they are not followed. Throws Fault::device if no server
  // can be trusted (certificates), and what `receive` throws.
  HttpAnswer send(const HttpRequest& request, const Receive& receive = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Scheme, host and port: "https://host:443". Throws Fault::usage for what is no http or https URL.
std::string origin_of(const std::string& url);
// Whether others can read on the way what is sent there: plain http to another machine.
bool is_open_to_others(const std::string& url);
// What a Location header means in the answer to `base`.
std::string resolve_url(const std::string& base, const std::string& location);
// "a b/c" -> "a%20b/c"; other characters than letters, digits and those of `kept` become codes.
std::string percent_encoded(const std::string& text, const char* kept = "-._~/");

}  // namespace capstan
