#include "checkpoint/tensor_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/json_text.h"
#include "checkpoint/convert.h"
#include "checkpoint/weight_sums.h"

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

std::vector<int64_t> sizes_of(const Shape& shape) {
  std::vector<int64_t> sizes;
  for (int d = 0; d < shape.rank(); ++d) sizes.push_back(shape[d]);
  return sizes;
}

bool has_type(const StoredTensor& found, DType wanted, bool same_type) {
  if (!found.type.dtype) return false;
  return same_type ? *found.type.dtype == wanted : is_weight_type(*found.type.dtype);
}

// Blocks limit the host memory of a conversion or of a copy to a GPU.
constexpr int64_t kConvertedValues = 1 << 20, kCopiedValues = 1 << 23;

// The sum of one piece of a tensor, if any are made.
class PieceSum {
 public:
  PieceSum(WeightSums* sums, const TensorEntry& from, std::string piece)
      : sums_(sums), tensor_(*from.tensor), piece_(std::move(piece)) {
    sum_.of = tensor_.nbytes();
  }
  // Values of the tensor, from its value `first` on.
  void add(int64_t first, std::span<const std::byte> bytes) {
    if (sums_ != nullptr) sum_.add(first * tensor_.type.size, bytes);
  }
  void end() const {
    if (sums_ != nullptr) sums_->add(tensor_.name, piece_, sum_);
  }

 private:
  WeightSums* sums_;
  const StoredTensor& tensor_;
  std::string piece_;
  WeightSums::Sum sum_;
};

// `to`: consecutive values from `at` on.
void read_values(Queue& q, const Tensor& to, int64_t at, const TensorEntry& from,
                 WeightSums* sums) {
  const DType type = *from.tensor->type.dtype;
  const bool same = type == to.dtype();
  PieceSum piece(sums, from, fmt::format("{} from {}", to.numel(), at));
  if (same && q.device() == Device::cpu) {
    auto* const bytes = static_cast<std::byte*>(to.raw());
    from.file->read_to(bytes, *from.tensor, at, to.numel());
    piece.add(at, {bytes, static_cast<size_t>(to.nbytes())});
    return piece.end();
  }
  std::vector<std::byte> room, converted;
  const int64_t step = same ? kCopiedValues : kConvertedValues;
  for (int64_t first = 0; first < to.numel(); first += step) {
    const int64_t n = std::min(step, to.numel() - first);
    auto bytes = from.file->read(*from.tensor, at + first, n, room);
    piece.add(at + first, bytes);
    if (!same) {
      converted.resize(static_cast<size_t>(n * size_of(to.dtype())));
      convert(converted.data(), to.dtype(), bytes.data(), type, n);
      bytes = converted;
    }
    q.upload(to.rows(first, n), bytes.data());
  }
  piece.end();
}

// Values of a share that are columns of the whole, from its value `at` on: whole rows are read,
// some at a time, and what belongs to the share is kept.
void read_columns(Queue& q, const Tensor& to, int64_t at, const TensorCut& cut,
                  const TensorEntry& from, WeightSums* sums) {
  const DType type = *from.tensor->type.dtype;
  PieceSum piece(sums, from,
                 fmt::format("{} from {} of columns {} of {} from {}", to.numel(), at, cut.width,
                             cut.columns, cut.first));
  const int64_t rows = std::max<int64_t>(1, kConvertedValues / cut.columns);
  std::vector<std::byte> room, kept, converted;
  for (int64_t done = 0; done < to.numel();) {
    const int64_t first = at + done;
    const int64_t n = std::min(to.numel() - done, rows * cut.width - first % cut.width);
    const int64_t begin = cut.in_whole(first), end = cut.in_whole(first + n - 1) + 1;
    const auto bytes = from.file->read(*from.tensor, begin, end - begin, room);
    kept.clear();
    cut.for_runs(first, n, [&](int64_t, int64_t in_whole, int64_t count) {
      const auto run = bytes.subspan(static_cast<size_t>((in_whole - begin) * size_of(type)),
                                     static_cast<size_t>(count * size_of(type)));
      piece.add(in_whole, run);
      kept.insert(kept.end(), run.begin(), run.end());
    });
    converted.resize(static_cast<size_t>(n * size_of(to.dtype())));
    convert(converted.data(), to.dtype(), kept.data(), type, n);
    q.upload(to.rows(done, n), converted.data());
    done += n;
  }
  piece.end();
}

}  // namespace

std::string differences(const std::vector<SavedTensor>& wanted, const TensorEntries& found,
                        const ReadRules& rules) {
  Names missing("missing"), extra("unexpected"), wrong("of another shape or type");
  std::set<std::string_view> known;
  for (const SavedTensor& t : wanted) {
    known.insert(t.name);
    const auto it = found.find(t.name);
    if (it == found.end()) {
      missing.add(t.name);
      continue;
    }
    const StoredTensor& tensor = *it->second.tensor;
    if (tensor.shape == sizes_of(t.shape) && has_type(tensor, t.type, rules.same_type)) continue;
    wrong.add(fmt::format(
        "{}: expected {} of {}, found {} of {}", t.name, to_string(sizes_of(t.shape)),
        rules.same_type ? StoredType(t.type).name : std::string_view("F32, BF16 or F16"),
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

void read_tensors(Queue& q, const std::vector<SavedTensor>& wanted, const TensorEntries& found,
                  WeightSums* sums) {
  if (q.device() == Device::sim) return;
  for (const SavedTensor& t : wanted)
    for (const SavedTensor::Piece& piece : t.pieces)
      if (const TensorEntry& entry = found.find(t.name)->second; t.cut.consecutive())
        read_values(q, piece.values, t.cut.in_whole(piece.first), entry, sums);
      else
        read_columns(q, piece.values, piece.first, t.cut, entry, sums);
}

void read_tensors(Queue& q, const std::vector<SavedTensor>& wanted, const TensorEntries& found) {
  read_tensors(q, wanted, found, nullptr);
}

}  // namespace capstan
