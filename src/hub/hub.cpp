#include "hub/hub.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/text.h"
#include "base/units.h"
#include "base/url.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

constexpr int kMostFailures = 6, kMostRedirects = 8;
constexpr double kFirstPause = 0.5, kLongestPause = 300;
constexpr size_t kMostText = 64 << 20;

fs::path hugging_face_home() {
  if (const std::string home = environment_value("HF_HOME"); !home.empty()) return home;
  if (const std::string cache = environment_value("XDG_CACHE_HOME"); !cache.empty())
    return fs::path(cache) / "huggingface";
  return fs::path(environment_value("HOME")) / ".cache" / "huggingface";
}

std::string stored_token() {
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
    if (const std::string token = std::string(trimmed(environment_value(name))); !token.empty())
      return token;
  const std::string named = environment_value("HF_TOKEN_PATH");
  const fs::path file = named.empty() ? hugging_face_home() / "token" : fs::path(named);
  std::error_code error;
  return fs::is_regular_file(file, error) ? std::string(trimmed(read_text(file, 1 << 16))) : "";
}

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}
bool may_pass(int status) {
  return status == 0 || status == 408 || status == 429 || status >= 500;
}

// The URL of `Link: <URL>; rel="next"`.
std::string next_page(const std::string& link) {
  for (size_t at = link.find('<'); at != std::string::npos; at = link.find('<', at + 1)) {
    const size_t end = link.find('>', at), stop = link.find('<', at + 1);
    if (end == std::string::npos) break;
    if (link.substr(end, stop - end).find("rel=\"next\"") != std::string::npos)
      return link.substr(at + 1, end - at - 1);
  }
  return {};
}

bool is_sum(const std::string& text) {
  return (text.size() == 40 || text.size() == 64) &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Names that stay within a folder, on every system.
bool is_plain_path(const std::string& path) {
  if (path.empty() || path.size() > 1000 || path.front() == '/' ||
      path.find_first_of(std::string_view("\\:\0", 3)) != std::string::npos)
    return false;
  for (const fs::path& name : fs::path(path))
    if (name == ".." || name == "." || name.empty()) return false;
  return true;
}

HubFile file_of(const nlohmann::json& entry) {
  HubFile file{.path = entry.at("path"), .bytes = entry.at("size"), .sum = entry.at("oid")};
  if (const auto large = entry.find("lfs"); large != entry.end() && large->is_object()) {
    file.sum = large->at("oid");
    file.bytes = large->at("size");
  }
  require(is_plain_path(file.path), Fault::file,
          "the hub lists a file named '{}', which is refused", file.path);
  require(is_sum(file.sum) && file.bytes >= 0, Fault::peer,
          "the hub lists {} with {} bytes and the checksum '{}'; expected one of 40 or 64 digits",
          file.path, file.bytes, file.sum);
  return file;
}

std::string reason_of(const HttpAnswer& answer) {
  return answer.status == 0 ? answer.failure : fmt::format("the server answers {}", answer.status);
}

}  // namespace

HubAccess hub_access() {
  HubAccess access{.endpoint = environment_value("HF_ENDPOINT"), .token = stored_token()};
  if (access.endpoint.empty()) access.endpoint = "https://huggingface.co";
  while (access.endpoint.ends_with('/')) access.endpoint.pop_back();
  return access;
}

fs::path hub_cache() {
  const std::string named = environment_value("HF_HUB_CACHE");
  return named.empty() ? hugging_face_home() / "hub" : fs::path(named);
}

Hub::Hub(HubAccess access, Note note, StopToken stop)
    : access_(std::move(access)),
      note_(std::move(note)),
      stop_(std::move(stop)),
      http_(access_.timeout, [stop = stop_] { return stop.requested(); }) {}

// The token goes to the endpoint alone. An encrypted connection is not left for an open one.
HttpAnswer Hub::follow(const std::string& url, int64_t first, const Http::Receive& receive) {
  const std::string home = origin_of(access_.endpoint);
  std::string at = url;
  for (int hop = 0; hop <= kMostRedirects; ++hop) {
    const bool at_home = origin_of(at) == home;
    HttpAnswer answer = http_.send(
        {.url = at, .token = at_home ? access_.token : "", .first_byte = first}, receive);
    if (!is_redirect(answer.status)) {
      // A link to a file's storage has expired: asking the hub again gives a new one.
      if (!at_home && (answer.status == 401 || answer.status == 403)) {
        answer.failure = fmt::format("the storage answers {}", answer.status);
        answer.status = 0;
      }
      return answer;
    }
    const std::string to = resolve_url(at, answer.header("location"));
    require(!at.starts_with("https:") || to.starts_with("https:"), Fault::peer,
            "{} redirects to {}, which is not encrypted; refused", origin_of(at), origin_of(to));
    at = to;
  }
  fail(Fault::peer, "{}: more than {} redirections", without_password(url), kMostRedirects);
}

