#include "plan/calibration.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <climits>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/units.h"
#include "machine/name.h"
#include "ops/sum_slices.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kVersion = 2;  // 1: the cost of the output head was without its logits
constexpr const char* kFormat = "capstan calibration";
constexpr const char* kEnding = ".calibration.json";  // of its files in the cache
constexpr const char* kToDevice = "to_device_bytes_per_second";
constexpr const char* kPerMessage = "seconds_per_message";
constexpr const char* kToHost = "to_host_bytes_per_second";
constexpr const char* kOnBus = "bus_bytes_per_second";
constexpr const char* kCrowding = "times_as_long_together";
constexpr std::array kFlopKinds = {OpKind::product, OpKind::head, OpKind::attention,
                                   OpKind::attention_backward};
constexpr std::array kByteKinds = {OpKind::elementwise, OpKind::optimizer};
constexpr std::array<std::string_view, 5> kTypes = {"f32", "tf32", "bf16", "f16", "fp8"};
constexpr std::array<std::string_view, 3> kOfCpu = {"32-true", "bf16-mixed", "bf16-true"};
constexpr std::array<std::string_view, 3> kCallCosts = {"seconds_per_call", "seconds_per_flop",
                                                        "seconds_per_byte"};

// An object of the file, with the path of keys that leads to it.
class Fields {
 public:
  using Path = std::array<std::string_view, 4>;  // unused ones are empty

  Fields(const json& object, std::string_view text, std::string_view where, Path path = {})
      : object_(object), text_(text), where_(where), path_(path) {
    if (!object.is_object()) refuse("", "expected an object, found {}", shown(object));
  }

  void expect_only(std::initializer_list<std::string_view> known) const {
    expect_only(std::span(known.begin(), known.size()));
  }
  void expect_only(std::span<const std::string_view> known) const {
    for (const auto& [key, value] : object_.items())
      if (std::find(known.begin(), known.end(), key) == known.end()) refuse(key, "no such key");
  }
  bool has(std::string_view key) const { return object_.contains(key); }

