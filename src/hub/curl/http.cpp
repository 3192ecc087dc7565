#include "hub/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/url.h"

namespace capstan {
namespace {

constexpr size_t kMostBody = 16 << 20;
constexpr long kReceiveBuffer = 512 << 10;

struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, FreeUrl>;

Url parse_url(const std::string& text) {
  Url url(curl_url());
  const bool ok = url && curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) == CURLUE_OK;
  require(ok, Fault::usage, "expected a URL such as https://host/path, found '{}'",
          without_password(text));
  return url;
}

std::string part_of(const Url& url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url.get(), part, &text, flags) != CURLUE_OK) return {};
  std::string copy = text;
  curl_free(text);
  return copy;
}

// The file of certificates that the user wants trusted, by the variables of OpenSSL, curl and
// Python's requests: behind a proxy that inspects connections, the system's own do not do.
std::string own_authorities() {
  for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"})
    if (const std::string file = environment_value(name); !file.empty()) return file;
  return {};
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

// One transfer, as curl's callbacks see it.
struct Transfer {
  CURL* curl;
  HttpAnswer answer;
  const Http::Receive& receive;
  bool stopped = false;
  std::exception_ptr thrown = nullptr;  // curl's own frames know nothing of exceptions

  size_t header(std::string_view line) {
    const size_t colon = line.find(':');
    if (line.starts_with("HTTP/")) {
      answer.headers.clear();  // of an interim answer
    } else if (colon != std::string_view::npos) {
      answer.headers[lower(std::string(trimmed(line.substr(0, colon))))] =
          trimmed(line.substr(colon + 1));
    }
    return line.size();
  }

  size_t body(std::span<const std::byte> bytes) {
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    answer.status = static_cast<int>(status);
    if (receive && (status == 200 || status == 206)) {
      try {
        stopped = !receive(answer, bytes);
      } catch (...) {
        thrown = std::current_exception();
        stopped = true;
      }
      return stopped ? 0 : bytes.size();
    }
    const size_t more = std::min(bytes.size(), kMostBody - answer.body.size());
    answer.body.append(reinterpret_cast<const char*>(bytes.data()), more);
    return bytes.size();
  }
};

}  // namespace

