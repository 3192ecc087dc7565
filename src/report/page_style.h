#pragma once

#include <string_view>

namespace capstan {

// The style sheet of report_html. Each colour is defined once for light and once for dark.
inline constexpr std::string_view kPageStyle = R"css(
:root { --ground: #f6f8fa; --card: #fff; --ink: #1f2328; --soft: #59636e; --edge: #d8dee4;
  --blue: #2f81f7; --pale: #cfe2fd; --good: #1a7f37; --warn: #9a6700; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #0d1117; --card: #151b23; --ink: #e6edf3; --soft: #9198a1; --edge: #2f3742;
    --blue: #4493f8; --pale: #1d3a63; --good: #3fb950; --warn: #d29922; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 960px; margin: 0 auto; padding: 32px 20px 48px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 0 0 12px; }
p { margin: 0; } .soft, figcaption, .tile span { color: var(--soft); }
.verdict { font-size: 17px; margin: 8px 0 4px; }
.verdict b { color: var(--good); } .verdict b.early { color: var(--warn); }
section { background: var(--card); border: 1px solid var(--edge); border-radius: 10px;
  padding: 18px 20px; margin-top: 18px; break-inside: avoid; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(120px, 1fr)); gap: 12px;
  margin-top: 20px; }
.tile { background: var(--card); border: 1px solid var(--edge); border-radius: 10px;
  padding: 12px 14px; }
.tile span { display: block; font-size: 12.5px; }
.tile strong { font-size: 19px; white-space: nowrap; font-weight: 600; font-variant-numeric: tabular-nums; }
.capstan-chart { width: 100%; height: auto; display: block; }
.narrow { display: none; max-width: 420px; margin: 0 auto; }
.scroll { overflow-x: auto; }
.capstan-chart text { fill: var(--soft); }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th { font-weight: 500; color: var(--soft); font-size: 13px; text-align: right; }
td { text-align: right; white-space: nowrap; } td, th { padding: 4px 0 4px 14px; }
th:first-child, td:first-child { text-align: left; padding-left: 0; white-space: normal; }
tbody tr { border-top: 1px solid var(--edge); }
td.bar { width: 34%; }
.notes td:last-child { text-align: left; white-space: normal; color: var(--soft); width: 60%; }
code, pre { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 13px; }
header code { overflow-wrap: anywhere; }
.track { position: relative; height: 14px; border-radius: 3px; overflow: hidden; }
.track i { position: absolute; left: 0; display: block; border-radius: 3px;
  print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.planned { top: 0; height: 14px; background: var(--pale); }
.measured { top: 3px; height: 8px; background: var(--blue); }
.key { display: inline-block; width: 12px; height: 10px; border-radius: 2px; margin: 0 5px 0 12px;
  print-color-adjust: exact; -webkit-print-color-adjust: exact; }
dl { columns: 2 340px; column-gap: 44px; margin: 0; font-variant-numeric: tabular-nums; }
dl div { display: flex; justify-content: space-between; gap: 16px; padding: 4px 0;
  break-inside: avoid; border-bottom: 1px solid var(--edge); }
dt { color: var(--soft); } dd { margin: 0; text-align: right; overflow-wrap: anywhere; }
figcaption { font-size: 13px; margin-top: 8px; } figure { margin: 0; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; }
.sample { border-left: 3px solid var(--blue); padding-left: 14px; }
.sample + .sample { margin-top: 14px; } .sample pre:nth-of-type(1) { color: var(--soft); }
.sample p { font-size: 13px; }
@media (max-width: 620px) {
  main { padding: 20px 12px 32px; } section { padding: 14px; }
  .wide, .optional, .ops .bar, .ops th:nth-child(2) { display: none; } .narrow { display: block; }
  td.bar { width: 24%; } td, th { padding-left: 8px; }
  .notes tr { display: grid; grid-template-columns: 1fr auto; }
  .notes td:last-child { grid-column: 1 / -1; width: auto; padding: 0 0 4px; }
  .notes td:last-child:empty { display: none; } }
@media print { body { background: #fff; font-size: 12px; } main { padding: 0; max-width: none; }
  section { padding: 10px 14px; margin-top: 10px; } td, th { padding: 2px 0 2px 12px; }
  .tiles { grid-template-columns: repeat(auto-fit, minmax(84px, 1fr)); gap: 8px; }
  .tile { padding: 6px 9px; } .tile strong { font-size: 14px; } .tile span { font-size: 11px; }
  dl { columns: 2 200px; column-gap: 28px; } dl div { padding: 2px 0; }
  @page { margin: 14mm; } }
)css";

}  // namespace capstan