  Fields object(std::string_view key) const { return {find(key), text_, where_, longer(key)}; }
  double rate(std::string_view key) const {
    const json& value = find(key);
    const double number = value.is_number() ? value.get<double>() : 0;
    if (!(number >= 1e-12 && number <= 1e21))
      refuse(key, "expected a number from 1e-12 to 1e21, found {}", shown(value));
    return number;
  }
  double seconds(std::string_view key) const {
    const json& value = find(key);
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!(number >= 0 && number <= 1))
      refuse(key, "expected a number from 0 to 1, found {}", shown(value));
    return number;
  }
  std::string text(std::string_view key) const {
    const json& value = find(key);
    if (!value.is_string() || value.get_ref<const std::string&>().empty())
      refuse(key, "expected a string, found {}", shown(value));
    return value.get<std::string>();
  }
  const json& value(std::string_view key) const { return find(key); }

  template <class... Args>
  [[noreturn]] void refuse(std::string_view key, fmt::format_string<Args...> format,
                           Args&&... args) const {
    const Path p = longer(key);
    fail(Fault::file, "{}: {}: {}", json_location(text_, where_, {p[0], p[1], p[2], p[3]}),
         key.empty() ? "the calibration" : key, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  const json& find(std::string_view key) const {
    const auto it = object_.find(key);
    if (it == object_.end()) refuse(key, "expected this key, found none");
    return *it;
  }
  Path longer(std::string_view key) const {
    Path path = path_;
    *std::find(path.begin(), path.end() - 1, std::string_view()) = key;
    return path;
  }

  const json& object_;
  std::string_view text_, where_;
  Path path_;
};

bool is_date(std::string_view s) {
  if (s.size() != 10) return false;
  for (size_t i = 0; i < s.size(); ++i)
    if (i == 4 || i == 7 ? s[i] != '-' : std::isdigit(static_cast<unsigned char>(s[i])) == 0)
      return false;
  return true;
}

StepCosts step_costs(const Fields& from) {
  StepCosts s;
  from.expect_only({"calls", "step"});
  const Fields calls = from.object("calls"), step = from.object("step");
  std::array<std::string_view, kOpKinds> names;
  for (size_t i = 0; i < kOpKinds; ++i) names[i] = name_of(static_cast<OpKind>(i));
  calls.expect_only(names);
  for (size_t i = 0; i < kOpKinds; ++i) {
    const Fields kind = calls.object(names[i]);
    kind.expect_only(kCallCosts);
    s.calls[i] = {kind.seconds(kCallCosts[0]), kind.seconds(kCallCosts[1]),
                  kind.seconds(kCallCosts[2])};
  }
  step.expect_only({"seconds", "predicted_seconds"});
  s.seconds = step.rate("seconds");
  s.predicted = step.rate("predicted_seconds");
  return s;
}

ordered_json json_of(const StepCosts& s) {
  ordered_json calls;
  for (size_t i = 0; i < kOpKinds; ++i) {
    const CallCost& c = s.calls[i];
    calls[std::string(name_of(static_cast<OpKind>(i)))] = {
        {kCallCosts[0], c.per_call}, {kCallCosts[1], c.per_flop}, {kCallCosts[2], c.per_byte}};
  }
  return {{"calls", calls}, {"step", {{"seconds", s.seconds}, {"predicted_seconds", s.predicted}}}};
}

// The rates of bytes that a type need not have.
template <class Rates>
auto attention_bytes(Rates& t) {
  return std::array{std::pair(OpKind::attention, &t.attention_bytes),
                    std::pair(OpKind::attention_backward, &t.attention_backward_bytes)};
}

TypeRates type_rates(const Fields& from) {
  TypeRates t;
  from.expect_only({"flops_per_second", "bytes_per_second", "step"});
  const Fields flops = from.object("flops_per_second"), bytes = from.object("bytes_per_second");
  flops.expect_only({"product", "head", "attention", "attention_backward"});
  bytes.expect_only({"elementwise", "optimizer", "attention", "attention_backward"});
  for (const OpKind kind : kFlopKinds) t.of(kind) = flops.rate(name_of(kind));
  for (const OpKind kind : kByteKinds) t.of(kind) = bytes.rate(name_of(kind));
  for (const auto& [kind, rate] : attention_bytes(t))
    if (bytes.has(name_of(kind))) *rate = bytes.rate(name_of(kind));
  if (!from.has("step")) return t;
  const Fields step = from.object("step");
  step.expect_only({"seconds", "predicted_seconds"});
  t.step_seconds = step.rate("seconds");
  t.step_predicted = step.rate("predicted_seconds");
  return t;
}

void read_networks(const Fields& from, Calibration& c) {
  std::vector<std::string> counts;
  for (int ranks = 2; ranks <= static_cast<int>(kMostSlices); ++ranks)
    counts.push_back(std::to_string(ranks));
  from.expect_only(std::vector<std::string_view>(counts.begin(), counts.end()));
  for (const std::string& count : counts) {
    if (!from.has(count)) continue;
    const Fields network = from.object(count);
    network.expect_only({kPerMessage, "bytes_per_second", kCrowding});
    const int ranks = std::stoi(count);
    c.networks[ranks] = {.seconds_per_message = network.seconds(kPerMessage),
                         .bytes_per_second = network.rate("bytes_per_second")};
    if (!network.has(kCrowding)) continue;
    if (c.device != Device::cpu) network.refuse(kCrowding, "allowed only for a CPU");
    const Fields crowding = network.object(kCrowding);
    crowding.expect_only({"arithmetic", "memory"});
    c.crowding[ranks] = {crowding.rate("arithmetic"), crowding.rate("memory")};
  }
}

// Of what was measured with as many ranks, or the nearest number.
template <class T>
std::optional<T> nearest(const std::map<int, T>& measured, int ranks) {
  std::optional<T> found;
  int distance = INT_MAX;
  for (const auto& [count, value] : measured)
    if (std::abs(count - ranks) < distance) {
      found = value;
      distance = std::abs(count - ranks);
    }
  return found;
}

// What ops of this kind do takes so many times as long; a call without work as long as before.
void slow_down(CostModel& m, OpKind kind, double times) {
  Rates& rates = m.rates(kind).value();
  rates.flops_per_second /= times;
  rates.bytes_per_second /= times;
}

// Fraction of the bytes of an update, and of the norm of the gradients before it, that cross the
// bus if the state is in host memory.
double share_on_bus(const TrainOptions& o) {
  const PrecisionTypes t = types_of(o.precision);
  const bool few_bits = o.optimizer.kind == OptimizerOptions::Kind::adamw8bit;
  const auto moments = static_cast<double>(4 * (few_bits ? 1 : size_of(t.state)));
  const auto weights = static_cast<double>(2 * size_of(t.master));
  const auto rest =
      static_cast<double>(2 * size_of(t.grad) + (t.has_master() ? size_of(t.compute) : 0));
  const double state = moments + (o.sharding.offload && t.has_master() ? weights : 0);
  return state / (moments + weights + rest);
}

}  // namespace

