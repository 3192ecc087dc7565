// `capstan plan --json`: docs/plan.schema.json.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/plan_report.h"
#include "cli/plan_timeline.h"
#include "cli/step_parts.h"
#include "plan/quick.h"

namespace capstan::cli {
namespace {

using json = nlohmann::ordered_json;

json categories(const ByCategory& bytes) {
  auto out = json::object();
  for (int i = 0; i < kCategories; ++i)
    if (const int64_t n = bytes[static_cast<size_t>(i)]; n > 0)
      out[std::string(name_of(static_cast<Category>(i)))] = n;
  return out;
}

json memory_json(const MemoryPlan& plan, int64_t available) {
  json by_category = categories(plan.at_peak);
  if (const int64_t lost = plan.total_bytes - plan.peak_bytes; lost > 0)
    by_category["packing"] = lost;
  json out = {{"peak_bytes", plan.total_bytes}};
  if (available != Room().host) out["available_bytes"] = available;
  out["by_category"] = by_category;
  return out;
}

// The most that is live in a phase, with what outlives all of them, and all slots if it has some.
int64_t peak_of(const PlannedPhase& phase, int64_t setup, int64_t slot_bytes) {
  std::map<int64_t, int64_t> changes;
  for (const PlannedBuffer& b : phase.buffers) {
    if (b.kept) continue;
    changes[b.begin] += b.bytes;
    if (b.end != PlannedBuffer::kForever) changes[b.end] -= b.bytes;
  }
  int64_t live = setup + phase.slots * slot_bytes, most = live;
  for (const auto& [time, bytes] : changes) most = std::max(most, live += bytes);
  return most;
}

json phases_json(const MemoryPlan& plan) {
  auto out = json::array();
  if (plan.phases.empty()) return out;
  int64_t setup = 0;
  for (const PlannedBuffer& b : plan.phases[0].buffers) setup += b.bytes;
  for (size_t i = 1; i < plan.phases.size(); ++i)
    out.push_back({{"phase", plan.phases[i].name},
                   {"peak_bytes", peak_of(plan.phases[i], setup, plan.slot_bytes)}});
  return out;
}

// What joins machines, beside every answer that depends on it.
void add_network(json& out, const Machines& machines) {
  if (const auto bytes = between_machines(machines)) out["between_machines"] = *bytes;
}

json run_json(const Planned& p, const Recipe& recipe, const Answers& a) {
  const TrainOptions& o = a.fit.options;
  json out = {{"device", name_of(o.device)}};
  if (a.gpu) out["gpu"] = a.gpu->id;
  if (a.gpu && a.gpu->arm) out["processor"] = "arm";
  out["gpus"] = a.machines.ranks();
  out["machines"] = a.machines.count;
  add_network(out, a.machines);
  out["mesh"] = o.ranks.size == 1 ? "one rank" : mesh_name(o);
  out["precision"] = name_of(o.precision);
  out["products"] = type_of_products(o);
  out["activations"] = name_of(o.recompute);
  out["optimizer"] = name_of(OptimizerClass{o.optimizer.kind, o.optimizer.paged});
  if (o.quantize != Quantize::none) out["quantize"] = name_of(o.quantize);
  out["micro_batch_size"] = recipe.micro_batch_size.size;
  out["global_batch_size"] = recipe.global_batch_size;
  out["sequence"] = p.options.limits.longest;
  return out;
}

json time_json(const Planned& p, const Answers& a) {
  const Time& t = *a.time;
  json out = {{"step_seconds", t.step.seconds},
              {"low_seconds", t.range.low * t.step.seconds},
              {"high_seconds", t.range.high * t.step.seconds},
              {"range", t.range.origin},
              {"step_tokens", t.step.tokens},
              {"tokens_per_second", t.step.tokens_per_second()}};
  if (t.step.waiting > 0) out["stages_wait"] = t.step.waiting;
  if (t.step.exposed > 0) out["exposed_communication"] = t.step.exposed;
  auto parts = json::array();
  for (const StepPart& part : parts_of(t.step))
    parts.push_back({{"kind", part.name}, {"seconds", part.seconds}});
  out["by_kind"] = parts;
  if (a.peak_flops && !p.inputs && !p.options.lora) {
    const TrainOptions& o = a.fit.options;
    const Utilization u = utilization_of(t.step, o.model, static_cast<double>(o.limits.longest),
                                         o.ranks.size, *a.peak_flops);
    out["mfu"] = {{"whole", u.whole}, {"causal", u.causal}, {"peak_flops", u.peak_flops}};
  }
  if (t.run_seconds) {
    out["run_seconds"] = *t.run_seconds;
    out["run_low_seconds"] = t.range.low * *t.run_seconds;
    out["run_high_seconds"] = t.range.high * *t.run_seconds;
  }
  if (t.pytorch) {
    const double low = t.range.low * t.pytorch->low, high = t.range.high * t.pytorch->high;
    out["pytorch"] = {{"low_seconds", low * t.step.seconds},
                      {"high_seconds", high * t.step.seconds},
                      {"low_ratio", t.pytorch->low},
                      {"high_ratio", t.pytorch->high},
                      {"programs", t.pytorch->programs}};
  }
  if (t.record)
    out["record"] = {{"runs", t.record->runs},
                     {"timed", t.record->timed},
                     {"median_error", t.record->median_error},
                     {"median_ratio", t.record->median_ratio}};
  if (t.correction != 1) out["correction"] = t.correction;
  out["calibration"] = {{"name", t.calibration.name}, {"date", t.calibration.date}};
  if (t.calibration.from_data_sheet) out["calibration"]["data_sheet"] = true;
  return out;
}

json cost_json(const RunCost& c, const std::string& gpu, const Prices& known) {
  json out = {
      {"dollars", c.dollars.expected},
      {"low_dollars", c.dollars.low},
      {"high_dollars", c.dollars.high},
      {"instance", fmt::format("{}{} of {}", c.machines > 1 ? fmt::format("{} × ", c.machines) : "",
                               c.of_machine.text(), gpu)},
      {"dollars_per_hour", c.machines * c.of_machine.dollars_per_hour}};
  for (const Offer& offer : known.offers)
    if (offer.gpu == gpu) out["date"] = offer.date;
  return out;
}

void add_step(json& out, const std::optional<StepEstimate>& step,
              const std::optional<int64_t>& steps) {
  if (!step) return;
  out["step_seconds"] = step->seconds;
  out["tokens_per_second"] = step->tokens_per_second();
  if (steps) out["run_seconds"] = step->seconds * static_cast<double>(*steps);
}

json remedies_json(const Answers& a) {
  auto out = json::array();
  for (const Remedy& r : a.remedies) {
    json row = {{"change", r.what}, {"peak_bytes", r.bytes}};
    if (r.step) {
      row["step_seconds"] = r.step->seconds;
      row["tokens_per_second"] = r.step->tokens_per_second();
      row["slower"] = a.remedies[0].step->tokens_per_second() / r.step->tokens_per_second();
    }
    out.push_back(row);
  }
  return out;
}

json scaling_json(const Planned& p, const Answers& a) {
  auto out = json::array();
  const Prices known = prices();
  for (const ScalePoint& point : a.scaling) {
    const RunThere& r = point.run;
    json row = {{"gpus", point.machines.ranks()},
                {"machines", point.machines.count},
                {"mesh", point.machines.ranks() == 1 ? "one rank" : mesh_name(r.options)},
                {"fits", r.fits},
                {"peak_bytes", r.ranks.most}};
    add_network(row, point.machines);
    add_step(row, r.step, p.steps);
    if (point.efficiency > 0) row["efficiency"] = point.efficiency;
    if (r.step && p.steps && (point.machines.count == 1 || a.stated.across)) {
      const double hours = r.step->seconds * static_cast<double>(*p.steps) / 3600;
      if (const auto cost = run_cost(known, a.gpu->id, point.machines.devices, point.machines.count,
                                     {hours, hours, hours}))
        row["dollars"] = cost->dollars.expected;
    }
    out.push_back(row);
  }
  return out;
}

json offers_json(const Answers& a) {
  auto out = json::array();
  for (const RentedRun& r : a.offers) {
    json row = {{"gpu", r.gpu.id},
                {"gpus", r.machines.ranks()},
                {"machines", r.machines.count},
                {"mesh", r.machines.ranks() == 1 ? "one rank" : mesh_name(r.run.options)},
                {"activations", name_of(r.run.options.recompute)},
                {"precision", name_of(r.run.options.precision)},
                {"peak_bytes", r.run.ranks.most},
                {"step_seconds", r.run.step->seconds},
                {"run_seconds", r.seconds},
                {"dollars", r.dollars.expected},
                {"low_dollars", r.dollars.low},
                {"high_dollars", r.dollars.high},
                {"front", r.front}};
    add_network(row, r.machines);
    if (r.meets) row["meets"] = *r.meets;
    out.push_back(row);
  }
  return out;
}

json needs_json(const Needs& n) {
  json out = {{"checkpoint_bytes", n.checkpoint_bytes},
              {"checkpoints", n.checkpoints + 1},
              {"stored_bytes", n.stored_bytes},
              {"disk_bytes", n.disk_bytes},
              {"copy_bytes", n.copy_bytes}};
  if (n.copies.on_each > 0)
    out["copies_on_each"] = n.copies.on_each;
  else
    out["gpus_for_one_copy"] = n.copies.gpus_for_one;
  if (n.disk_of_last > 0) out["disk_bytes_of_last"] = n.disk_of_last;
  if (n.host_bytes > 0) out["host_memory_bytes"] = n.host_bytes;
  if (n.planned_host_bytes > 0) out["planned_host_bytes"] = n.planned_host_bytes;
  if (n.cores > 0) out["cores"] = n.cores;
  if (n.data_bytes > 0) out["data_bytes"] = n.data_bytes;
  if (n.input_tokens > 0) out["input_tokens_per_second"] = n.input_tokens;
  if (n.tokenizer_tokens > 0) out["tokenizer_tokens_per_second"] = n.tokenizer_tokens;
  return out;
}

// Where the constants of the times come from.
json sources_json(const Answers& a) {
  auto out = json::array();
  const auto add = [&](std::string what, std::string value, std::string origin) {
    out.push_back(
        {{"what", std::move(what)}, {"value", std::move(value)}, {"origin", std::move(origin)}});
  };
  const Calibration& c = a.time->calibration;
  const std::string origin =
      c.from_data_sheet
          ? fmt::format("parts of the data sheet that steps reach (docs/planner.md), {}", c.date)
          : fmt::format("capstan bench on {}, {}", c.name, c.date);
  const auto type = c.types.find(type_of_products(a.fit.options));
  if (type != c.types.end()) {
    const auto rate = [&](const char* what, OpKind kind, double unit, const char* name) {
      if (type->second.of(kind) > 0)
        add(what, fmt::format("{:.4g} {}", type->second.of(kind) / unit, name), origin);
    };
    rate("matrix products", OpKind::product, 1e12, "TFLOP/s");
    rate("output head", OpKind::head, 1e12, "TFLOP/s");
    rate("attention, forward", OpKind::attention, 1e12, "TFLOP/s");
    rate("attention, backward", OpKind::attention_backward, 1e12, "TFLOP/s");
    const auto bytes = [&](const char* what, double bytes_per_second) {
      if (bytes_per_second > 0)
        add(what, fmt::format("{:.4g} GB/s", bytes_per_second / 1e9), origin);
    };
    bytes("attention's operands, forward", type->second.attention_bytes);
    bytes("attention's operands, backward", type->second.attention_backward_bytes);
    if (a.fit.options.optimizer.paged || a.fit.options.sharding.offload)
      bytes("the bus, both ways together", c.bus_per_second);
    rate("norms and the like", OpKind::elementwise, 1e9, "GB/s");
    rate("optimizer", OpKind::optimizer, 1e9, "GB/s");
  }
  add("copies", fmt::format("{:.4g} GB/s", c.bytes_per_second / 1e9), origin);
  add("each op", fmt::format("{:.3g} µs", 1e6 * c.seconds_per_call), origin);
  if (a.machines.network && a.machines.ranks() > 1) {
    const Network& n = *a.machines.network;
    const std::string by_sheet = "parts of the data sheet that collectives reach (docs/planner.md)";
    const auto links = [&](std::string what, const auto& link, const std::string& from) {
      add(std::move(what),
          fmt::format("{:.4g} GB/s, {:.3g} µs a message", link.bytes_per_second / 1e9,
                      1e6 * link.seconds_per_message),
          from);
    };
    const bool flat = a.machines.count > 1 && n.ranks_per_machine == 0;
    links(flat ? "links of all ranks, each way" : "links within a machine, each way", n,
          flat || !c.networks.empty() ? origin : by_sheet);
    if (a.machines.count > 1 && !flat)
      links("links between machines, each way", n.across,
            a.stated.across ? a.network_origin : by_sheet);
  }
  if (a.gpu)
    add(a.gpu->id,
        fmt::format("{}{} of {:.4g}{} GB, {:.4g}{} GB/s, {:.4g}{} TFLOP/s in 16 bits, {:.4g}{} W",
                    format_bytes(a.gpu->bytes), a.gpu->mark({"memory", "usable"}), a.gpu->gigabytes,
                    a.gpu->mark({"memory"}), a.gpu->bytes_per_second / 1e9,
                    a.gpu->mark({"memory_bandwidth"}), a.gpu->narrow / 1e12,
                    a.gpu->mark({"narrow"}), a.gpu->watts, a.gpu->mark({"power"})),
        fmt::format("{}{} ({})", a.gpu->origin,
                    a.gpu->unsourced.empty() ? "" : "; † general knowledge", a.gpu->date));
  if (a.cost)
    for (const Instances::Some& some : a.cost->of_machine.parts)
      add(fmt::format("an hour of {} × {}", some.offer.gpus, some.offer.gpu),
          fmt::format("${}", some.offer.dollars_per_hour),
          fmt::format("{} ({})", some.offer.origin, some.offer.date));
  return out;
}

}  // namespace

std::string plan_json(const Planned& p, const Recipe& recipe, const Answers& a,
                      const std::string& command, const StepTrace* timeline) {
  const Fit& fit = a.fit;
  json memory = memory_json(fit.plan.device, fit.available.device);
  memory["peak_phase"] = fit.plan.device.peak_phase;
  memory["peak_buffer"] = fit.plan.device.peak_buffer;
  memory["phases"] = phases_json(fit.plan.device);
  if (timeline != nullptr)
    if (json rows = memory_timeline(*timeline); !rows.empty()) memory["timeline"] = rows;
  if (!a.classes.empty()) {
    memory["ranks"] = json::array();
    for (const RankClass& c : a.classes)
      memory["ranks"].push_back({{"name", c.name}, {"ranks", c.ranks}, {"peak_bytes", c.bytes}});
  }
  if (!p.options.lora && p.options.ranks.size == 1)
    memory["quick_bytes"] = quick_memory(p.options).total();
  const ModelSpec spec =
      make_spec(p.options.model, p.options.decay, p.options.lora, p.options.quantize);
  json out = {
      {"format", "capstan-plan-1"},
      {"fits", fit.fits()},
      {"verdict", fit.verdict()},
      {"command", command},
      {"model",
       {{"name", p.model},
        {"parameters", make_spec(p.options.model).parameter_count()},
        {"trainable", spec.trainable_count()}}},
      {"run", run_json(p, recipe, a)},
      {"memory", memory},
      {"activations", name_of(fit.options.recompute)},
      {"batch",
       {{"samples", p.options.limits.documents},
        {"tokens", p.options.limits.tokens},
        {"longest", p.options.limits.longest}}},
      {"largest",
       {{"micro_batch_size", a.largest.micro_batch}, {"max_seq_length", a.largest.sequence}}},
      {"checkpoint_bytes", a.needs.checkpoint_bytes},
      {"fits_with", remedies_json(a)},
      {"basis", p.basis}};
  if (p.options.device == Device::cuda)
    out["host_memory"] = memory_json(fit.plan.host, fit.available.host);
  if (p.steps) out["steps"] = *p.steps;
  if (p.steps && p.default_length) out["length_is_default"] = true;
  if (p.options.ranks.size > 1)
    out["ranks"] = {{"count", p.options.ranks.size},
                    {"strategy", strategy_name(p.options.sharding)},
                    {"least_bytes", p.ranks.least},
                    {"most_bytes", p.ranks.most}};
  if (a.time) out["time"] = time_json(p, a);
  if (a.cost) out["cost"] = cost_json(*a.cost, a.gpu->id, prices());
  if (timeline != nullptr) out["timeline"] = step_timeline(*timeline);
  if (!a.scaling.empty()) out["scaling"] = scaling_json(p, a);
  if (!a.offers.empty()) out["offers"] = offers_json(a);
  if (!a.sensitivities.empty()) {
    out["sensitivity"] = json::array();
    for (const Sensitivity& s : a.sensitivities)
      out["sensitivity"].push_back(
          {{"what", s.what}, {"step_seconds", s.step.seconds}, {"change", s.change}});
  }
  out["needs"] = needs_json(a.needs);
  if (a.time) out["sources"] = sources_json(a);
  return out.dump(2, ' ', false, json::error_handler_t::replace);
}

}  // namespace capstan::cli
