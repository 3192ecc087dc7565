#include "report/page.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "report/curve.h"
#include "report/markup.h"
#include "report/page_style.h"

namespace capstan {
namespace {

// "17.0 PFLOP"
std::string flop(double n) {
  const char* unit = "";
  for (const char* next : {"K", "M", "G", "T", "P", "E", "Z", "Y"}) {
    if (n < 999.5) break;
    n /= 1000;
    unit = next;
  }
  return fmt::format("{:.3g} {}FLOP", n, unit);
}

std::string time_text(std::chrono::system_clock::time_point t) {
  if (t == std::chrono::system_clock::time_point{}) return "";
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(t)));
}

std::string head(const RunSummary& r) {
  const std::string name = escape_markup(r.model.empty() ? "Training run" : r.model);
  return std::string(kReportBegin) +
         fmt::format(
             "<title>{0} · Capstan</title>\n<style>{1}</style>\n</head>\n<body>\n<main>\n<header>\n"
             "<h1>{0}</h1>\n<p class=\"verdict\"><b{2}>{3}</b> {4}.</p>\n"
             "<p class=\"soft\"><code>{5}</code></p>\n",
             name, kPageStyle, r.stopped_by.empty() ? "" : " class=\"early\"",
             r.stopped_by.empty() ? "✓" : "■", escape_markup(verdict(r)), escape_markup(r.command));
}

void tile(std::string& out, const char* label, const std::string& value) {
  out += fmt::format("<div class=\"tile\"><span>{}</span><strong>{}</strong></div>\n", label,
                     escape_markup(value));
}

std::string tiles(const RunSummary& r) {
  std::string s = "<div class=\"tiles\">\n";
  if (r.last_loss) tile(s, "last loss", fmt::format("{:.3f}", *r.last_loss));
  if (r.val_loss) {
    tile(s, "validation loss", fmt::format("{:.3f}", *r.val_loss));
    tile(s, "perplexity", fmt::format("{:.2f}", std::exp(*r.val_loss)));
  }
  if (r.best_val_loss)
    tile(s, "best validation loss", fmt::format("{:.3f}, step {}", *r.best_val_loss, r.best_step));
  tile(s, "training time", format_duration(r.train_seconds));
  if (r.tokens_per_second() > 0) tile(s, "tokens / s", format_count(r.tokens_per_second()));
  if (const auto mfu = r.mfu()) tile(s, "MFU", fmt::format("{:.1f} %", 100 * *mfu));
  if (r.memory.measured_bytes > 0) tile(s, "memory", format_bytes(r.memory.measured_bytes));
  if (r.host_memory.measured_bytes > 0)
    tile(s, "host memory", format_bytes(r.host_memory.measured_bytes));
  return s + "</div>\n</header>\n";
}

std::string section(const char* title, const std::string& body) {
  return fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", title, body);
}

void entry(std::string& out, const char* label, const std::string& value) {
  if (!value.empty())
    out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", label, escape_markup(value));
}

