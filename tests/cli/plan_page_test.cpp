// capstan plan --html: the page that a plan's JSON becomes.

#include "cli/plan_page.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/text.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPlan =
    "{\n \"format\": \"capstan-plan-1\",\t\"fits\": true,\n \"verdict\": \"fits: needs 62.0 "
    "GiB\",\n"
    " \"model\": {\"name\": \"Llama-3.1-8B\", \"parameters\": 8030261248},\n"
    " \"run\": {\"gpu\": \"h100-sxm\", \"gpus\": 8},\n"
    " \"time\": {\"step_seconds\": 1.20e0, \"range\": \"±8%: measured\\u00b9 \\\\ \\/ \\\"\"},\n"
    " \"memory\": {\"peak_bytes\": 66571993088, \"timeline\": [ ]}\n}\n";

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t from = text.find(begin);
  EXPECT_NE(from, std::string::npos) << begin;
  if (from == std::string::npos) return "";
  const size_t to = text.find(end, from);
  EXPECT_NE(to, std::string::npos) << end;
  return text.substr(from + begin.size(), to - from - begin.size());
}

// The text of the element with the plan, as a browser reads it.
std::string plan_element(const std::string& page) {
  return between(page, "<script type=\"application/json\" id=\"plan\">", "</script>");
}

// All that follows that element: the script.
std::string after_plan(const std::string& page) {
  return page.substr(page.find("</script>", page.find("id=\"plan\"")));
}

