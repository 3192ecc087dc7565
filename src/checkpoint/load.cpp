#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/json_text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/convert.h"
#include "checkpoint/model_folder.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

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

std::vector<int64_t> part_shape(const Param& param, const Part& part) {
  std::vector<int64_t> shape = {part.rows};
  for (int i = 1; i < param.shape.rank(); ++i) shape.push_back(param.shape[i]);
  return shape;
}

bool is_harmless(const std::string& name, const ModelConfig& config) {
  return name.ends_with("rotary_emb.inv_freq") || (config.tied && name == "lm_head.weight");
}

bool matches(const StoredTensor& tensor, const std::vector<int64_t>& shape) {
  return tensor.shape == shape && tensor.type.dtype && is_weight_type(*tensor.type.dtype);
}

void check_tensors(const ModelSpec& spec, const ModelFolder& folder, const fs::path& dir) {
  Names missing("missing"), extra("not expected"), wrong("of another shape or type");
  std::set<std::string_view> known;
  for (const Param& param : spec.params) {
    for (const Part& part : param.parts) {
      known.insert(part.name);
      const auto it = folder.tensors().find(part.name);
      if (it == folder.tensors().end()) {
        missing.add(part.name);
        continue;
      }
      const StoredTensor& found = *it->second.tensor;
      const auto shape = part_shape(param, part);
      if (!matches(found, shape)) {
        wrong.add(fmt::format("{}: expected {} of F32, BF16 or F16, found {} of {}", part.name,
                              to_string(shape), to_string(found.shape), found.type.name));
      }
    }
  }
  for (const auto& [name, _] : folder.tensors()) {
    if (!known.contains(name) && !is_harmless(name, spec.config)) extra.add(in_quotes(name));
  }
  std::vector<std::string> problems;
  for (const Names* names : {&missing, &extra, &wrong}) {
    if (!names->empty()) problems.push_back(names->text());
  }
  require(problems.empty(), Fault::file,
          "{}: the tensors are not those that config.json asks for ({}, vocab_size {}, {} layers): "
          "{}; use the config.json that belongs to these weights",
          dir.string(), spec.config.architecture, spec.config.vocab, spec.config.layers,
          fmt::join(problems, "; "));
}

// Row blocks bound the host memory that a conversion takes.
constexpr int64_t kBlockBytes = 4 << 20;

void upload(Queue& q, const Tensor& to, const ModelFolder::Entry& from) {
  const DType type = from.file->dtype(*from.tensor);
  const std::byte* bytes = from.file->bytes(*from.tensor).data();
  if (type == to.dtype()) return q.upload(to, bytes);
  const int64_t row = to.numel() / to.dim(0);
  const int64_t rows = std::max<int64_t>(1, kBlockBytes / (row * size_of(to.dtype())));
  std::vector<std::byte> block(
      static_cast<size_t>(std::min(rows, to.dim(0)) * row * size_of(to.dtype())));
  for (int64_t i = 0; i < to.dim(0); i += rows) {
    const int64_t n = std::min(rows, to.dim(0) - i);
    convert(block.data(), to.dtype(), bytes + i * row * size_of(type), type, n * row);
    q.upload(to.rows(i, n), block.data());
  }
}

}  // namespace

ModelConfig read_config(const fs::path& dir) {
  const fs::path path = dir / "config.json";
  return parse_config(read_text(path), path.string());
}

void load_parameters(Queue& q, Parameters& params, const fs::path& dir) {
  const ModelFolder folder(dir);
  check_tensors(params.spec(), folder, dir);
  if (q.device() == Device::sim) return;
  for (int i = 0; i < params.count(); ++i) {
    for (const Part& part : params.spec().params[static_cast<size_t>(i)].parts) {
      upload(q, params.stored(i).rows(part.first_row, part.rows),
             folder.tensors().find(part.name)->second);
    }
  }
  params.refresh_weights(q);
}

}  // namespace capstan