struct Http::State {
  State(double timeout_seconds, std::function<bool()> stopped_)
      : timeout(static_cast<long>(std::max(1.0, timeout_seconds))), stopped(std::move(stopped_)) {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
    curl = curl_easy_init();
    require(curl != nullptr, Fault::device, "libcurl cannot be initialized");
  }
  ~State() { curl_easy_cleanup(curl); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  CURL* curl;
  long timeout;
  std::function<bool()> stopped;
};

Http::Http(double timeout_seconds, std::function<bool()> stopped)
    : state_(std::make_unique<State>(timeout_seconds, std::move(stopped))) {}
Http::~Http() = default;

HttpAnswer Http::send(const HttpRequest& request, const Receive& receive) {
  CURL* const curl = state_->curl;
  curl_easy_reset(curl);  // keeps its connections
  Transfer transfer{curl, {}, receive};
  char error[CURL_ERROR_SIZE] = "";
  curl_slist* headers = curl_slist_append(nullptr, "Accept-Encoding: identity");
  if (!request.token.empty())
    headers = curl_slist_append(headers, ("Authorization: Bearer " + request.token).c_str());
  const std::string range = std::to_string(request.first_byte) + "-";
  const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(curl, option, value); };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_USERAGENT, "capstan");
  set(CURLOPT_HTTPHEADER, headers);
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_ERRORBUFFER, error);
  set(CURLOPT_BUFFERSIZE, kReceiveBuffer);
  set(CURLOPT_CONNECTTIMEOUT, state_->timeout);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, state_->timeout);
  if (const std::string file = own_authorities(); !file.empty())
    set(CURLOPT_CAINFO, file.c_str());  // curl copies it
  if (const std::string folder = environment_value("SSL_CERT_DIR"); !folder.empty())
    set(CURLOPT_CAPATH, folder.c_str());
  if (request.first_byte > 0) set(CURLOPT_RANGE, range.c_str());
  set(CURLOPT_HEADERDATA, &transfer);
  set(
      CURLOPT_HEADERFUNCTION, +[](char* at, size_t, size_t size, void* to) {
        return static_cast<Transfer*>(to)->header({at, size});
      });
  set(CURLOPT_WRITEDATA, &transfer);
  set(
      CURLOPT_WRITEFUNCTION, +[](char* at, size_t, size_t size, void* to) {
        return static_cast<Transfer*>(to)->body(std::as_bytes(std::span(at, size)));
      });
  if (state_->stopped) {
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFODATA, state_.get());
    set(
        CURLOPT_XFERINFOFUNCTION,
        +[](void* of, curl_off_t, curl_off_t, curl_off_t, curl_off_t) -> int {
          return static_cast<State*>(of)->stopped() ? 1 : 0;
        });
  }
  if (!request.user.empty()) {
    set(CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BASIC));
    set(CURLOPT_USERPWD, request.user.c_str());
  }
  if (!request.json.empty()) {
    headers = curl_slist_append(headers, "Content-Type: application/json");
    set(CURLOPT_HTTPHEADER, headers);
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.json.size()));
    set(CURLOPT_POSTFIELDS, request.json.c_str());
    set(CURLOPT_FRESH_CONNECT, 1L);  // on a connection that was closed, curl would send it twice
  }
  std::unique_ptr<FILE, int (*)(FILE*)> file(nullptr, std::fclose);
  if (!request.file.empty()) {
    file.reset(std::fopen(request.file.c_str(), "rb"));
    require(file != nullptr, Fault::file, "{}: cannot read: {}", request.file.string(),
            std::strerror(errno));
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_READDATA, file.get());
    set(CURLOPT_INFILESIZE_LARGE,
        static_cast<curl_off_t>(std::filesystem::file_size(request.file)));
  }
  const CURLcode code = curl_easy_perform(curl);
  curl_slist_free_all(headers);
  if (transfer.thrown) std::rethrow_exception(transfer.thrown);
  require(
      code != CURLE_SSL_CACERT_BADFILE && code != CURLE_PEER_FAILED_VERIFICATION, Fault::device,
      "{}: {}; {}", origin_of(request.url), error[0] != 0 ? error : curl_easy_strerror(code),
      own_authorities().empty()
          ? "are the certificates of authorities installed (ca-certificates)? SSL_CERT_FILE names "
            "a file of others"
          : fmt::format("the certificates are those of {}", own_authorities()));
  HttpAnswer answer = std::move(transfer.answer);
  long status = 0;
  curl_off_t seconds = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &seconds);
  answer.status = static_cast<int>(status);
  answer.retry_after = static_cast<double>(seconds);
  if (code != CURLE_OK && !transfer.stopped) {
    answer.status = 0;
    answer.failure = error[0] != 0 ? error : curl_easy_strerror(code);
  }
  return answer;
}

std::string HttpAnswer::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

std::string origin_of(const std::string& url) {
  const Url parsed = parse_url(url);
  const std::string scheme = part_of(parsed, CURLUPART_SCHEME);
  require(scheme == "http" || scheme == "https", Fault::usage,
          "expected a URL of http or https, found '{}'", without_password(url));
  return scheme + "://" + lower(part_of(parsed, CURLUPART_HOST)) + ":" +
         part_of(parsed, CURLUPART_PORT, CURLU_DEFAULT_PORT);
}

bool is_open_to_others(const std::string& url) {
  const Url parsed = parse_url(url);
  const std::string host = lower(part_of(parsed, CURLUPART_HOST));
  const bool here = host == "localhost" || host.ends_with(".localhost") || host == "[::1]" ||
                    host.starts_with("127.");
  return part_of(parsed, CURLUPART_SCHEME) == "http" && !here;
}

std::string resolve_url(const std::string& base, const std::string& location) {
  const Url url = parse_url(base);
  const bool ok = curl_url_set(url.get(), CURLUPART_URL, location.c_str(), 0) == CURLUE_OK;
  require(ok, Fault::peer, "{} redirects to '{}', which is no URL", without_password(base),
          without_password(location));
  return part_of(url, CURLUPART_URL);
}

std::string percent_encoded(const std::string& text, const char* kept) {
  std::string encoded;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || std::strchr(kept, c) != nullptr)
      encoded += c;
    else
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  return encoded;
}

}  // namespace capstan
