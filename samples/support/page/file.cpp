// Pages written whole or not at all, and how they look.
#include "file.h"

#include <halftape/halftape.h>

#include <string_view>

namespace report {
namespace {

// In the dark, brightness is turned round and hues stay: charts have their colours in their lines.
constexpr std::string_view kStyle = R"css(
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 44px 32px 64px; max-width: 1144px; background: #fff; color: #22272e;
  font: 17px/1.55 Charter, "Bitstream Charter", "Source Serif Pro", Georgia, "Liberation Serif", serif; }
h1 { font-size: 34px; line-height: 1.2; margin: 0 0 12px; letter-spacing: -0.01em; }
h2 { font-size: 23px; margin: 46px 0 8px; padding-top: 14px; border-top: 1px solid #d9dee4; }
h3 { font-size: 18px; margin: 30px 0 4px; }
p { margin: 8px 0 14px; max-width: 46em; }
sup, sub { font-size: 0.7em; line-height: 0; }
table, svg, .legend, .side, figcaption, dt { font-family: system-ui, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, "Liberation Sans", sans-serif; }
table { border-collapse: collapse; width: 100%; font-size: 15px; margin: 18px 0;
  font-variant-numeric: tabular-nums; }
th { font-weight: 600; font-size: 13px; color: #5a6572; text-align: left; }
th, td { padding: 8px 10px; border-bottom: 1px solid #e4e8ec; vertical-align: middle; }
thead th { border-bottom: 2px solid #c6ced6; }
td { white-space: nowrap; }
.n { text-align: right; white-space: nowrap; }
.heat { font-size: 14px; }
.heat i { color: #7a4fa0; font-style: normal; white-space: nowrap; }
.swatch { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin-right: 9px; }
.bar { background: #eef1f4; width: 100%; min-width: 120px; height: 12px; border-radius: 3px; }
.bar div { height: 12px; border-radius: 3px; }
.big { font-weight: 650; }
svg { display: block; width: 100%; height: auto; }
.charts { display: grid; grid-template-columns: 640fr 420fr; gap: 20px; }
.charts h3 { margin-top: 6px; font-size: 16px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 24px; font-size: 14px; max-width: none; }
.legend em { color: #6a7480; font-style: normal; }
.key { display: inline-block; width: 28px; height: 10px; margin-right: 8px; }
figure { margin: 0 0 20px; break-inside: avoid; }
figcaption { font-size: 14px; color: #5a6572; margin: 6px 0 2px; }
figcaption b { color: #22272e; font-size: 15px; margin-right: 6px; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 28px; }
.one { display: grid; grid-template-columns: 1fr 1fr; gap: 0 28px; }
.one .pair { grid-template-columns: 1fr; }
.side { font-size: 13px; color: #5a6572; margin: 0 0 4px; }
.line { fill: none; stroke-linecap: round; stroke-linejoin: round; }
.grid { stroke: #dfe4e9; stroke-width: 0.8; }
.axis { stroke: #8b96a2; stroke-width: 1; }
.tick, .name { font-size: 11.5px; fill: #5a6572; }
.zone { font-size: 10.5px; fill: #3a424b; }
.share { font-size: 12px; font-weight: 650; fill: #22272e; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 6px 22px; margin: 14px 0; }
dt { color: #5a6572; font-size: 14px; padding-top: 2px; }
dd { margin: 0; overflow-wrap: anywhere; }
code { font: 14px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  background: #f2f4f6; padding: 2px 6px; border-radius: 4px; white-space: pre-wrap; }
@media screen and (max-width: 760px) { body { padding: 24px 16px; font-size: 16px; }
  .charts, .pair, .one { grid-template-columns: 1fr; } .wide, .charts div { overflow-x: auto; }
  .charts div:first-child svg { min-width: 520px; } .wide svg { min-width: 900px; } }
@media screen and (prefers-color-scheme: dark) {
  :root { background: #fff; filter: invert(0.9) hue-rotate(180deg); } }
@media print { @page { margin: 14mm; } body { padding: 0; font-size: 11pt; max-width: none; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  .heat { font-size: 9pt; } h1 { font-size: 22pt; } h2 { font-size: 15pt; margin-top: 26px; } h3 { font-size: 12pt; }
  table { font-size: 9pt; } th { font-size: 8pt; } th, td { padding: 4px 6px; }
  .bar { min-width: 60px; } .legend { font-size: 9pt; } figure { margin-bottom: 8px; }
  h2, h3, h2 + p, h3 + p, .legend { break-after: avoid; }
  .charts, table, dl, svg { break-inside: avoid; } }
)css";

}  // namespace

void check_writable(const std::string& path) { const halftape::OutputFile probe("page", path); }
void write_page(const std::string& path, const std::string& text) {
  halftape::write_file("page", path, text);
}

void open_page(Page& page, std::string_view title, std::string_view style) {
  page.add(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>{1}{2}</style></head><body>\n<h1>{0}</h1>\n",
      title, kStyle, style);
}

}  // namespace report
