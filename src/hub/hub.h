#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/stop_token.h"
#include "hub/http.h"

// The Hugging Face Hub's protocol.
namespace capstan {

struct HubAccess {
  std::string endpoint;  // without a slash at its end
  std::string token;     // never sent to another origin than the endpoint's; empty: none
  double timeout = 30;   // seconds without a byte after which a connection is cut
};
// HF_ENDPOINT; HF_TOKEN, else the file of `hf auth login` (HF_TOKEN_PATH, HF_HOME/token).
HubAccess hub_access();
// HF_HUB_CACHE, else HF_HOME/hub: where other programs keep what they downloaded.
std::filesystem::path hub_cache();

struct HubFile {
  std::string path;  // within the repository
  int64_t bytes = 0;
  // 64 hexadecimal digits: SHA-256 (of large files); 40: git's SHA-1 (of small ones).
  std::string sum = {};
};
struct HubTree {
  std::string commit;
  std::vector<HubFile> files;
};

// Told to a person: a transfer that failed and will be tried again, say. From any thread.
using Note = std::function<void(const std::string&)>;

// What failed in the network is tried again, after pauses that grow, for about half a minute
// without progress; then Fault::peer. The hub's refusals are Fault::usage and say what to do.
// Belongs to one thread.
class Hub {
 public:
  // Ends its work with Fault::peer soon after `stop` is requested.
  Hub(HubAccess access, Note note, StopToken stop = {});

  // What a model's repository has at a revision (a branch, a tag or a commit).
  HubTree tree(const std::string& repository, const std::string& revision);

  // The bytes of a file from `first` on. begin() gets the number of the byte with which they really
  // begin, which is 0 if the hub does not resume; receive() gets the bytes, and returns false if
  // there are too many. May deliver fewer than there are: then the connection was cut.
  struct Sink {
    std::function<void(int64_t first)> begin;
    std::function<bool(std::span<const std::byte>)> receive;
  };
  void fetch(const std::string& repository, const std::string& commit, const std::string& path,
             int64_t first, const Sink& sink);

 private:
  HttpAnswer follow(const std::string& url, int64_t first, const Http::Receive& receive);
  std::string get_text(const std::string& url, const std::string& repository, std::string* next);
  void check_refusal(const HttpAnswer& answer, const std::string& repository,
                     const std::string& what) const;
  void pause(const HttpAnswer& answer, const std::string& what);
  bool stopped() const { return stop_.requested(); }

  HubAccess access_;
  Note note_;
  StopToken stop_;
  Http http_;
  int failures_ = 0;  // in a row, without a byte
};

}  // namespace capstan
