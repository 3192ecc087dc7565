#include "hub/download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file_reader.h"
#include "base/output_file.h"
#include "base/units.h"
#include "hub/needed_files.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

constexpr int kMostIdle = 6, kMostDamaged = 2;
constexpr size_t kBlock = 1 << 20;

fs::path own_folder(const fs::path& folder) {
  return folder / ".cache" / "huggingface" / "download";
}

// What a file's checksum is computed from: git puts its kind and size in front.
Checksum sum_for(const HubFile& file) {
  if (file.sum.size() == 64) return Checksum(Checksum::Kind::sha256);
  Checksum sum(Checksum::Kind::sha1);
  sum.update(fmt::format("blob {}", file.bytes));
  sum.update(std::string_view("\0", 1));
  return sum;
}

// Adds the first bytes of a file.
void add(Checksum& sum, const fs::path& path, int64_t bytes) {
  const FileReader file(path);
  std::vector<std::byte> block(kBlock);
  for (int64_t at = 0; at < bytes; at += std::ssize(block)) {
    const auto piece =
        std::span(block).first(static_cast<size_t>(std::min<int64_t>(kBlock, bytes - at)));
    file.read(at, piece);
    sum.update(piece);
  }
}

bool has_sum(const fs::path& path, const HubFile& file) {
  std::error_code error;
  if (static_cast<int64_t>(fs::file_size(path, error)) != file.bytes || error) return false;
  Checksum sum = sum_for(file);
  add(sum, path, file.bytes);
  return sum.hex() == file.sum;
}

// The part of a file that has arrived, with the checksum of it.
class Part {
 public:
  Part(fs::path path, const HubFile& file)
      : path_(std::move(path)), file_(file), sum_(sum_for(file)) {
    fs::create_directories(path_.parent_path());
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd_ < 0) fail_with_errno("create it");
    struct stat status {};
    if (::fstat(fd_, &status) != 0) fail_with_errno("read its size");
    if (status.st_size > file.bytes) {
      restart();
    } else {
      have_ = status.st_size;
      add(sum_, path_, have_);
    }
  }
  ~Part() { ::close(fd_); }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  int64_t have() const { return have_; }
  bool complete() const { return have_ == file_.bytes; }

  void restart() {
    if (::ftruncate(fd_, 0) != 0) fail_with_errno("truncate it");
    have_ = 0;
    sum_ = sum_for(file_);
  }

  // False if that is more than the file has.
  bool append(std::span<const std::byte> bytes) {
    if (have_ + std::ssize(bytes) > file_.bytes) return false;
    sum_.update(bytes);
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), have_);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail_with_errno("write to it");
      have_ += written;
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
    return true;
  }

  // The checksum of a complete part, which is then on the disk.
  std::string sum() {
    if (::fsync(fd_) != 0) fail_with_errno("write it to the disk");
    return sum_.hex();
  }

 private:
  [[noreturn]] void fail_with_errno(const char* doing) const {
    fail(Fault::file, "{}: cannot {}: {}", path_.string(), doing, std::strerror(errno));
  }

  fs::path path_;
  const HubFile& file_;
  Checksum sum_;
  int64_t have_ = 0;
  int fd_ = -1;
};

// Whether a file is as it was when its metadata were written.
bool is_as_noted(const fs::path& file, const fs::path& metadata) {
  std::error_code error;
  const auto noted = fs::last_write_time(metadata, error);
  return !error && fs::last_write_time(file, error) <= noted && !error;
}

void pause(int idle, const StopToken& stop) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(250) * (1 << idle);
  while (!stop.requested() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

}  // namespace

