#include "report/page.h"

#include <gtest/gtest.h>

#include "report/well_formed.h"

namespace capstan {
namespace {

constexpr const char* kHostile = "</pre><script>alert('x')</script> & \"q\" \x01\xff";

RunSummary full_run() {
  RunSummary r;
  r.command = "capstan finetune";
  r.model = "small";
  r.steps = 30;
  r.total_steps = 1200;
  r.stopped_by = "SIGINT";
  r.trainable = 1100048384;
  r.train_seconds = 61;
  r.tokens_with_prompt = r.tokens_with_padding = 6100;
  r.flops = 3.05e12;
  r.peak_flops_per_second = 1e11;
  r.memory.planned_bytes = r.memory.measured_bytes = 10240;
  at(r.memory.planned, Category::weights) = 4096;
  at(r.memory.measured, Category::weights) = 2048;
  r.first_loss = 3;
  r.last_loss = 2;
  r.ops = {{.op = "linear", .calls = 1200, .cost = {.flops = 4e9, .bytes = 2e9}, .seconds = 2},
           {.op = "rope", .calls = 5, .cost = {.flops = 1, .bytes = 1}, .seconds = 1}};
  r.ops_seconds = 4;
  r.recipe = "train:\n  seed: 1\n";
  r.samples = {{.step = 1200, .prompt = "Once", .text = "upon a time"}};
  r.program = "0.1.0 (34d4793)";
  r.processor = "a processor";
  r.threads = 16;
  r.kernels = "OpenBLAS 0.3.21 SkylakeX";
  r.started = std::chrono::system_clock::from_time_t(1700000000);
  return r;
}

std::vector<MetricsRow> rows() {
  std::vector<MetricsRow> rows;
  for (int i = 1; i <= 30; ++i) rows.push_back({.step = i, .loss = 3.0 - i / 30.0});
  return rows;
}

// Less the style, which is no markup.
std::string without_style(const std::string& page) {
  const size_t begin = page.find("<style>"), end = page.find("</style>");
  return page.substr(0, begin) + page.substr(end + 8);
}

TEST(Page, SetsTheMeasuredStepBesideThePredictedOne) {
  RunSummary r = full_run();
  EXPECT_EQ(report_html(r, rows()).find("predicted"), std::string::npos);
  r.step_seconds = 0.198;
  r.predicted_seconds = 0.22;
  r.calibration = "a GPU <fast> of 2026-08-05";
  const std::string page = report_html(r, rows());
  for (const char* part : {">0.198 s (-10.0 %)<",
                           ">0.22 s, from the calibration of a GPU &lt;fast&gt; of 2026-08-05<"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
}

TEST(Page, HasARowForEachRankAndNamesTheSlowest) {
  RunSummary r = full_run();
  EXPECT_EQ(report_html(r, rows()).find("The ranks"), std::string::npos);
  r.ranks = {{.seconds = 10,
              .waited_seconds = 3,
              .planned_bytes = 2048,
              .measured_bytes = 2048,
              .tokens = 50},
             {.seconds = 10,
              .waited_seconds = 1,
              .planned_bytes = 1024,
              .measured_bytes = 1024,
              .tokens = 70}};
  r.hosts = {"node<1>", "node2"};
  r.strategy = "zero3";
  const std::string page = report_html(r, rows()), table = rank_table(r);
  for (const char* part :
       {"Strategy zero3. The slowest rank is 1", "<td>7.00 s</td><td>1.00 s</td><td>2.00 s</td>",
        "<td>9.00 s</td><td>1.00 s</td><td>0.00 s</td>", "node&lt;1&gt;", "<td>2.00 KiB</td>"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_NE(table.find("the slowest rank is 1"), std::string::npos) << table;
  EXPECT_NE(table.find("  1        9.00 s         1.00 s    0.00 s    1.00 KiB"), std::string::npos)
      << table;
}

TEST(Page, HasTheVerdictTheCurveTheNumbersTheOpsTheRecipeAndTheSamples) {
  const std::string page = report_html(full_run(), rows());
  EXPECT_EQ(fault_in_markup(without_style(page)), "");
  for (const char* part :
       {"<title>small · Capstan</title>", "Stopped by SIGINT after 30 of 1200 steps in 1:01",
        "class=\"early\"", "<svg ", ">1,100,048,384<", ">30 of 1,200<", ">3.05 TFLOP<",
        ">50 GFLOP/s<", ">50.0 %<", ">100.0<", ">2023-11-14 22:13:20 UTC<", ">linear<", ">2.0<",
        "train:\n  seed: 1\n", "upon a time", "<code>capstan finetune</code>", ">0.1.0 (34d4793)<",
        ">a processor, 16 threads<", ">after step 1,200<"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_NE(page.find("<dt>Matrix products</dt><dd>OpenBLAS 0.3.21 SkylakeX</dd>"),
            std::string::npos);
}

TEST(Page, ShowsMemoryAsBarsOfTheAllocation) {
  const std::string page = report_html(full_run(), {});
  EXPECT_NE(page.find("<tr><td>weights</td><td class=\"bar\"><div class=\"track\">"
                      "<i class=\"planned\" style=\"width:40.00%\"></i>"
                      "<i class=\"measured\" style=\"width:20.00%\"></i></div></td>"
                      "<td>4.00 KiB</td><td>2.00 KiB</td></tr>"),
            std::string::npos)
      << page;
  EXPECT_EQ(page.find("<td>gradients</td>"), std::string::npos) << "there are none";
}

TEST(Page, HasATableOfHostMemoryWhereThereIsAny) {
  RunSummary r = full_run();
  EXPECT_EQ(report_html(r, {}).find("host memory"), std::string::npos);
  r.host_memory.planned_bytes = r.host_memory.measured_bytes = 8192;
  at(r.host_memory.planned, Category::optimizer) = 4096;
  at(r.host_memory.measured, Category::optimizer) = 4096;
  const std::string page = report_html(r, {});
  EXPECT_EQ(fault_in_markup(without_style(page)), "");
  for (const char* part : {"<th>in host memory</th>", "<td>optimizer</td>", "width:50.00%",
                           "<span>host memory</span><strong>8.00 KiB</strong>"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
}

TEST(Page, OfAResumedRunSpansAllOfIt) {
  RunSummary r = full_run();
  EXPECT_EQ(report_html(r, {}).find("Resumed"), std::string::npos);
  r.resumed_after = 20;
  r.resumed = std::chrono::system_clock::from_time_t(1700003600);
  r.ended = std::chrono::system_clock::from_time_t(1700007200);
  const std::string page = report_html(r, {});
  for (const char* part :
       {"<dt>Started</dt><dd>2023-11-14 22:13:20 UTC", "<dt>Ended</dt><dd>2023-11-15 00:13:20 UTC",
        "<dt>Resumed</dt><dd>after step 20, 2023-11-14 23:13:20 UTC"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
}

// The rules for a phone: 390 pixels.
std::string narrow_rules(const std::string& page) {
  const size_t begin = page.find("@media (max-width: 620px) {");
  EXPECT_NE(begin, std::string::npos);
  return page.substr(begin, page.find("@media print") - begin);
}

TEST(Page, TablesStayInTheirCards) {
  RunSummary r = full_run();
  r.host_memory = r.memory;
  r.gpu = GpuUse{};
  const std::string page = report_html(r, rows());
  EXPECT_EQ(count_of(page, "<table"), 4u);
  size_t inside = 0;
  for (const char* table : {"<table>", "<table class=\"ops\">", "<table class=\"notes\">"})
    inside += count_of(page, std::string("<div class=\"scroll\">") + table);
  EXPECT_EQ(inside, 4u) << "each scrolls in its card where it is too wide";
  EXPECT_NE(page.find(".scroll { overflow-x: auto; }"), std::string::npos);
  const std::string narrow = narrow_rules(page);
  for (const char* rule : {".ops .bar", ".notes tr { display: grid;", ".optional"})
    EXPECT_NE(narrow.find(rule), std::string::npos) << rule;
}

// A wide picture in 336 pixels would have letters of 5: there is another one, of that width.
TEST(Page, APhoneGetsAChartWhoseLettersItDoesNotShrink) {
  const std::string page = report_html(full_run(), rows());
  const size_t wide = page.find("<figure class=\"wide\"><svg "),
               narrow = page.find("<figure class=\"narrow\"><svg ");
  ASSERT_NE(wide, std::string::npos);
  ASSERT_NE(narrow, std::string::npos);
  EXPECT_NE(page.find("viewBox=\"0 0 860 420\"", wide), std::string::npos);
  EXPECT_NE(page.find("viewBox=\"0 0 340 300\"", narrow), std::string::npos);
  EXPECT_NE(page.find("font-size=\"12\"", narrow), std::string::npos);
  EXPECT_NE(page.find(".narrow { display: none;"), std::string::npos);
  EXPECT_NE(narrow_rules(page).find(".narrow { display: block; }"), std::string::npos);
  EXPECT_NE(narrow_rules(page).find(".wide, "), std::string::npos);
}

TEST(Page, EscapesEveryText) {
  RunSummary r = full_run();
  r.command = r.model = r.device = r.precision = r.stopped_by = r.checkpoint = r.recipe = kHostile;
  r.program = r.processor = kHostile;
  r.samples = {{.prompt = kHostile, .text = kHostile}};
  r.ops[0].op = "<script>";
  const std::string page = report_html(r, rows());
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find('\x01'), std::string::npos);
  EXPECT_EQ(page.find('\xff'), std::string::npos);
  EXPECT_EQ(fault_in_markup(without_style(page)), "");
}

TEST(Page, OfARunThatDidNothingIsWholeAndHasNoEmptySections) {
  const std::string page = report_html({}, {});
  EXPECT_EQ(fault_in_markup(without_style(page)), "");
  EXPECT_EQ(count_of(page, "<section>"), 1u) << "the numbers";
  EXPECT_EQ(page.find("<svg"), std::string::npos);
  EXPECT_EQ(page.find("nan"), std::string::npos);
  EXPECT_EQ(page.find("1970"), std::string::npos) << "no time is not the first of January";
}

TEST(Page, NeedsNothingElse) {
  const std::string page = report_html(full_run(), rows());
  for (const char* link : {"href", "src=", "url(", "@import", "<script"})
    EXPECT_EQ(page.find(link), std::string::npos) << link;
  EXPECT_EQ(count_of(page, "http"), 3u) << "a policy's http-equiv, and SVG's name for two charts";
}

}  // namespace
}  // namespace capstan
