#include "cli/plan_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/text.h"
#include "cli/plan_page_html.h"
#include "report/markup.h"

namespace capstan::cli {
namespace {

// JSON as the text of a script element. Both are characters of strings alone, so that their escapes
// change no value: "<", which could end the element or begin a comment in it, and the separators
// that end a line of JavaScript.
std::string in_script(std::string_view raw) {
  std::string text = replaced(std::string(raw), "<", "\\u003c");
  text = replaced(std::move(text), "\u2028", "\\u2028");
  return replaced(std::move(text), "\u2029", "\\u2029");
}

// The text at a path of keys; empty if there is none.
std::string text_at(const nlohmann::json& plan, const char* pointer) {
  const nlohmann::json::json_pointer path(pointer);
  return plan.contains(path) && plan.at(path).is_string() ? plan.at(path).get<std::string>() : "";
}

// "Llama-3.1-8B on 8 × h100-sxm: fits", of as much as is known.
std::string title(const nlohmann::json& plan) {
  std::string text = text_at(plan, "/model/name");
  if (text.empty()) text = "Plan";
  const nlohmann::json::json_pointer gpus("/run/gpus");
  if (const std::string gpu = text_at(plan, "/run/gpu"); !gpu.empty())
    text += plan.contains(gpus) && plan.at(gpus).is_number_integer()
                ? fmt::format(" on {} × {}", plan.at(gpus).get<int64_t>(), gpu)
                : " on " + gpu;
  if (const auto fits = plan.find("fits"); fits != plan.end() && fits->is_boolean())
    text += fits->get<bool>() ? ": fits" : ": does not fit";
  return text;
}

// Where the template names what goes there. Only the template is searched, never what was put in.
std::string filled(std::string_view page, const nlohmann::json& plan, std::string_view plan_json) {
  const std::pair<std::string_view, std::string> values[] = {
      {"{{style}}", kPlanPageStyle},
      {"{{script}}", kPlanPageScript},
      {"{{title}}", escape_markup(title(plan))},
      {"{{verdict}}", escape_markup(text_at(plan, "/verdict"))},
      {"{{plan}}", in_script(plan_json)}};
  std::string out;
  out.reserve(page.size() + plan_json.size());
  while (!page.empty()) {
    const size_t at = std::min(page.find("{{"), page.size());
    out += page.substr(0, at);
    page.remove_prefix(at);
    if (page.empty()) break;
    const auto* const value =
        std::find_if(std::begin(values), std::end(values),
                     [&](const auto& v) { return page.substr(0, v.first.size()) == v.first; });
    require(value != std::end(values), Fault::bug, "plan page: no value for {}",
            page.substr(0, page.find("}}") + 2));
    out += value->second;
    page.remove_prefix(value->first.size());
  }
  return out;
}

}  // namespace

std::string plan_page(std::string_view plan_json) {
  const nlohmann::json plan = parse_json(plan_json, "the plan");
  require(plan.is_object(), Fault::file, "the plan is {}, and should be an object", shown(plan));
  return filled(kPlanPageHtml, plan, plan_json);
}

void write_plan_page(const std::filesystem::path& path, std::string_view plan_json) {
  write_text(path, plan_page(plan_json));
}

}  // namespace capstan::cli