void TypeRates::slow(OpKind kind, double times) {
  of(kind) /= times;
  if (kind == OpKind::attention) attention_bytes /= times;
  if (kind == OpKind::attention_backward) attention_backward_bytes /= times;
}

std::string calibration_json(const Calibration& c) {
  ordered_json out = {{"format", kFormat},
                      {"version", kVersion},
                      {"name", c.name},
                      {"accelerator", name_of(c.device)},
                      {"date", c.date},
                      {"seconds_per_call", c.seconds_per_call},
                      {"bytes_per_second", c.bytes_per_second}};
  if (c.device == Device::cuda) {
    out[kToDevice] = c.to_device_per_second;
    out[kToHost] = c.to_host_per_second;
    if (c.bus_per_second > 0) out[kOnBus] = c.bus_per_second;
  }
  for (const std::string_view type : kTypes) {
    const auto it = c.types.find(type);
    if (it == c.types.end()) continue;
    ordered_json& t = out["types"][std::string(type)];
    for (const OpKind kind : kFlopKinds)
      t["flops_per_second"][std::string(name_of(kind))] = it->second.of(kind);
    for (const OpKind kind : kByteKinds)
      t["bytes_per_second"][std::string(name_of(kind))] = it->second.of(kind);
    for (const auto& [kind, rate] : attention_bytes(it->second))
      if (*rate > 0) t["bytes_per_second"][std::string(name_of(kind))] = *rate;
    if (it->second.step_seconds > 0)
      t["step"] = {{"seconds", it->second.step_seconds},
                   {"predicted_seconds", it->second.step_predicted}};
  }
  for (const auto& [precision, costs] : c.precisions) out["precisions"][precision] = json_of(costs);
  for (const auto& [ranks, network] : c.networks) {
    ordered_json& n = out["networks"][std::to_string(ranks)];
    n = {{kPerMessage, network.seconds_per_message},
         {"bytes_per_second", network.bytes_per_second}};
    if (const auto it = c.crowding.find(ranks); it != c.crowding.end())
      n[kCrowding] = {{"arithmetic", it->second.arithmetic}, {"memory", it->second.memory}};
  }
  return out.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Calibration parse_calibration(std::string_view text, std::string_view where) {
  const json root = parse_json(text, where, 8);
  const Fields file(root, text, where);
  file.expect_only({"format", "version", "name", "accelerator", "date", "seconds_per_call",
                    "bytes_per_second", kToDevice, kToHost, kOnBus, "types", "precisions",
                    "networks"});
  if (file.value("format") != kFormat)
    file.refuse("format", "expected \"{}\", found {}", kFormat, shown(file.value("format")));
  if (file.value("version") != kVersion)
    file.refuse("version", "expected {}, found {}", kVersion, shown(file.value("version")));
  Calibration c;
  c.name = file.text("name");
  const std::string accelerator = file.text("accelerator");
  if (accelerator != "cpu" && accelerator != "cuda")
    file.refuse("accelerator", "expected cpu or cuda, found {}", in_quotes(accelerator));
  c.device = accelerator == "cuda" ? Device::cuda : Device::cpu;
  c.date = file.text("date");
  if (!is_date(c.date)) file.refuse("date", "expected YYYY-MM-DD, found {}", in_quotes(c.date));
  c.seconds_per_call = file.rate("seconds_per_call");
  c.bytes_per_second = file.rate("bytes_per_second");
  for (const char* key : {kToDevice, kToHost, kOnBus})
    if (c.device == Device::cpu && file.has(key)) file.refuse(key, "allowed only for a GPU");
  if (c.device == Device::cuda) {
    c.to_device_per_second = file.rate(kToDevice);
    c.to_host_per_second = file.rate(kToHost);
    if (file.has(kOnBus)) c.bus_per_second = file.rate(kOnBus);
  }
  const Fields types = file.object("types");
  types.expect_only(kTypes);
  for (const std::string_view type : kTypes)
    if (types.has(type)) c.types.emplace(type, type_rates(types.object(type)));
  if (c.types.empty()) file.refuse("types", "expected f32, tf32, bf16, f16 or fp8, found none");
  if (file.has("precisions")) {
    const Fields precisions = file.object("precisions");
    precisions.expect_only(kOfCpu);
    for (const std::string_view precision : kOfCpu)
      if (precisions.has(precision))
        c.precisions.emplace(precision, step_costs(precisions.object(precision)));
  }
  if (file.has("networks")) read_networks(file.object("networks"), c);
  return c;
}

std::optional<Network> network_of(const Calibration& c, int ranks) {
  return nearest(c.networks, ranks);
}

bool all_measured(const Calibration& c, int ranks) {
  return !c.from_data_sheet && (ranks == 1 || !c.networks.empty());
}

Crowding crowding_of(const Calibration& c, int ranks) {
  return ranks == 1 ? Crowding() : nearest(c.crowding, ranks).value_or(Crowding());
}

fs::path calibration_path(std::string_view name) {
  const fs::path folder = cache_folder("calibration");
  if (folder.empty()) return {};
  std::string file;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0)
      file += static_cast<char>(std::tolower(byte));
    else if (!file.empty() && file.back() != '-')
      file += '-';
  }
  return folder / file.append(kEnding);
}

