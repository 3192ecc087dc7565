#include "checkpoint/training_state.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kStateFormat = 1;

// Fields that earlier versions lack keep their default.
constexpr bool kIsNew = true;

template <class State>
constexpr bool kParsing = !std::is_const_v<State>;

// The one table of the fields: calls visit(key, field) or visit(key, field, kIsNew) for each.
template <class State, class Visit>
void for_each_field(State& s, const Visit& visit) {
  visit("step", s.step);
  visit("seed", s.seed);
  visit("epoch", s.epoch);
  visit("samples", s.samples);
  visit("tokens", s.tokens);
  visit("padding", s.padding);
  visit("targets", s.targets);
  visit("seconds", s.seconds);
  visit("eval_seconds", s.eval_seconds, kIsNew);
  visit("save_seconds", s.save_seconds, kIsNew);
  visit("started", s.started, kIsNew);
  visit("dataset_samples", s.dataset_samples);
  visit("dataset_fingerprint", s.dataset_fingerprint);
  visit("base_fingerprint", s.base_fingerprint, kIsNew);
  visit("base_checksum", s.base_checksum, kIsNew);
  visit("computed_on", s.computed_on, kIsNew);
  visit("order_of_sums", s.order_of_sums, kIsNew);
  visit("first_loss", s.first_loss);
  visit("last_loss", s.last_loss);
  visit("val_loss", s.val_loss);
  if (kParsing<State> || s.best_val_loss) {
    visit("best_val_loss", s.best_val_loss, kIsNew);
    visit("best_step", s.best_step, kIsNew);
    visit("validations_since", s.validations_since, kIsNew);
  }
  if (kParsing<State> || s.loss_scale) {
    visit("loss_scale", s.loss_scale, kIsNew);
    visit("loss_scale_steps", s.loss_scale_steps, kIsNew);
  }
  visit("recipe", s.recipe);
}

json to_json(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? json(*value) : json(nullptr);
}
json to_json(const std::optional<std::string>& value) {
  return value ? json(*value) : json(nullptr);
}
template <class T>
json to_json(const T& value) {
  return value;
}

// Each returns what was expected if the value is something else.
const char* from_json(int64_t& to, const json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX) return "a whole number";
  to = value.get<int64_t>();
  return nullptr;
}
const char* from_json(uint64_t& to, const json& value) {
  if (!value.is_number_unsigned()) return "a whole number";
  to = value.get<uint64_t>();
  return nullptr;
}
const char* from_json(double& to, const json& value) {
  if (!value.is_number()) return "a number";
  to = value.get<double>();
  return nullptr;
}
const char* from_json(std::optional<double>& to, const json& value) {
  if (value.is_null()) return nullptr;
  if (!value.is_number()) return "a number or null";
  to = value.get<double>();
  return nullptr;
}
const char* from_json(std::string& to, const json& value) {
  if (!value.is_string()) return "a string";
  to = value.get<std::string>();
  return nullptr;
}
const char* from_json(std::optional<std::string>& to, const json& value) {
  if (value.is_null()) return nullptr;
  if (!value.is_string()) return "a string or null";
  to = value.get<std::string>();
  return nullptr;
}

}  // namespace

std::string state_json(const TrainingState& state) {
  nlohmann::ordered_json out = {{"format", kStateFormat}};
  for_each_field(
      state, [&](const char* key, const auto& field, bool = false) { out[key] = to_json(field); });
  // A recipe may contain any bytes: a save must not fail because of them.
  return out.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

TrainingState parse_state(std::string_view text, std::string_view where) {
  const json root = parse_json(text, where);
  require(root.is_object(), Fault::file, "{}: expected an object, found {}",
          text_location(text, where, 0), shown(root));
  const auto check = [&](const char* key, const char* expected) {
    const auto it = root.find(key);
    if (expected != nullptr)
      fail(Fault::file, "{}: {}: expected {}, found {}", json_location(text, where, {key}), key,
           expected, it == root.end() ? "none" : shown(*it));
  };
  const auto format = root.find("format");
  check("format", format == root.end() || *format != kStateFormat ? "1" : nullptr);
  std::set<std::string> known = {"format"};
  TrainingState state;
  for_each_field(state, [&](const char* key, auto& field, bool is_new = false) {
    known.insert(key);
    const auto it = root.find(key);
    if (is_new && it == root.end()) return;
    check(key, it == root.end() ? "a value" : from_json(field, *it));
  });
  for (const auto& [key, _] : root.items())
    require(known.contains(key), Fault::file, "{}: {}: no such key",
            json_location(text, where, {key}), in_quotes(key));
  return state;
}

TrainingState read_state(const fs::path& dir) {
  const fs::path path = dir / kStateFile;
  std::error_code error;
  require(fs::exists(path, error), Fault::file,
          "{}: expected the state of a training run, found none; a run cannot resume from this "
          "folder, but a new one can start from its weights",
          path.string());
  return parse_state(read_text(path), path.string());
}

}  // namespace capstan
