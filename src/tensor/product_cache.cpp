#include "tensor/product_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file_reader.h"
#include "base/files.h"
#include "base/log.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kVersion = 1, kByteOrder = 0x01020304;
constexpr std::string_view kMagic = "CAPPRODS";

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t byte_order;
  char machine[64];
  int64_t products, zero;
  char sum[64];  // of the preceding fields and all records
};
struct Record {
  ProductKey key;
  ProductAlgorithm algorithm;
};
static_assert(sizeof(Header) == 160 && offsetof(Header, sum) == 96 && sizeof(Record) == 128);
static_assert(std::endian::native == std::endian::little, "the format is little endian");

std::string sum_of(const Header& header, std::span<const std::byte> records) {
  Sha256 sum;
  sum.update(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, sum)));
  sum.update(records);
  return sum.hex();
}

// Why the bytes cannot be used, or nothing.
std::string_view fault_of(std::span<const std::byte> bytes, const std::string& machine) {
  Header h;
  if (bytes.size() < sizeof h) return "it is too short";
  std::memcpy(&h, bytes.data(), sizeof h);
  if (std::string_view(h.magic, 8) != kMagic) return "it is no file of measured products";
  if (h.byte_order != kByteOrder || h.version != kVersion)
    return "it was written by another version";
  const auto records = bytes.subspan(sizeof h);
  if (std::string_view(h.sum, 64) != sum_of(h, records)) return "it is damaged";
  if (std::string_view(h.machine, 64) != machine) return "it belongs to another GPU";
  if (records.size() % sizeof(Record) != 0 ||
      records.size() / sizeof(Record) != static_cast<size_t>(h.products))
    return "its length is wrong";
  return "";
}

}  // namespace

// Held while the file is read and replaced. The lock is on a separate, permanent file, since the
// other one is replaced.
class ProductCache::Lock {
 public:
  explicit Lock(const fs::path& path)
      : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    require(fd_ >= 0, Fault::file, "{}: cannot open: {}", path.string(), std::strerror(errno));
    // Its holders need milliseconds. One that was stopped, or a file server that is gone, may keep
    // it for ever.
    const auto end = std::chrono::steady_clock::now() + kLongestWait;
    while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      const int reason = errno;
      const bool held = reason == EWOULDBLOCK || reason == EINTR;
      if (held && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        continue;
      }
      ::close(fd_);
      require(!held, Fault::file, "{}: another process has held this lock for {} s; end it",
              path.string(), kLongestWait.count());
      fail(Fault::file, "{}: cannot lock: {}", path.string(), std::strerror(reason));
    }
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() { ::close(fd_); }

  static constexpr std::chrono::seconds kLongestWait{3};
  static fs::path name_for(const fs::path& path) { return path.string() + ".lock"; }

 private:
  int fd_;
};

ProductCache::ProductCache(fs::path folder, std::string_view machine)
    : folder_(std::move(folder)), machine_(sha256_of(machine)) {
  if (folder_.empty()) return;
  path_ = folder_ / (machine_.substr(0, 16) + ".products");
  products_ = read();
}

ProductCache::Products ProductCache::read() const {
  std::error_code error;
  if (!fs::exists(path_, error)) return {};
  Products products;
  try {
    const FileBytes file(path_);
    const auto bytes = file.bytes();
    const std::string_view fault = fault_of(bytes, machine_);
    require(fault.empty(), Fault::file, "{}: {}", path_.string(), fault);
    std::vector<Record> records((bytes.size() - sizeof(Header)) / sizeof(Record));
    if (!records.empty())
      std::memcpy(records.data(), bytes.data() + sizeof(Header), records.size() * sizeof(Record));
    for (const Record& r : records) products.emplace(r.key, r.algorithm);
  } catch (const Error& e) {
    log::warn("{}; matrix products are measured again", e.what());
  }
  return products;
}

const ProductAlgorithm* ProductCache::find(const ProductKey& key) const {
  const auto it = products_.find(key);
  return it == products_.end() ? nullptr : &it->second;
}

bool ProductCache::writable() {
  if (writable_ != Writable::unknown) return writable_ == Writable::yes;
  try {
    require(!folder_.empty(), Fault::file, "neither CAPSTAN_CACHE nor HOME is set");
    std::error_code error;
    fs::create_directories(folder_, error);
    require(!error, Fault::file, "{}: cannot create the folder: {}", folder_.string(),
            error.message());
    const Lock lock(Lock::name_for(path_));
    writable_ = Writable::yes;
  } catch (const Error& e) {
    writable_ = Writable::no;
    log::warn(
        "matrix products are not measured, because the result cannot be kept: {}. Set "
        "CAPSTAN_CACHE to a folder for it",
        e.what());
  }
  return writable_ == Writable::yes;
}

ProductAlgorithm ProductCache::keep(const ProductKey& key, const ProductAlgorithm& algorithm) {
  require(!folder_.empty(), Fault::file, "no folder to keep measured products in");
  const Lock lock(Lock::name_for(path_));
  // The file takes precedence. Add what this process uses: it was in the file once, and belongs
  // there even if the file was deleted meanwhile.
  Products all = read();
  all.insert(products_.begin(), products_.end());
  const auto [it, is_new] = all.emplace(key, algorithm);
  const ProductAlgorithm result = it->second;
  if (is_new) write(all);
  products_.emplace(key, result);
  return result;
}

void ProductCache::write(const Products& products) const {
  std::vector<Record> records;
  records.reserve(products.size());
  for (const auto& [key, algorithm] : products) records.push_back({key, algorithm});
  const auto bytes = std::as_bytes(std::span(records));
  Header h{};
  std::memcpy(h.magic, kMagic.data(), kMagic.size());
  h.version = kVersion;
  h.byte_order = kByteOrder;
  std::memcpy(h.machine, machine_.data(), sizeof h.machine);
  h.products = std::ssize(records);
  std::memcpy(h.sum, sum_of(h, bytes).data(), sizeof h.sum);
  NewFile file(path_, std::ssize(bytes) + static_cast<int64_t>(sizeof h));
  file.append(std::as_bytes(std::span(&h, 1)));
  file.append(bytes);
  file.commit();
}

}  // namespace capstan
