#include "checkpoint/tensor_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/json_text.h"
#include "checkpoint/convert.h"

namespace capstan {
namespace {

// "3 missing (a, b, c)": enough names to see the pattern, and the count.
class Names {
 public:
  explicit Names(const char* what) : what_(what) {}
  void add(std::string name) {
    if (++count_ <= kShown) names_.push_back(std::move(name));
  }
  bool empty() const { return count_ == 0; }
  std::string text() const {
    return fmt::format("{} {} ({}{})", count_, what_, fmt::join(names_, ", "),
                       count_ > kShown ? ", …" : "");
  }

 private:
  static constexpr size_t kShown = 8;
  const char* what_;
  size_t count_ = 0;
  std::vector<std::string> names_;
};

std::vector<int64_t> shape_of(const Tensor& t) {
  std::vector<int64_t> shape;
  for (int d = 0; d < t.rank(); ++d) shape.push_back(t.dim(d));
  return shape;
}

bool has_type(const StoredTensor& found, const Tensor& to, bool same_type) {
  if (!found.type.dtype) return false;
  return same_type ? *found.type.dtype == to.dtype() : is_weight_type(*found.type.dtype);
}

// Blocks limit the host memory of a conversion or of a copy to a GPU.
constexpr int64_t kConvertedValues = 1 << 20, kCopiedValues = 1 << 23;

void read_tensor(Queue& q, const Tensor& to, const TensorEntry& from) {
  const DType type = *from.tensor->type.dtype;
  const bool same = type == to.dtype();
  if (same && q.device() == Device::cpu)
    return from.file->read_to(static_cast<std::byte*>(to.raw()), *from.tensor, 0, to.numel());
  const Tensor flat = to.reshape({to.numel()});
  std::vector<std::byte> room, converted;
  const int64_t step = same ? kCopiedValues : kConvertedValues;
  for (int64_t first = 0; first < to.numel(); first += step) {
    const int64_t n = std::min(step, to.numel() - first);
    auto bytes = from.file->read(*from.tensor, first, n, room);
    if (!same) {
      converted.resize(static_cast<size_t>(n * size_of(to.dtype())));
      convert(converted.data(), to.dtype(), bytes.data(), type, n);
      bytes = converted;
    }
    q.upload(flat.rows(first, n), bytes.data());
  }
}

}  // namespace

std::string differences(const std::vector<TensorToRead>& wanted, const TensorEntries& found,
                        const ReadRules& rules) {
  Names missing("missing"), extra("unexpected"), wrong("of another shape or type");
  std::set<std::string_view> known;
  for (const auto& [name, to] : wanted) {
    known.insert(name);
    const auto it = found.find(name);
    if (it == found.end()) {
      missing.add(name);
      continue;
    }
    const StoredTensor& tensor = *it->second.tensor;
    if (tensor.shape == shape_of(to) && has_type(tensor, to, rules.same_type)) continue;
    wrong.add(fmt::format(
        "{}: expected {} of {}, found {} of {}", name, to_string(shape_of(to)),
        rules.same_type ? StoredType(to.dtype()).name : std::string_view("F32, BF16 or F16"),
        to_string(tensor.shape), tensor.type.name));
  }
  for (const auto& [name, _] : found)
    if (!known.contains(name) && !(rules.may_ignore && rules.may_ignore(name)))
      extra.add(in_quotes(name));
  std::vector<std::string> problems;
  for (const Names* names : {&missing, &extra, &wrong})
    if (!names->empty()) problems.push_back(names->text());
  return fmt::format("{}", fmt::join(problems, "; "));
}

void read_tensors(Queue& q, const std::vector<TensorToRead>& wanted, const TensorEntries& found) {
  if (q.device() == Device::sim) return;
  for (const auto& [name, to] : wanted) read_tensor(q, to, found.find(name)->second);
}

}  // namespace capstan