Download::Download(HubAccess access, DownloadOptions options, Note note, StopToken stop)
    : access_(std::move(access)),
      options_(std::move(options)),
      note_(std::move(note)),
      stop_(std::move(stop)),
      tree_(Hub(access_, note_, stop_).tree(options_.repository, options_.revision)),
      lock_(own_folder(options_.folder)) {
  int64_t missing = 0;
  std::vector<fs::path> others;
  for (HubFile& f : needed_files(options_.repository, tree_, options_.tokenizer_only)) {
    check_stopped();
    File& file = files_.emplace_back();
    file.what = std::move(f);
    std::error_code error;
    if (is_present(file.what)) {
      file.have = file.what.bytes;
      file.state = File::State::complete;
    } else if (const auto part = fs::file_size(part_of(file.what), error); !error) {
      file.have = std::min<int64_t>(static_cast<int64_t>(part), file.what.bytes);
    }
    missing += file.what.bytes - file.have;
    const fs::path path = options_.folder / file.what.path;
    if (file.state != File::State::complete && fs::exists(fs::symlink_status(path, error)) &&
        !is_as_noted(path, metadata_of(file.what)))
      others.push_back(path);
  }
  earlier_ = have_bytes();
  require_space(options_.folder, missing);
  if (others.empty()) return;
  const fs::path moved = move_to_previous(options_.folder, others);
  note_(fmt::format("moved {}, not as the hub has {}, to {}", count(std::ssize(others), "file"),
                    others.size() == 1 ? "it" : "them", moved.string()));
}

void Download::check_stopped() const {
  require(!stop_.requested(), Fault::peer, "interrupted");
}

int64_t Download::total_bytes() const {
  int64_t bytes = 0;
  for (const File& f : files_) bytes += f.what.bytes;
  return bytes;
}
int64_t Download::have_bytes() const {
  int64_t bytes = 0;
  for (const File& f : files_) bytes += f.have;
  return bytes;
}

fs::path Download::part_of(const HubFile& file) const {
  return own_folder(options_.folder) / (file.path + "." + file.sum + ".incomplete");
}
fs::path Download::metadata_of(const HubFile& file) const {
  return own_folder(options_.folder) / (file.path + ".metadata");
}

// As the metadata say, if the file did not change after they were written; else by its checksum.
bool Download::is_present(const HubFile& file) {
  const fs::path path = options_.folder / file.path;
  std::error_code error;
  if (static_cast<int64_t>(fs::file_size(path, error)) != file.bytes || error) return false;
  if (const fs::path metadata = metadata_of(file); fs::is_regular_file(metadata, error)) {
    const std::string text = read_text(metadata, 1 << 16);
    const bool same = text.find("\n" + file.sum + "\n") != std::string::npos;
    if (same && is_as_noted(path, metadata)) {
      if (!text.starts_with(tree_.commit)) write_metadata(file);
      return true;
    }
  }
  if (!has_sum(path, file)) return false;
  write_metadata(file);
  return true;
}

// Three lines: commit, checksum and time, as huggingface_hub writes them.
void Download::write_metadata(const HubFile& file) const {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  write_text(metadata_of(file), fmt::format("{}\n{}\n{:.6f}\n", tree_.commit, file.sum, now));
}

// It may have come there by another program.
bool Download::take_from_cache(File& file) {
  std::string name = "models--" + options_.repository;
  for (size_t at; (at = name.find('/')) != std::string::npos;) name.replace(at, 1, "--");
  const fs::path blob = hub_cache() / name / "blobs" / file.what.sum;
  std::error_code error;
  if (static_cast<int64_t>(fs::file_size(blob, error)) != file.what.bytes || error) return false;
  try {
    Part part(part_of(file.what), file.what);
    part.restart();
    file.have = 0;
    const FileReader from(blob);
    std::vector<std::byte> block(kBlock);
    for (int64_t at = 0; at < file.what.bytes; at += std::ssize(block)) {
      const auto piece = std::span(block).first(
          static_cast<size_t>(std::min<int64_t>(kBlock, file.what.bytes - at)));
      from.read(at, piece);
      part.append(piece);
      file.have += std::ssize(piece);
      check_stopped();
    }
    if (part.sum() == file.what.sum) return true;
    part.restart();
    note_(fmt::format("{}: is damaged in {}; downloading it", file.what.path, blob.string()));
  } catch (const Error& e) {
    check_stopped();
    note_(fmt::format("{}: cannot be taken from {}: {}", file.what.path, blob.string(), e.what()));
  }
  file.have = 0;
  return false;
}

