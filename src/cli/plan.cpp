#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/log.h"
#include "base/shell_words.h"
#include "cli/command_line.h"
#include "cli/launch.h"
#include "cli/outputs.h"
#include "cli/plan_answering.h"
#include "cli/plan_compare.h"
#include "cli/plan_machine.h"
#include "cli/plan_machines.h"
#include "cli/plan_options.h"
#include "cli/plan_page.h"
#include "cli/plan_question.h"
#include "cli/plan_report.h"
#include "cli/plan_search.h"
#include "cli/plan_site.h"
#include "cli/plan_trace.h"
#include "cli/plan_variants.h"
#include "cli/plan_where.h"
#include "plan/gpu_catalogue.h"
#include "tensor/trace_file.h"

namespace capstan::cli {
namespace {

// The search on so many GPUs of so many machines; none if nothing is known of what connects them.
std::optional<MeshQuestion> question_of(const Question& q, int devices, int machines) {
  Recipe recipe = q.recipe;
  recipe.devices = {.count = devices};
  recipe.num_nodes = machines;
  const auto calibration = calibration_for(q.options, q.planned.options, recipe, q.gpu);
  require(calibration.has_value(), Fault::usage, "plan: --search compares times, and {}",
          why_unknown(q));
  const auto network = network_for(q.options, q.gpu, *calibration, recipe);
  if (!network && devices * machines > 1) return std::nullopt;
  MeshQuestion question{
      .recipe = recipe,
      .options = q.planned.options,
      .devices = devices,
      .machines = machines,
      .network = network.value_or(Network()),
      .calibration = *calibration,
      .available = available_for(q.options, q.planned.options.device, devices).room};
  question.network.room = machines > 1;
  return question;
}

int search(const Question& q) {
  const Planned& planned = q.planned;
  require_ranks(q.recipe);
  const auto asked = question_of(q, static_cast<int>(ranks_per_machine(q.recipe)),
                                 static_cast<int>(q.recipe.num_nodes));
  require(
      asked.has_value(), Fault::usage,
      "plan: --search needs to know what connects the ranks; run 'capstan bench comm', or name a "
      "GPU of the catalogue (--gpu)");
  const MeshQuestion& question = *asked;
  const MeshSearch found = search_meshes(question);
  const std::string command = found.best.empty() ? "" : command_of(found.best[0], q.words, q.task);
  std::vector<VariantPlan> others;
  if (!q.options.allow.empty()) {
    const Allowed allowed = parse_allowed(q.options.allow);
    auto variants =
        variants_of(planned, q.recipe, q.task, allowed, question.calibration.types.contains("fp8"));
    variants.insert(variants.begin(), {"as the recipe says", q.task, {}, planned.options});
    std::vector<MeshQuestion> questions = {question};
    if (allowed.fewer)
      for (const auto& [devices, machines] : fewer_than(question))
        if (const auto smaller = question_of(q, devices, machines)) questions.push_back(*smaller);
    others = search_variants(questions, variants);
  }
  if (q.options.json) {
    print_search_json(question, found, planned, command, q.words, others);
  } else {
    print_search_text(question, found, planned, command);
    fmt::print("{}", variants_text(others));
    if (const VariantPlan* cheapest = cheapest_of(others))
      fmt::print("\n{}\n", command_of(*cheapest, q.words));
  }
  return found.best.empty() ? static_cast<int>(Fault::does_not_fit) : 0;
}

// Prints the answers, and writes the page and the trace.
int tell(const Question& q, Answers& answers, const Arguments& arguments) {
  const PlanOptions& o = q.options;
  const Planned& planned = q.planned;
  std::optional<StepTrace> step;
  if (answers.time && (!o.html.empty() || !o.trace.empty()))
    step = trace_of(planned, connected(answers.fit.options, answers.machines.network), q.recipe,
                    *answers.time);
  if (!o.html.empty()) answer_more(q, answers);
  const auto text = [&](bool page) {
    return plan_json(planned, q.recipe, answers,
                     arguments.empty() ? "capstan plan" : "capstan plan " + in_shell(arguments),
                     page && step ? &*step : nullptr);
  };
  if (!o.html.empty()) write_plan_page(o.html, text(true));
  if (o.json)
    fmt::print("{}\n", text(!o.html.empty()));
  else
    print_plan_text(planned, q.recipe, answers);
  if (!o.html.empty()) log::info("page: wrote {}", o.html);
  if (!o.trace.empty() && step)
    write_plan_trace(o.trace, planned, *step, *answers.time);
  else if (!o.trace.empty())
    log::warn("trace: {} was not written: the run does not fit", o.trace);
  return answers.fit.fits() ? 0 : static_cast<int>(Fault::does_not_fit);
}

// Before the plan, which may take minutes.
void require_outputs(const PlanOptions& o) {
  if (!o.html.empty()) require_output("--html", o.html, kPlanPage);
  if (!o.trace.empty()) require_output("--trace", o.trace, kTraceOutput);
  namespace fs = std::filesystem;
  const auto whole = [](const std::string& f) { return fs::weakly_canonical(fs::absolute(f)); };
  require(o.html.empty() || o.trace.empty() || whole(o.html) != whole(o.trace), Fault::usage,
          "--trace: {} is the file of --html, too; name another", o.trace);
}

}  // namespace

int plan(const Arguments& arguments) {
  if (!arguments.empty() && arguments[0] == "where")
    return plan_where({arguments.begin() + 1, arguments.end()});
  if (!arguments.empty() && arguments[0] == "site")
    return plan_site({arguments.begin() + 1, arguments.end()});
  Question q;
  PlanOptions& o = q.options;
  const auto keys = parse_plan_options(o, arguments);
  if (!keys) return 0;
  if (o.compare) return plan_compare(o, *keys);
  if (!take_words(q, *keys)) return 0;
  require_outputs(o);
  if (!o.gpu.empty()) take_named_gpu(q, gpu_catalogue().named(o.gpu));
  plan_recipe(q);
  if (!o.machines.empty()) return plan_machines(q);
  std::vector<RentedRun> offers;
  q.wish = o.wish();
  if (q.wish.any() && !o.search) {
    offers = offers_of(q);
    if (!q.gpu) {
      choose_machine(q, offers);
      plan_recipe(q);
    }
  }
  settle_machine(q);
  if (o.search) return search(q);
  Answers answers = answer(q, std::move(offers));
  return tell(q, answers, arguments);
}

}  // namespace capstan::cli
