#include "plan/gpu_catalogue.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "plan/gpus.h"
#include "recipe/nearest.h"

namespace capstan {
namespace {

// Reads one mapping of the file; every problem has its place.
class Fields {
 public:
  Fields(const YAML::Node& node, std::string_view where, std::string what)
      : node_(node), where_(where), what_(std::move(what)) {
    require(node.IsMap(), Fault::file, "{}: {}: expected a mapping", place(node), what_);
  }

  std::string text(const char* key, const std::string& otherwise) const {
    const YAML::Node value = node_[key];
    if (!value) return otherwise;
    require(value.IsScalar(), Fault::file, "{}: {}: {}: expected a text", place(value), what_, key);
    return value.Scalar();
  }
  // 0 if it is absent and may be.
  double number(const char* key, bool needed) const {
    const YAML::Node value = node_[key];
    require(value || !needed, Fault::file, "{}: {}: {}: expected a number, found none",
            place(node_), what_, key);
    if (!value) return 0;
    double number = 0;
    const bool good = value.IsScalar() && YAML::convert<double>::decode(value, number) &&
                      number >= (needed ? 1 : 0) && number <= 1e6;
    require(good, Fault::file, "{}: {}: {}: expected a number from {} to 1000000, found '{}'",
            place(value), what_, key, needed ? 1 : 0, value.IsScalar() ? value.Scalar() : "a list");
    return number;
  }
  void expect_only(std::initializer_list<std::string_view> known) const {
    for (const auto& entry : node_) {
      const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
      require(std::find(known.begin(), known.end(), key) != known.end(), Fault::file,
              "{}: {}: {}: no such key", place(entry.first), what_, key);
    }
  }
  YAML::Node node(const char* key) const {
    const YAML::Node value = node_[key];
    require(value && value.IsMap(), Fault::file, "{}: {}: expected a mapping", place(node_), key);
    return value;
  }

 private:
  std::string place(const YAML::Node& node) const {
    return fmt::format("{}:{}:{}", where_, node.Mark().line + 1, node.Mark().column + 1);
  }

  YAML::Node node_;
  std::string_view where_;
  std::string what_;
};

GpuModel gpu_of(const std::string& id, const YAML::Node& node, const std::string& origin,
                const std::string& date, std::string_view where) {
  const Fields f(node, where, id);
  f.expect_only({"in_name", "capability", "memory", "memory_bandwidth", "f32", "tf32", "narrow",
                 "fp8", "power", "link", "bridge", "best_product", "origin"});
  const auto tenths = static_cast<int>(std::lround(10 * f.number("capability", true)));
  return {.id = id,
          .in_name = f.text("in_name", id),
          .capability = {tenths / 10, tenths % 10},
          // A GB of memory as sold is 2^30 bytes.
          .bytes = static_cast<int64_t>(f.number("memory", true) * 0x1p30),
          .bytes_per_second = 1e9 * f.number("memory_bandwidth", true),
          .f32 = 1e12 * f.number("f32", true),
          .tf32 = 1e12 * f.number("tf32", false),
          .narrow = 1e12 * f.number("narrow", false),
          .fp8 = 1e12 * f.number("fp8", false),
          .watts = f.number("power", true),
          .link_bytes_per_second = 1e9 * f.number("link", false),
          .bridged = static_cast<int>(f.number("bridge", false)),
          .best_product = 1e12 * f.number("best_product", false),
          .origin = f.text("origin", origin),
          .date = date};
}

// Whether the text has the word: "A10" is not in "A100".
bool has_word(std::string_view text, std::string_view word) {
  const auto joins = [&](size_t at) {
    return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
  };
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1))
    if ((at == 0 || !joins(at - 1)) && !joins(at + word.size())) return true;
  return false;
}

// Whether the name has all words of `words`, and no other that makes another card of it.
bool is_named(std::string_view name, std::string_view words) {
  for (const char* other : {"Ti", "SUPER", "D", "Laptop", "NVL", "MIG"})
    if (has_word(name, other) && !has_word(words, other)) return false;
  for (size_t begin = 0; begin < words.size();) {
    const size_t end = std::min(words.find(' ', begin), words.size());
    if (!has_word(name, words.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return !words.empty();
}

}  // namespace

const GpuModel& GpuCatalogue::named(std::string_view id) const {
  std::vector<std::string_view> ids;
  for (const GpuModel& gpu : gpus) {
    if (gpu.id == id) return gpu;
    ids.push_back(gpu.id);
  }
  fail(Fault::usage,
       "gpu: no GPU '{}' is known{}. Known are {}; a file of the form of catalogue/gpus.yaml in "
       "$CAPSTAN_CATALOGUE adds others",
       id, did_you_mean(id, ids), fmt::join(ids, ", "));
}

const GpuModel* GpuCatalogue::reported_as(std::string_view name) const {
  const GpuModel* best = nullptr;
  for (const GpuModel& gpu : gpus)
    if (is_named(name, gpu.in_name) &&
        (best == nullptr || gpu.in_name.size() > best->in_name.size()))
      best = &gpu;
  return best;
}

GpuCatalogue parse_gpus(std::string_view yaml, std::string_view where) {
  YAML::Node root;
  try {
    root = YAML::Load(std::string(yaml));
  } catch (const YAML::Exception& e) {
    fail(Fault::file, "{}:{}:{}: {}", where, e.mark.line + 1, e.mark.column + 1, e.msg);
  }
  require(!root.IsNull(), Fault::file, "{}: expected a catalogue of GPUs, found nothing", where);
  const Fields file(root, where, "the catalogue");
  file.expect_only({"date", "origin", "gpus"});
  GpuCatalogue catalogue;
  const std::string origin = file.text("origin", std::string(where));
  const std::string date = file.text("date", "an unknown date");
  for (const auto& entry : file.node("gpus")) {
    const std::string id = entry.first.IsScalar() ? entry.first.Scalar() : "";
    const bool again = std::any_of(catalogue.gpus.begin(), catalogue.gpus.end(),
                                   [&](const GpuModel& g) { return g.id == id; });
    require(!id.empty() && !again, Fault::file, "{}:{}:{}: expected the name of a GPU, {}", where,
            entry.first.Mark().line + 1, entry.first.Mark().column + 1,
            again ? fmt::format("found '{}' again", id) : "found none");
    catalogue.gpus.push_back(gpu_of(id, entry.second, origin, date, where));
  }
  return catalogue;
}

GpuCatalogue gpu_catalogue() {
  GpuCatalogue all = parse_gpus(kGpusYaml, "catalogue/gpus.yaml");
  const std::string file = environment_value("CAPSTAN_CATALOGUE");
  if (file.empty()) return all;
  const GpuCatalogue own = parse_gpus(read_text(file), file);
  for (const GpuModel& gpu : own.gpus) {
    std::erase_if(all.gpus, [&](const GpuModel& g) { return g.id == gpu.id; });
    all.gpus.push_back(gpu);
  }
  return all;
}

}  // namespace capstan
