#include "checkpoint/torch_file.h"

#include <algorithm>

#include "base/error.h"
#include "base/json_text.h"
#include "checkpoint/pickle.h"
#include "checkpoint/zip_entries.h"

namespace capstan {
namespace {

using Entries = std::map<std::string, ZipEntry, std::less<>>;

std::string text_at(const FileReader& file, int64_t begin, int64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  file.read(begin, std::as_writable_bytes(std::span(text)));
  return text;
}

void require_zip(std::string_view file, const std::string& where) {
  if (file.starts_with("PK\x03\x04")) return;
  require(!file.starts_with('\x80'), Fault::file,
          "{}: expected a zip archive, found a bare pickle, as written by PyTorch before 1.6; if "
          "you trust the file, rewrite it: torch.save(torch.load(FILE, weights_only=True), FILE)",
          where);
  require(!file.starts_with("version https://git-lfs"), Fault::file,
          "{}: this is a Git LFS pointer: fetch the file itself with `git lfs pull`", where);
  fail(Fault::file,
       "{}: expected a zip archive of torch.save, found something else; download or copy it again",
       where);
}

// "NAME" of the archive's one NAME/data.pkl.
std::string find_root(const Entries& entries, const std::string& where) {
  for (const auto& [name, _] : entries)
    if (name.ends_with("/data.pkl")) return name.substr(0, name.size() - sizeof("/data.pkl") + 1);
  fail(Fault::file, "{}: expected data.pkl in the archive of torch.save, found none of {} files",
       where, entries.size());
}

bool is_row_major(const PickledTensor& t) {
  int64_t stride = 1;
  for (size_t d = t.shape.size(); d-- > 0;) {
    if (t.shape[d] != 1 && t.strides[d] != stride) return false;
    stride *= t.shape[d];
  }
  return true;
}

StoredTensor place(const PickledTensor& t, const ZipEntry& storage) {
  StoredTensor out{t.name, t.type, t.shape, 0, 0, {}};
  out.begin = storage.begin + t.first * t.type.size;
  out.end = out.begin;
  if (out.numel() == 0) return out;
  int64_t last = 0;  // of the view, counted from its first value
  for (size_t d = 0; d < t.shape.size(); ++d) last += (t.shape[d] - 1) * t.strides[d];
  out.end += (last + 1) * t.type.size;
  if (!is_row_major(t)) out.strides = t.strides;
  return out;
}

}  // namespace

TorchFile::TorchFile(const std::filesystem::path& path) : TensorFile(path) {
  constexpr int64_t kStart = 64;
  const std::string where = path.string(), little = "little";
  require_zip(text_at(file_, 0, std::min(kStart, file_.size())), where);
  const Entries entries = read_zip_entries(
      file_.size(), [&](int64_t at, std::span<std::byte> to) { file_.read(at, to); }, where);
  const std::string root = find_root(entries, where);
  const auto order = entries.find(root + "/byteorder");
  require(order == entries.end() ||
              (order->second.bytes == std::ssize(little) &&
               text_at(file_, order->second.begin, order->second.bytes) == little),
          Fault::file, "{}: expected little-endian numbers, found another byte order", where);
  const ZipEntry pickle = entries.at(root + "/data.pkl");
  require(pickle.bytes <= kLargestPickle, Fault::file,
          "{} (data.pkl): expected a pickle of at most {} bytes, found {}; this is not a "
          "dictionary of tensors",
          where, kLargestPickle, pickle.bytes);
  const std::string pickled = text_at(file_, pickle.begin, pickle.bytes);
  const auto text = std::as_bytes(std::span(pickled));
  for (const PickledTensor& t : read_pickle(text, where + " (data.pkl)")) {
    const auto storage = entries.find(root + "/data/" + t.storage);
    require(storage != entries.end(), Fault::file,
            "{}: {}: expected its data in data/{}, found no such file in the archive", where,
            in_quotes(t.name), in_quotes(t.storage));
    require(storage->second.bytes / t.type.size == t.storage_values &&
                storage->second.bytes % t.type.size == 0,
            Fault::file, "{}: {}: expected {} values of {} in data/{}, found {} bytes", where,
            in_quotes(t.name), t.storage_values, t.type.name, t.storage, storage->second.bytes);
    tensors_.push_back(place(t, storage->second));
  }
}

}  // namespace capstan
