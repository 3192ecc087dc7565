#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <vector>

#include "base/files.h"
#include "hub/hub.h"

namespace capstan {

struct DownloadOptions {
  std::string repository;         // "org/name"
  std::string revision = "main";  // a branch, a tag or a commit
  std::filesystem::path folder;
  bool tokenizer_only = false;
  int at_once = 8;  // files
};

// One download of a model into a folder: the files that it needs (needed_files) at one commit, each
// verified before it gets its name. What was received stays in the folder's
// .cache/huggingface/download, whatever ends the download, and the next one goes on from there.
// `hf download` finds the same folder complete.
class Download {
 public:
  struct File {
    enum class State : uint8_t { waiting, running, complete };
    HubFile what;
    std::atomic<int64_t> have = 0;  // bytes
    std::atomic<State> state = State::waiting;
  };

  // Asks the hub what there is. Throws, before anything is downloaded, if the disk is too small.
  // Locks the folder. Moves files that have other contents, and not those that were downloaded, to
  // previous-N in the folder.
  Download(HubAccess access, DownloadOptions options, Note note, StopToken stop = {});

  // Fetches what is not there yet. Meanwhile calls tick() on this thread, many times a second. If
  // files fail, the others are fetched nevertheless; then the first failure is thrown.
  void run(const std::function<void()>& tick);

  const std::string& commit() const { return tree_.commit; }
  const std::list<File>& files() const { return files_; }
  int64_t total_bytes() const;
  int64_t have_bytes() const;
  // Of have_bytes, those that were there when it began.
  int64_t earlier_bytes() const { return earlier_; }

 private:
  void fetch(Hub& hub, File& file);
  bool is_present(const HubFile& file);
  bool take_from_cache(File& file);
  void check_stopped() const;
  void install(const HubFile& file) const;
  void write_metadata(const HubFile& file) const;
  std::filesystem::path part_of(const HubFile& file) const;
  std::filesystem::path metadata_of(const HubFile& file) const;

  HubAccess access_;
  DownloadOptions options_;
  Note note_;
  StopToken stop_;
  HubTree tree_;
  FolderLock lock_;
  std::list<File> files_;
  int64_t earlier_ = 0;
};

}  // namespace capstan
