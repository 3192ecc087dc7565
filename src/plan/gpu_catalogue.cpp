#include "plan/gpu_catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "cost/catalogue_row.h"
#include "plan/gpus.h"
#include "recipe/nearest.h"

namespace capstan {
namespace {

GpuModel gpu_of(const std::string& id, const CatalogueRow& row, const std::string& origin,
                const std::string& date) {
  row.expect_only({"in_name", "capability", "memory", "usable", "memory_bandwidth", "f32", "tf32",
                   "narrow", "fp8", "power", "link", "ports", "bridge", "machine", "processor",
                   "best_product", "origin"});
  constexpr double kNewest = 100, kUsable = 0.98, kUsualPort = 100;
  const auto tenths = static_cast<int>(std::lround(10 * row.number("capability", 1, kNewest)));
  const std::string processor = row.text("processor", "any");
  require(processor == "any" || processor == "arm", Fault::file,
          "{}: {}: processor: expected arm or any, found '{}'", row.place_of("processor"), id,
          processor);
  GpuModel gpu;
  const auto figure = [&](const char* key, double otherwise, double least,
                          double most = CatalogueRow::kMost) {
    return row.figure_or(otherwise, key, least, gpu.unsourced, most);
  };
  gpu.id = id;
  gpu.in_name = row.text("in_name", id);
  gpu.capability = {tenths / 10, tenths % 10};
  gpu.gigabytes = row.figure("memory", 1, gpu.unsourced);
  gpu.bytes =
      static_cast<int64_t>(figure("usable", kUsable * gpu.gigabytes, 1, gpu.gigabytes) * 0x1p30);
  gpu.bytes_per_second = 1e9 * figure("memory_bandwidth", 0, 1);
  gpu.f32 = 1e12 * figure("f32", 0, 0);
  gpu.tf32 = 1e12 * figure("tf32", 0, 0);
  gpu.narrow = 1e12 * figure("narrow", 0, 0);
  gpu.fp8 = 1e12 * figure("fp8", 0, 0);
  gpu.watts = row.figure("power", 1, gpu.unsourced);
  gpu.link_bytes_per_second = 1e9 * figure("link", 0, 0);
  gpu.port_gigabits = figure("ports", kUsualPort, 0.001);
  gpu.bridged = static_cast<int>(row.number_or(0, "bridge", 0));
  gpu.per_machine = static_cast<int>(row.number_or(0, "machine", 1));
  gpu.arm = processor == "arm";
  gpu.best_product = 1e12 * figure("best_product", 0, 0);
  gpu.origin = row.text("origin", origin);
  gpu.date = date;
  return gpu;
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

std::string GpuModel::mark(std::initializer_list<std::string_view> keys) const {
  const bool any = std::any_of(unsourced.begin(), unsourced.end(), [&](const std::string& key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  });
  return any ? "†" : "";
}

std::pair<int64_t, int64_t> GpuModel::placed(int64_t devices, int64_t machines) const {
  if (per_machine == 0 || devices <= per_machine) return {devices, machines};
  int64_t each = per_machine;
  while (devices % each != 0) --each;
  return {each, devices / each * machines};
}

const GpuModel& GpuCatalogue::named(std::string_view id) const {
  std::vector<std::string_view> ids, variants;
  for (const GpuModel& gpu : gpus) {
    if (gpu.id == id) return gpu;
    ids.push_back(gpu.id);
    if (!id.empty() && gpu.id.starts_with(id)) variants.push_back(gpu.id);
  }
  require(variants.size() < 2, Fault::usage, "gpu: '{}' may be any of {}; name one of them", id,
          fmt::join(variants, ", "));
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
  const CatalogueRow file = parse_catalogue(yaml, where, "a catalogue of GPUs");
  file.expect_only({"date", "origin", "gpus"});
  GpuCatalogue catalogue;
  const std::string origin = file.text("origin", std::string(where));
  const std::string date = file.text("date", "an unknown date");
  const auto gpus = file.section("gpus");
  require(gpus.has_value(), Fault::file, "{}: gpus: expected a mapping, found none", file.place());
  for (const auto& entry : gpus->entries())
    catalogue.gpus.push_back(gpu_of(entry.first, gpus->row(entry), origin, date));
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