void Hub::check_refusal(const HttpAnswer& answer, const std::string& repository,
                        const std::string& what) const {
  const std::string code = answer.header("x-error-code");
  const std::string page = without_password(access_.endpoint) + "/" + repository;
  const bool has_token = !access_.token.empty();
  if (code == "GatedRepo" || answer.status == 403)
    fail(Fault::usage, "{}: access is restricted; accept its terms at {}{}", repository, page,
         has_token ? ", with the account of your token, which does not have access yet"
                   : " and set HF_TOKEN to a token of your account (Settings, Access Tokens)");
  if (code == "RevisionNotFound")
    fail(Fault::usage, "{}: has no revision '{}'; {} lists its branches and tags", repository, what,
         page + "/tree/main");
  if (code == "EntryNotFound") fail(Fault::usage, "{}: has no file {}", repository, what);
  if (answer.status == 401 && has_token && code.empty())
    fail(Fault::usage,
         "{}: the hub does not accept your token (HF_TOKEN, or the file that 'hf auth login' "
         "wrote); "
         "renew it, or unset it for public models",
         repository);
  // The hub does not tell strangers whether a private repository exists.
  if (answer.status == 401 || answer.status == 404 || code == "RepoNotFound")
    fail(Fault::usage, "{}: not found at {}{}", repository, without_password(access_.endpoint),
         has_token ? ", or the account of your token has no access to it"
                   : "; if it is private or restricted, set HF_TOKEN to a token of your account "
                     "(Settings, Access Tokens)");
  fail(Fault::peer, "{}: expected {}, but the hub answers {}: {}", repository, what, answer.status,
       answer.body.substr(0, 200));
}

void Hub::pause(const HttpAnswer& answer, const std::string& what) {
  ++failures_;
  require(failures_ < kMostFailures, Fault::peer,
          "{}: {}, {} times in a row; the same command goes on from here later", what,
          reason_of(answer), failures_);
  double seconds = kFirstPause * static_cast<double>(1 << (failures_ - 1));
  if (answer.retry_after > 0) seconds = std::min(answer.retry_after, kLongestPause);
  note_(fmt::format("{}: {}; again in {}", what, reason_of(answer), format_duration(seconds)));
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!stopped() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  require(!stopped(), Fault::peer, "interrupted");
}

std::string Hub::get_text(const std::string& url, const std::string& repository,
                          std::string* next) {
  for (failures_ = 0;;) {
    std::string text;
    const HttpAnswer answer =
        follow(url, 0, [&](const HttpAnswer&, std::span<const std::byte> bytes) {
          text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          return text.size() <= kMostText && !stopped();
        });
    require(!stopped(), Fault::peer, "interrupted");
    if (answer.status == 200) {
      if (next != nullptr) *next = next_page(answer.header("link"));
      return text;
    }
    if (!may_pass(answer.status)) check_refusal(answer, repository, url.substr(url.rfind('/') + 1));
    pause(answer, repository);
  }
}

HubTree Hub::tree(const std::string& repository, const std::string& revision) {
  const std::string base = access_.endpoint + "/api/models/" + percent_encoded(repository);
  std::string what = "its revision";
  const auto refuse = [&](const std::exception& e) {
    fail(Fault::peer, "{}: expected {} in JSON, but {} answers something else: {}", repository,
         what, without_password(access_.endpoint), e.what());
  };
  const auto parsed = [&](const std::string& text) {
    try {
      return parse_json(text, "the answer");
    } catch (const Error& e) {
      refuse(e);
    }
    return nlohmann::json();
  };
  try {
    // "refs/pr/1" is one part of the path.
    const std::string slashless = percent_encoded(revision, "-._~");
    HubTree tree;
    tree.commit = parsed(get_text(base + "/revision/" + slashless, repository, nullptr)).at("sha");
    require(is_sum(tree.commit), Fault::peer, "{}: expected a commit, but the hub answers '{}'",
            repository, tree.commit);
    what = "its files";
    std::string next = base + "/tree/" + tree.commit + "?recursive=true&expand=false";
    for (int pages = 0; !next.empty() && pages < 1000; ++pages) {
      const std::string here = next;
      for (const auto& entry : parsed(get_text(here, repository, &next)))
        if (entry.at("type") == "file") tree.files.push_back(file_of(entry));
      if (!next.empty()) next = resolve_url(here, next);
    }
    return tree;
  } catch (const nlohmann::json::exception& e) {  // a value is missing or has another type
    refuse(e);
  }
  return {};
}

void Hub::fetch(const std::string& repository, const std::string& commit, const std::string& path,
                int64_t first, const Sink& sink) {
  const std::string url = fmt::format("{}/{}/resolve/{}/{}", access_.endpoint,
                                      percent_encoded(repository), commit, percent_encoded(path));
  for (failures_ = 0;;) {
    bool begun = false, elsewhere = false;
    HttpAnswer answer =
        follow(url, first, [&](const HttpAnswer& so_far, std::span<const std::byte> bytes) {
          if (!begun) {
            int64_t from = 0;
            if (so_far.status == 206) {
              const std::string range = so_far.header("content-range");  // "bytes 5-9/10"
              from = range.starts_with("bytes ") ? std::atoll(range.c_str() + 6) : first;
              elsewhere = from != first;
              if (elsewhere) return false;
            }
            begun = true;
            sink.begin(from);
          }
          return !stopped() && sink.receive(bytes);
        });
    require(!stopped(), Fault::peer, "interrupted");
    if (begun) return;
    if (elsewhere) {
      answer.status = 0;
      answer.failure = "the server sends other bytes than it was asked for";
    }
    if (answer.status == 200 || answer.status == 206) {  // without a byte
      sink.begin(answer.status == 206 ? first : 0);
      return;
    }
    // 416: there is nothing from there on.
    if (answer.status == 416) return sink.begin(0);
    if (!may_pass(answer.status)) check_refusal(answer, repository, path);
    pause(answer, path);
  }
}

}  // namespace capstan