std::string numbers(const RunSummary& r) {
  const auto seconds = [](double s) { return s > 0 ? format_duration(s) : ""; };
  const auto amount = [](int64_t n) { return n > 0 ? format_grouped(n) : ""; };
  std::string s = "<dl>\n";
  entry(s, "Capstan", r.program);
  entry(s, "Device", r.device);
  if (!r.processor.empty())
    entry(s, "Processor", fmt::format("{}, {}", r.processor, count(r.threads, "thread")));
  entry(s, "Matrix products", r.kernels);
  entry(s, "Precision", r.precision);
  entry(s, "Trainable parameters", amount(r.trainable));
  entry(s, "Frozen parameters", amount(r.frozen));
  entry(s, "Steps",
        r.total_steps > r.steps
            ? fmt::format("{} of {}", format_grouped(r.steps), format_grouped(r.total_steps))
            : format_grouped(r.steps));
  if (r.epochs > 0) entry(s, "Epochs", fmt::format("{:.3g}", r.epochs));
  entry(s, "Training", seconds(r.train_seconds));
  entry(s, "Evaluation", seconds(r.eval_seconds));
  entry(s, "Saving", seconds(r.save_seconds));
  entry(s, "Input tokens", amount(r.input_tokens));
  entry(s, "Tokens with prompt", amount(r.tokens_with_prompt));
  entry(s, "Total tokens with padding", amount(r.tokens_with_padding));
  if (r.tokens_per_second() > 0) {
    entry(s, "Tokens/s without padding", fmt::format("{:.1f}", r.tokens_per_second()));
    entry(s, "Tokens/s with padding", fmt::format("{:.1f}", r.tokens_per_second_with_padding()));
  }
  if (const auto beyond = r.beyond_prediction()) {
    entry(s, "Step, measured", fmt::format("{:.4g} s ({:+.1f} %)", r.step_seconds, 100 * *beyond));
    entry(s, "Step, predicted",
          fmt::format("{:.4g} s, from the calibration of {}", r.predicted_seconds, r.calibration));
  }
  if (r.flops > 0) entry(s, "Total compute", flop(r.flops));
  if (r.flops > 0 && r.train_seconds > 0)
    entry(s, "Compute rate", flop(r.flops / r.train_seconds) + "/s");
  if (r.first_loss) entry(s, "First loss", fmt::format("{:.4f}", *r.first_loss));
  if (r.last_loss) entry(s, "Last loss", fmt::format("{:.4f}", *r.last_loss));
  entry(s, "Checkpoint", r.checkpoint);
  entry(s, "Started", time_text(r.started));
  if (r.resumed_after)
    entry(s, "Resumed",
          fmt::format("after step {}, {}", format_grouped(*r.resumed_after), time_text(r.resumed)));
  entry(s, "Ended", time_text(r.ended));
  return s + "</dl>\n";
}

// Text shrinks with the picture, so a phone gets its own chart; the style sheet shows one of the
// two.
std::string curves(const std::vector<MetricsRow>& rows) {
  Chart chart = loss_chart(rows, "Loss");
  std::string s = "<figure class=\"wide\">" + chart_svg(chart) + "</figure>\n";
  chart.width = kNarrowWidth;
  chart.height = kNarrowHeight;
  return s + "<figure class=\"narrow\">" + chart_svg(chart) + "</figure>\n";
}

std::string fill(const char* kind, double share) {
  return fmt::format("<i class=\"{}\" style=\"width:{:.2f}%\"></i>", kind,
                     100 * std::clamp(share, 0.0, 1.0));
}

std::string memory_rows(const char* title, const MemoryUse& use) {
  const double most =
      static_cast<double>(std::max({use.planned_bytes, use.measured_bytes, int64_t{1}}));
  std::string s = fmt::format(
      "<div "
      "class=\"scroll\"><table><thead><tr><th>{}</th><th></th><th>planned</th><th>measured</th></"
      "tr></thead>"
      "<tbody>\n",
      title);
  const auto row = [&](std::string_view name, int64_t planned, int64_t measured) {
    if (planned == 0 && measured == 0) return;
    s += fmt::format(
        "<tr><td>{}</td><td class=\"bar\"><div class=\"track\">{}{}</div></td><td>{}</td>"
        "<td>{}</td></tr>\n",
        name, fill("planned", static_cast<double>(planned) / most),
        fill("measured", static_cast<double>(measured) / most), format_bytes(planned),
        format_bytes(measured));
  };
  for (int i = 0; i < kCategories; ++i)
    row(name_of(static_cast<Category>(i)), use.planned[static_cast<size_t>(i)],
        use.measured[static_cast<size_t>(i)]);
  row("one allocation", use.planned_bytes, use.measured_bytes);
  return s + "</tbody></table></div>\n";
}

std::string memory(const RunSummary& r) {
  std::string s = memory_rows("category", r.memory);
  if (r.host_memory.planned_bytes > 0) s += memory_rows("in host memory", r.host_memory);
  s += "<figcaption>Each line is that category's own peak, so the sum may exceed the "
       "allocation.<span class=\"key planned\"></span>planned<span class=\"key "
       "measured\"></span>measured";
  if (r.process_bytes > 0)
    s += fmt::format(". The process, with program and data, peaked at {}.",
                     format_bytes(r.process_bytes));
  return "<figure>" + s + "</figcaption></figure>\n";
}

// "4.9", "812,300": in billions.
std::string giga(double n) {
  return n < 999.95e9 ? fmt::format("{:.1f}", n / 1e9) : format_grouped(std::llround(n / 1e9));
}

