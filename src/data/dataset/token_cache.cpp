#include "data/dataset/token_cache.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <optional>

#include "base/checksum.h"
#include "base/error.h"
#include "base/file_reader.h"
#include "base/files.h"
#include "base/log.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kVersion = 1;
constexpr uint32_t kByteOrder = 0x01020304;
constexpr std::string_view kMagic = "CAPTOKEN";
constexpr int64_t kAlign = 64;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t byte_order;
  char key[64];
  int64_t samples, tokens, spans, zero;
  char payload_sum[64];
  char header_sum[64];  // of all preceding fields
  char zeros[16];
};
static_assert(sizeof(Header) == 256 && offsetof(Header, header_sum) == 176);
static_assert(sizeof(SampleOrigin) == 16 && sizeof(TargetSpan) == 8);
static_assert(std::endian::native == std::endian::little, "the format is little endian");

template <size_t N>
std::string_view text_of(const char (&field)[N]) {
  return {field, N};
}

template <size_t N>
void put(char (&field)[N], std::string_view text) {
  std::memcpy(field, text.data(), std::min(N, text.size()));
}

std::string header_sum(const Header& header) {
  return sha256_of({reinterpret_cast<const char*>(&header), offsetof(Header, header_sum)});
}

int64_t aligned(int64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

// Offset of each array in the payload.
struct Layout {
  int64_t token_begin, span_begin, origins, tokens, spans, end;

  // Nothing if the counts are impossible.
  static std::optional<Layout> of(int64_t s, int64_t t, int64_t p) {
    constexpr int64_t kMost = int64_t{1} << 48;
    for (const int64_t count : {s, t, p})
      if (count < 0 || count > kMost) return std::nullopt;
    Layout l{};
    l.token_begin = sizeof(Header);
    l.span_begin = l.token_begin + aligned((s + 1) * 8);
    l.origins = l.span_begin + aligned((s + 1) * 8);
    l.tokens = l.origins + aligned(s * int64_t{sizeof(SampleOrigin)});
    l.spans = l.tokens + aligned(t * 4);
    l.end = l.spans + aligned(p * int64_t{sizeof(TargetSpan)});
    return l;
  }
};

class CachedSamples final : public Samples {
 public:
  CachedSamples(const fs::path& path, std::vector<std::string> files)
      : file_(path), files_(std::move(files)) {}

  // Why the file cannot be used, or nothing.
  std::string check(const std::string& key) {
    const auto bytes = file_.bytes();
    Header h;
    if (bytes.size() < sizeof h) return "it is too short";
    std::memcpy(&h, bytes.data(), sizeof h);
    if (text_of(h.magic) != kMagic) return "it is not a token cache";
    if (h.byte_order != kByteOrder || h.version != kVersion)
      return "it was written by another version";
    if (text_of(h.header_sum) != header_sum(h)) return "its header is damaged";
    if (text_of(h.key) != key) return "it belongs to other data";
    const auto layout = Layout::of(h.samples, h.tokens, h.spans);
    if (!layout || layout->end != std::ssize(bytes)) return "it has the wrong length";
    Sha256 sum;
    sum.update(bytes.subspan(sizeof h));
    if (text_of(h.payload_sum) != sum.hex()) return "its contents are damaged";
    view(h, *layout);
    return consistent() ? "" : "its contents are inconsistent";
  }

  const SampleArrays& arrays() const override { return arrays_; }
  const std::vector<std::string>& files() const override { return files_; }

 private:
  template <class T>
  std::span<const T> array(int64_t begin, int64_t count) const {
    return {reinterpret_cast<const T*>(file_.bytes().data() + begin), static_cast<size_t>(count)};
  }

  void view(const Header& h, const Layout& l) {
    arrays_.token_begin = array<int64_t>(l.token_begin, h.samples + 1);
    arrays_.span_begin = array<int64_t>(l.span_begin, h.samples + 1);
    arrays_.origins = array<SampleOrigin>(l.origins, h.samples);
    arrays_.tokens = array<int32_t>(l.tokens, h.tokens);
    arrays_.spans = array<TargetSpan>(l.spans, h.spans);
  }

  // The checksum shows that the bytes are those that were written; this check, that they were
  // valid.
  bool consistent() const {
    const SampleArrays& a = arrays_;
    if (a.token_begin.front() != 0 || a.token_begin.back() != std::ssize(a.tokens)) return false;
    if (a.span_begin.front() != 0 || a.span_begin.back() != std::ssize(a.spans)) return false;
    for (size_t i = 0; i < a.origins.size(); ++i) {
      const int64_t n = a.token_begin[i + 1] - a.token_begin[i];
      if (n < 2 || a.span_begin[i] > a.span_begin[i + 1]) return false;
      if (a.span_begin[i + 1] > std::ssize(a.spans)) return false;
      int64_t at = 0;
      for (int64_t s = a.span_begin[i]; s < a.span_begin[i + 1]; ++s) {
        const TargetSpan& span = a.spans[static_cast<size_t>(s)];
        if (span.begin < at || span.end <= span.begin || span.end > n) return false;
        at = span.end;
      }
    }
    return true;
  }

  FileBytes file_;
  std::vector<std::string> files_;
  SampleArrays arrays_;
};

// Passes arrays to a consumer, padded with zeros to a multiple of kAlign.
template <class Consumer>
void each_array(const Samples& samples, const Consumer& consume) {
  const SampleArrays& a = samples.arrays();
  static constexpr std::array<std::byte, kAlign> kZeros{};
  const auto one = [&](std::span<const std::byte> bytes) {
    consume(bytes);
    const int64_t size = std::ssize(bytes);
    consume(std::span(kZeros).first(static_cast<size_t>(aligned(size) - size)));
  };
  one(std::as_bytes(a.token_begin));
  one(std::as_bytes(a.span_begin));
  one(std::as_bytes(a.origins));
  one(std::as_bytes(a.tokens));
  one(std::as_bytes(a.spans));
}

void write_file(const fs::path& path, const std::string& key, const Samples& samples) {
  const SampleArrays& a = samples.arrays();
  Header h{};
  put(h.magic, kMagic);
  h.version = kVersion;
  h.byte_order = kByteOrder;
  put(h.key, key);
  h.samples = a.size();
  h.tokens = std::ssize(a.tokens);
  h.spans = std::ssize(a.spans);
  Sha256 sum;
  each_array(samples, [&](std::span<const std::byte> bytes) { sum.update(bytes); });
  put(h.payload_sum, sum.hex());
  put(h.header_sum, header_sum(h));

  // Write under a name of this process first: another process may be writing the same file.
  const fs::path own = path.string() + "." + std::to_string(::getpid());
  const auto layout = Layout::of(h.samples, h.tokens, h.spans);
  NewFile file(own, layout->end);
  file.append(std::as_bytes(std::span(&h, 1)));
  each_array(samples, [&](std::span<const std::byte> bytes) { file.append(bytes); });
  file.commit();
  std::error_code error;
  fs::rename(own, path, error);
  require(!error, Fault::file, "{}: cannot rename to {}: {}", own.string(), path.string(),
          error.message());
}

fs::path path_of(const fs::path& folder, const std::string& key) {
  return folder / (key + ".tokens");
}

}  // namespace