std::vector<Calibration> kept_calibrations() {
  std::vector<Calibration> kept;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(cache_folder("calibration"), error)) {
    if (!entry.path().string().ends_with(kEnding)) continue;
    try {
      kept.push_back(read_calibration(entry.path()));
    } catch (const Error& e) {
      log::warn("{}; ignoring this calibration", e.what());
    }
  }
  std::sort(kept.begin(), kept.end(),
            [](const Calibration& a, const Calibration& b) { return a.name < b.name; });
  return kept;
}

Calibration named_calibration(const std::string& given) {
  std::error_code error;
  if (fs::is_regular_file(given, error) || given.find('/') != std::string::npos)
    return read_calibration(given);
  if (const fs::path kept = calibration_path(given); !kept.empty() && fs::exists(kept, error))
    return read_calibration(kept);
  std::vector<std::string> names;
  for (const Calibration& c : kept_calibrations()) {
    if (c.name == given) return c;
    names.push_back(in_quotes(c.name));
  }
  const fs::path folder = cache_folder("calibration");
  fail(Fault::usage,
       "calibration: there is no file '{}', and no calibration of a machine of that name in {}; {}",
       given, folder.empty() ? "a cache, for which there is no folder" : folder.string(),
       names.empty() ? "there are none at all: 'capstan bench' writes one"
                     : fmt::format("there are {}", fmt::join(names, ", ")));
}

void write_calibration(const fs::path& path, const Calibration& calibration) {
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  require(!error, Fault::file, "{}: cannot create the folder: {}", path.parent_path().string(),
          error.message());
  write_text(path, calibration_json(calibration));
}

Calibration read_calibration(const fs::path& path) {
  return parse_calibration(read_text(path, 1 << 20), path.string());
}