size_t count_of(const std::string& text, std::string_view part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(PlanPage, HasThePlanBitForBit) {
  EXPECT_EQ(plan_element(plan_page(kPlan)), kPlan);
}

TEST(PlanPage, HasThePlanBitForBitBehindItsEscapes) {
  const std::string plan = "{\"a<b\": \"</p> <!-- \u2028 \u2029 €\"}";
  const std::string element = plan_element(plan_page(plan));
  EXPECT_EQ(element.find('<'), std::string::npos);
  std::string text = replaced(element, "\\u003c", "<");
  text = replaced(replaced(text, "\\u2028", "\u2028"), "\\u2029", "\u2029");
  EXPECT_EQ(text, plan);
  EXPECT_EQ(nlohmann::json::parse(element), nlohmann::json::parse(plan));
}

TEST(PlanPage, HostileNamesStayText) {
  const std::string quiet = plan_page(kPlan);
  for (const char* name : {"</script><img src=x onerror=alert(1)>", "<!--<script>",
                           "]]></SCRIPT ><b>", "\" onload=\"x", "' & &lt;", "a\u2028b\u2029c",
                           "{{plan}}", "{{title}}{{verdict}}{{script}}", "\x01\x1b[2J"}) {
    nlohmann::json plan = nlohmann::json::parse(kPlan);
    plan["model"]["name"] = plan["verdict"] = plan["command"] = plan["run"]["gpu"] = name;
    const std::string page = plan_page(plan.dump());
    EXPECT_EQ(nlohmann::json::parse(plan_element(page)), plan) << name;
    // Nothing but the template's own markup, and its script as it is.
    EXPECT_EQ(count_of(page, "<"), count_of(quiet, "<")) << name;
    EXPECT_EQ(after_plan(page), after_plan(quiet)) << name;
    for (const char* separator : {"\u2028", "\u2029"})
      EXPECT_EQ(page.find(separator, page.find("<script")), std::string::npos) << name;
    EXPECT_EQ(between(page, "<title>", "</title>"),
              between(page, "<h1>", "</h1>") + " · Capstan plan");
  }
}

TEST(PlanPage, TitleAndVerdictAreEscaped) {
  nlohmann::json plan = nlohmann::json::parse(kPlan);
  EXPECT_EQ(between(plan_page(plan.dump()), "<title>", "</title>"),
            "Llama-3.1-8B on 8 × h100-sxm: fits · Capstan plan");
  plan["model"]["name"] = "</title><b>\"A & B\"";
  plan["fits"] = false;
  plan["verdict"] = "does not fit: <i>";
  const std::string page = plan_page(plan.dump());
  EXPECT_EQ(between(page, "<title>", "</title>"),
            "&lt;/title&gt;&lt;b&gt;&quot;A &amp; B&quot; on 8 × h100-sxm: does not fit · "
            "Capstan plan");
  EXPECT_EQ(between(page, "<p class=\"lead\">", "</p>"), "does not fit: &lt;i&gt;");
}

TEST(PlanPage, AnyObjectOfJsonIsAPage) {
  EXPECT_EQ(between(plan_page("{}"), "<title>", "</title>"), "Plan · Capstan plan");
  EXPECT_EQ(between(plan_page("{\"model\": 1, \"run\": [], \"fits\": \"?\", \"verdict\": null}"),
                    "<title>", "</title>"),
            "Plan · Capstan plan");
  for (const char* text : {"", "[]", "null", "{\"fits\": true", "{} {}", "{\"a\": \"\xff\"}"})
    EXPECT_NE(message_of(Fault::file, [&] { plan_page(text); }).find("the plan"),
              std::string::npos);
}

// The page is its files, each whole and in the order of their use.
TEST(PlanPage, IsTheFilesOfItsFolder) {
  const fs::path folder = fs::path(CAPSTAN_SOURCE_DIR) / "src/cli/plan_page";
  const std::string page = plan_page("{}");
  EXPECT_NE(page.find("<style>\n" + read_text(folder / "style.css") + "</style>"),
            std::string::npos);
  size_t end = page.find("(() => {\n") + 9, files = 0;
  for (const char* part : {"basics", "draw", "parts", "pointing", "head", "memory", "time",
                           "timeline", "machines", "page"}) {
    const std::string text = read_text(folder / (std::string(part) + ".js"));
    EXPECT_EQ(page.substr(end, text.size()), text) << part;
    end += text.size();
  }
  EXPECT_EQ(page.substr(end, 5), "})();");
  for (const auto& entry : fs::directory_iterator(folder))
    files += entry.path().extension() == ".js";
  EXPECT_EQ(files, 10U);
}

TEST(PlanPage, AsksForNothingElse) {
  const std::string page = plan_page("{}");
  for (const char* request : {"http:", "https:", "src=", "href=\"//", "@import", "@font-face",
                              "url(\"", "url(data", "fetch(", "XMLHttpRequest", "WebSocket",
                              "import(", "<link", "<img", "<iframe", "sendBeacon", "eval("})
    EXPECT_EQ(page.find(request), std::string::npos) << request;
  // What there is of url(…) points into the page.
  EXPECT_EQ(count_of(page, "url("), count_of(page, "url(#"));
  EXPECT_NE(page.find("content=\"default-src 'none'; style-src 'unsafe-inline'; "
                      "script-src 'unsafe-inline'\""),
            std::string::npos);
}

TEST(PlanPage, TellsItsLanguageAndWidthAndServesReadersWithoutScripts) {
  const std::string page = plan_page(kPlan);
  EXPECT_EQ(page.rfind("<!doctype html>\n", 0), 0U);
  for (const char* part :
       {"<html lang=\"en\">", "name=\"viewport\"", "<a class=\"skip\" href=\"#main\">",
        "<main id=\"main\"", "@media print"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_NE(between(page, "<noscript>", "</noscript>").find("fits: needs 62.0 GiB"),
            std::string::npos);
}

TEST(PlanPage, FileIsCompleteOrAsBefore) {
  const TempFolder folder;
  const fs::path path = folder / "plan.html";
  write_plan_page(path, kPlan);
  EXPECT_EQ(read_text(path), plan_page(kPlan));
  message_of(Fault::file, [&] { write_plan_page(path, "{\"fits\": "); });
  EXPECT_EQ(read_text(path), plan_page(kPlan));
  write_plan_page(path, "{}");
  EXPECT_EQ(read_text(path), plan_page("{}"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
  const std::string message =
      message_of(Fault::file, [&] { write_plan_page(folder / "none/plan.html", kPlan); });
  EXPECT_NE(message.find("none/plan.html"), std::string::npos) << message;
}

}  // namespace
}  // namespace capstan::cli