void Download::install(const HubFile& file) const {
  const fs::path path = options_.folder / file.path;
  fs::create_directories(path.parent_path());
  std::error_code error;
  fs::rename(part_of(file), path, error);
  require(!error, Fault::file, "{}: cannot be renamed to {}: {}", part_of(file).string(),
          path.string(), error.message());
  sync_folder(path.parent_path());
  write_metadata(file);
}

void Download::fetch(Hub& hub, File& file) {
  const HubFile& what = file.what;
  if (take_from_cache(file)) return install(what);
  for (int damaged = 0;;) {
    Part part(part_of(what), what);
    int64_t best = part.have();
    for (int idle = 0; !part.complete() || what.bytes == 0;) {
      bool too_many = false;
      hub.fetch(options_.repository, tree_.commit, what.path, part.have(),
                {.begin =
                     [&](int64_t first) {
                       if (first != part.have()) part.restart();
                       file.have = part.have();
                     },
                 .receive =
                     [&](std::span<const std::byte> bytes) {
                       too_many = !part.append(bytes);
                       file.have = part.have();
                       return !too_many;
                     }});
      if (too_many) part.restart();
      if (part.complete()) break;
      idle = part.have() > best ? 0 : idle + 1;
      best = std::max(best, part.have());
      require(idle < kMostIdle, Fault::peer,
              "{}: the connection was cut {} times in a row; the same command goes on from here "
              "later",
              what.path, idle);
      if (idle > 0) pause(idle, stop_);
      check_stopped();
    }
    const std::string found = part.sum();
    if (found == what.sum) return install(what);
    part.restart();
    file.have = 0;
    ++damaged;
    require(damaged < kMostDamaged, Fault::file,
            "{}: expected a file with the checksum {}, but received one with {}, {} times; the "
            "connection or the hub damages it",
            what.path, what.sum, found, damaged);
    note_(
        fmt::format("{}: arrived damaged (its checksum differs); downloading it again", what.path));
  }
}

void Download::run(const std::function<void()>& tick) {
  std::mutex mutex;
  std::exception_ptr failure;
  std::atomic<int> running = 0;
  // Large files first, so that they do not come alone at the end; the configuration before them.
  std::vector<File*> queue;
  for (File& f : files_)
    if (f.state == File::State::waiting) queue.push_back(&f);
  std::stable_sort(queue.begin(), queue.end(), [](const File* a, const File* b) {
    const auto key = [](const File* f) {
      return std::pair(f->what.path != "config.json", -f->what.bytes);
    };
    return key(a) < key(b);
  });
  size_t next = 0;
  bool hopeless = false;  // the disk is full, say: other files would fail, too
  const auto work = [&] {
    std::optional<Hub> hub;
    for (;;) {
      File* file = nullptr;
      {
        const std::lock_guard lock(mutex);
        if (next < queue.size() && !stop_.requested() && !hopeless) file = queue[next++];
      }
      if (file == nullptr) break;
      try {
        if (!hub) hub.emplace(access_, note_, stop_);
        file->state = File::State::running;
        fetch(*hub, *file);
        file->state = File::State::complete;
      } catch (const Error& e) {
        file->state = File::State::waiting;
        const std::lock_guard lock(mutex);
        hopeless = hopeless || e.fault() == Fault::file || e.fault() == Fault::device;
        if (!failure) failure = std::current_exception();
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    }
    --running;
  };
  std::vector<std::thread> workers;
  running = std::min(options_.at_once, static_cast<int>(queue.size()));
  for (int i = running; i > 0; --i) workers.emplace_back(work);
  while (running > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(queue.size() > 1 ? 20 : 5));
    tick();
  }
  for (std::thread& w : workers) w.join();
  tick();
  check_stopped();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace capstan