std::optional<Calibration> find_calibration(Device device) {
  if (device == Device::cuda && !cuda_present()) return std::nullopt;
  const std::string name = machine_name(device);
  const fs::path path = calibration_path(name);
  std::error_code error;
  if (path.empty() || !fs::exists(path, error)) return std::nullopt;
  try {
    const Calibration c = read_calibration(path);
    require(c.name == name && c.device == device, Fault::file,
            "{}: the calibration is for {}, but this machine is {}", path.string(), c.name, name);
    return c;
  } catch (const Error& e) {
    log::warn("{}; ignoring this calibration. 'capstan bench' writes a new one", e.what());
    return std::nullopt;
  }
}

std::string_view type_of_products(const TrainOptions& o) {
  if (o.precision == Precision::fp8_mixed) return "fp8";
  if (const DType compute = types_of(o.precision).compute; is_narrow(compute))
    return name_of(compute);
  return o.tf32 && o.device == Device::cuda ? "tf32" : "f32";
}

CostModel cost_model(const Calibration& c, const TrainOptions& o) {
  require(c.device == o.device, Fault::usage,
          "the calibration is for {} (accelerator {}), but the plan is for accelerator {}; add "
          "--accelerator {}",
          c.name, name_of(c.device), name_of(o.device), name_of(c.device));
  const std::string_view type = type_of_products(o);
  const auto it = c.types.find(type);
  require(it != c.types.end(), Fault::usage, "the calibration of {} has no rates for {}; {}",
          c.name, type,
          type == "fp8" ? "'capstan bench' measures them on a GPU with FP8 support"
                        : "run 'capstan bench' there to measure them");
  const TypeRates& rates = it->second;
  CostModel m{.name = c.name,
              .device = c.device,
              .bytes_per_second = c.bytes_per_second,
              .seconds_per_call = c.seconds_per_call};
  m.flops_per_second = rates.of(OpKind::product);
  if (rates.step_predicted > 0) m.factor = rates.step_seconds / rates.step_predicted;
  // A GPU does ops one after the other, so a step that is shorter than their sum ran before the
  // card was at its limit of power, as it is in a long run.
  if (c.device == Device::cuda) m.factor = std::max(1.0, m.factor);
  for (const OpKind kind : kFlopKinds) m.rates(kind) = {rates.of(kind), c.bytes_per_second};
  for (const auto& [kind, bytes] : attention_bytes(rates))
    if (*bytes > 0) m.rates(kind) = {rates.of(kind), *bytes, std::nullopt, true};
  for (const OpKind kind : kByteKinds) m.rates(kind) = {.bytes_per_second = rates.of(kind)};
  m.rates(OpKind::copy) = {.bytes_per_second = c.bytes_per_second};
  if (const auto of = c.precisions.find(name_of(o.precision)); of != c.precisions.end()) {
    const StepCosts& s = of->second;
    m.factor = s.seconds / s.predicted;
    for (size_t i = 0; i < kOpKinds; ++i)
      m.kinds[i] = {1 / s.calls[i].per_flop, 1 / s.calls[i].per_byte, s.calls[i].per_call, true};
  }
  const Crowding crowding = crowding_of(c, o.ranks.size);
  if (crowding != Crowding()) {
    for (const OpKind kind : kFlopKinds) slow_down(m, kind, crowding.arithmetic);
    for (const OpKind kind : {OpKind::elementwise, OpKind::optimizer, OpKind::copy})
      slow_down(m, kind, crowding.memory);
  }
  if ((o.optimizer.paged || o.sharding.offload) && c.device == Device::cuda) {
    // Half of the state's bytes go in each direction, both at once.
    const double bus = c.bus_per_second > 0
                           ? c.bus_per_second
                           : 2 * std::min(c.to_device_per_second, c.to_host_per_second);
    double& rate = m.rates(OpKind::optimizer)->bytes_per_second;
    rate = std::min(rate, bus / share_on_bus(o));
  }
  return m;
}

}  // namespace capstan
