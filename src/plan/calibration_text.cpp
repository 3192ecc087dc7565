// The text of a calibration file: docs/formats.md.
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/units.h"
#include "ops/sum_slices.h"
#include "plan/calibration.h"

namespace capstan {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// 1: the cost of the output head was without its logits; 2: ranks on a CPU had two factors
constexpr int kCalibrationVersion = 3;
constexpr const char* kFormat = "capstan calibration";
constexpr const char* kToDevice = "to_device_bytes_per_second";
constexpr const char* kPerMessage = "seconds_per_message";
constexpr const char* kToHost = "to_host_bytes_per_second";
constexpr const char* kOnBus = "bus_bytes_per_second";
constexpr const char* kAcross = "networks_across";
constexpr const char* kByPrecision = "precisions";
constexpr std::array<std::string_view, 5> kTypes = {"f32", "tf32", "bf16", "f16", "fp8"};
constexpr std::array<std::string_view, 3> kOfCpu = {"32-true", "bf16-mixed", "bf16-true"};
constexpr std::array<std::string_view, 3> kCallCosts = {"seconds_per_call", "seconds_per_flop",
                                                        "seconds_per_byte"};

// An object of the file, with the path of keys that leads to it.
class Fields {
 public:
  using Path = std::array<std::string_view, 7>;  // unused ones are empty

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
    fail(Fault::file, "{}: {}: {}",
         json_location(text_, where_, {p[0], p[1], p[2], p[3], p[4], p[5], p[6]}),
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

PrecisionCosts precision_costs(const Fields& from) {
  PrecisionCosts all;
  from.expect_only(kOfCpu);
  for (const std::string_view precision : kOfCpu)
    if (from.has(precision)) all.emplace(precision, step_costs(from.object(precision)));
  return all;
}

ordered_json json_of(const PrecisionCosts& all) {
  ordered_json out;
  for (const auto& [precision, costs] : all) out[precision] = json_of(costs);
  return out;
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

// By number of ranks: what `read` makes of each.
template <class Read>
void for_counts(const Fields& from, const Read& read) {
  std::vector<std::string> counts;
  for (int ranks = 2; ranks <= static_cast<int>(kMostSlices); ++ranks)
    counts.push_back(std::to_string(ranks));
  from.expect_only(std::vector<std::string_view>(counts.begin(), counts.end()));
  for (const std::string& count : counts)
    if (from.has(count)) read(std::stoi(count), from.object(count));
}

Network network(const Fields& from) {
  return {.seconds_per_message = from.seconds(kPerMessage),
          .bytes_per_second = from.rate("bytes_per_second")};
}

void read_networks(const Fields& from, Calibration& c) {
  for_counts(from, [&](int ranks, const Fields& of) {
    of.expect_only({kPerMessage, "bytes_per_second", kByPrecision});
    c.networks[ranks] = network(of);
    if (!of.has(kByPrecision)) return;
    if (c.device != Device::cpu) of.refuse(kByPrecision, "allowed only for a CPU");
    c.together[ranks] = precision_costs(of.object(kByPrecision));
  });
}

ordered_json json_of(const Network& network) {
  return {{kPerMessage, network.seconds_per_message},
          {"bytes_per_second", network.bytes_per_second}};
}

}  // namespace

std::string calibration_json(const Calibration& c) {
  ordered_json out = {{"format", kFormat},
                      {"version", kCalibrationVersion},
                      {"name", c.name},
                      {"accelerator", name_of(c.device)},
                      {"date", c.date}};
  if (!c.kernels.empty()) out["kernels"] = c.kernels;
  out["seconds_per_call"] = c.seconds_per_call;
  out["bytes_per_second"] = c.bytes_per_second;
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
  if (!c.precisions.empty()) out[kByPrecision] = json_of(c.precisions);
  for (const auto& [ranks, network] : c.networks) {
    ordered_json& n = out["networks"][std::to_string(ranks)];
    n = json_of(network);
    if (const auto it = c.together.find(ranks); it != c.together.end() && !it->second.empty())
      n[kByPrecision] = json_of(it->second);
  }
  for (const auto& [ranks, network] : c.networks_across)
    out[kAcross][std::to_string(ranks)] = json_of(network);
  return out.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Calibration parse_calibration(std::string_view text, std::string_view where) {
  const json root = parse_json(text, where, 8);
  const Fields file(root, text, where);
  file.expect_only({"format", "version", "name", "accelerator", "date", "kernels",
                    "seconds_per_call", "bytes_per_second", kToDevice, kToHost, kOnBus, "types",
                    kByPrecision, "networks", kAcross});
  if (file.value("format") != kFormat)
    file.refuse("format", "expected \"{}\", found {}", kFormat, shown(file.value("format")));
  if (file.value("version") != kCalibrationVersion)
    file.refuse("version", "expected {}, found {}: measure the machine again", kCalibrationVersion,
                shown(file.value("version")));
  Calibration c;
  c.name = file.text("name");
  const std::string accelerator = file.text("accelerator");
  if (accelerator != "cpu" && accelerator != "cuda")
    file.refuse("accelerator", "expected cpu or cuda, found {}", in_quotes(accelerator));
  c.device = accelerator == "cuda" ? Device::cuda : Device::cpu;
  c.date = file.text("date");
  if (!is_date(c.date)) file.refuse("date", "expected YYYY-MM-DD, found {}", in_quotes(c.date));
  if (file.has("kernels")) {
    if (c.device == Device::cuda) file.refuse("kernels", "allowed only for a CPU");
    c.kernels = file.text("kernels");
  }
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
  if (file.has(kByPrecision)) c.precisions = precision_costs(file.object(kByPrecision));
  if (file.has("networks")) read_networks(file.object("networks"), c);
  if (file.has(kAcross))
    for_counts(file.object(kAcross), [&](int ranks, const Fields& of) {
      of.expect_only({kPerMessage, "bytes_per_second"});
      c.networks_across[ranks] = network(of);
    });
  return c;
}

}  // namespace capstan