// Lets a name wrap between its words on a narrow page.
std::string breakable(std::string_view name) {
  std::string s;
  for (const char c : escape_markup(name))
    s += c == '_' ? std::string("_<wbr/>") : std::string(1, c);
  return s;
}

std::string ranks(const RunSummary& r) {
  std::string s = fmt::format(
      "<p>Strategy {}. The slowest rank is {}: the others waited for it.</p>\n<div "
      "class=\"scroll\"><table><thead><tr><th>rank</th><th>compute</th><th>communication</th><th>"
      "waiting</th><th>planned</th><th>measured</th><th>tokens/s</th><th>host</th></tr></thead>"
      "<tbody>\n",
      escape_markup(r.strategy), slowest_rank(r));
  const std::vector<RankTime> times = rank_times(r);
  for (size_t i = 0; i < times.size(); ++i)
    s += fmt::format(
        "<tr><td>{}</td><td>{:.2f} s</td><td>{:.2f} s</td><td>{:.2f} s</td><td>{}</td><td>{}</td>"
        "<td>{:.1f}</td><td>{}</td></tr>\n",
        i, times[i].compute, times[i].communication, times[i].waiting,
        format_bytes(r.ranks[i].planned_bytes), format_bytes(r.ranks[i].measured_bytes),
        times[i].tokens_per_second, escape_markup(r.hosts[i]));
  return s + "</tbody></table></div>\n";
}

std::string ops(const RunSummary& r) {
  std::string s =
      "<div class=\"scroll\"><table class=\"ops\"><thead><tr><th>op</th><th></th><th>share</th><th "
      "class=\"optional\">calls</th>"
      "<th>time</th><th>GFLOP/s</th><th>GB/s</th></tr></thead><tbody>\n";
  double all = r.ops_seconds;
  if (!(all > 0))
    for (const OpTotal& t : r.ops) all += t.seconds;
  for (const OpTotal& t : r.ops) {
    if (t.op == nullptr) continue;
    const double seconds = std::max(t.seconds, 1e-12), share = t.seconds / std::max(all, 1e-12);
    s += fmt::format(
        "<tr><td><code>{}</code></td><td class=\"bar\"><div class=\"track\">{}</div></td>"
        "<td>{:.1f} %</td><td class=\"optional\">{}</td><td>{}</td><td>{}</td><td>{}</td>"
        "</tr>\n",
        breakable(t.op), fill("measured", share), 100 * share, format_grouped(t.calls),
        format_duration(t.seconds), giga(t.cost.flops / seconds), giga(t.cost.bytes / seconds));
  }
  return s + "</tbody></table></div>\n";
}

std::string samples(const RunSummary& r) {
  std::string s;
  for (const RunSummary::Sample& sample : r.samples)
    s += fmt::format(
        "<div class=\"sample\"><p class=\"soft\">after step "
        "{}</p><pre>{}</pre><pre>{}</pre></div>\n",
        format_grouped(sample.step), escape_markup(sample.prompt), escape_markup(sample.text));
  return s;
}

}  // namespace

std::string report_html(const RunSummary& r, const std::vector<MetricsRow>& rows) {
  std::string s = head(r) + tiles(r);
  const std::string note =
      r.validation_note.empty() ? "" : "<p>" + escape_markup(r.validation_note) + "</p>\n";
  if (!rows.empty()) s += "<section>\n" + curves(rows) + note + "</section>\n";
  s += section("The run", numbers(r));
  if (r.memory.planned_bytes > 0) s += section("Memory, planned and measured", memory(r));
  if (r.gpu)
    s += section("The GPU, as measured by the card",
                 gpu_html(*r.gpu, r.gpu_memory.planned, r.gpu_memory.allocated));
  if (r.ranks.size() > 1) s += section("The ranks", ranks(r));
  if (!r.ops.empty()) s += section("Where the time went", ops(r));
  if (!r.samples.empty()) s += section("Samples", samples(r));
  if (!r.recipe.empty())
    s += section("The recipe", fmt::format("<pre>{}</pre>\n", escape_markup(r.recipe)));
  return s + "</main>\n</body>\n</html>\n";
}

}  // namespace capstan