std::string TokenCacheKey::hex() const {
  Sha256 sum;
  const auto add = [&](std::string_view text) {
    sum.update(std::to_string(text.size()) + ":");
    sum.update(text);
  };
  add(fmt::format("capstan tokens {} {} {}", kVersion, mask_prompt, max_seq_length));
  for (const auto* part : {&contents, &tokenizer, &rendering}) add(*part);
  return sum.hex();
}

fs::path token_cache_folder() {
  return cache_folder("tokens");
}

std::shared_ptr<const Samples> read_token_cache(const fs::path& folder, const TokenCacheKey& key,
                                                std::vector<std::string> files) {
  const std::string hex = key.hex();
  const fs::path path = path_of(folder, hex);
  std::error_code error;
  if (folder.empty() || !fs::exists(path, error)) return nullptr;
  try {
    auto samples = std::make_shared<CachedSamples>(path, std::move(files));
    const std::string reason = samples->check(hex);
    if (reason.empty()) return samples;
    log::warn("{}: {}; tokenizing the data again", path.string(), reason);
  } catch (const Error& e) {
    log::warn("{}; tokenizing the data again", e.what());
  }
  return nullptr;
}

bool write_token_cache(const fs::path& folder, const TokenCacheKey& key, const Samples& samples) {
  static std::atomic<bool> said = false;
  try {
    require(!folder.empty(), Fault::file, "neither CAPSTAN_CACHE nor HOME is set");
    std::error_code error;
    fs::create_directories(folder, error);
    require(!error, Fault::file, "{}: cannot create the folder: {}", folder.string(),
            error.message());
    const std::string hex = key.hex();
    write_file(path_of(folder, hex), hex, samples);
    return true;
  } catch (const Error& e) {
    if (!said.exchange(true))
      log::warn("the token cache cannot be written: {}. Set CAPSTAN_CACHE to a writable folder",
                e.what());
    return false;
  }
}

}  // namespace capstan
