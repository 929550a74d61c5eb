#include "lab_page.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "file.h"
#include "files.h"
#include "verdict.h"

using namespace halftape;
using report::escape;
using report::Page;
using report::power;

namespace lab {
namespace {

constexpr size_t kMostLines = 40;  // of a table about events; the CSV file has them all

constexpr std::string_view kStyle = R"css(
.verdict { font-size: 21px; line-height: 1.4; max-width: 40em; padding: 14px 18px; margin: 18px 0;
  border-left: 5px solid #3d7f4a; background: #f0f7f1; }
.verdict.bad { border-color: #b5402a; background: #fcefec; }
.wide { overflow-x: auto; }
.wide:focus-visible, select:focus-visible, input:focus-visible, summary:focus-visible {
  outline: 3px solid #1f5fa8; outline-offset: 2px; }
.list { font-size: 14px; } .list th, .list td { padding: 4px 8px; }
.map { font-size: 13px; width: auto; min-width: 50%; }
.map th, .map td { padding: 4px 8px; }
.map td { text-align: right; border: 1px solid #fff; min-width: 3.6em; }
.map tbody th { border-bottom-color: #fff; }
#panel svg { max-width: 900px; }
.halo { stroke: #fff; stroke-width: 4px; paint-order: stroke; }
.map tbody th { font-weight: 400; font-size: 13px; color: #22272e; white-space: nowrap; }
td.t { white-space: normal; min-width: 18em; }
caption { text-align: left; color: #5a6572; font-size: 14px; padding-bottom: 6px; }
caption span { display: inline-block; position: sticky; left: 0; max-width: min(46em, calc(100vw - 40px)); }
summary { cursor: pointer; color: #1f5fa8; margin: 8px 0; font: 15px system-ui, sans-serif; }
.controls { display: flex; flex-wrap: wrap; gap: 12px 26px; align-items: end; margin: 14px 0;
  font: 15px system-ui, "Segoe UI", Roboto, Arial, sans-serif; }
.controls label { display: grid; gap: 4px; }
.controls .slide { flex: 1 1 320px; }
.controls select { font: inherit; padding: 5px; max-width: 16em; }
.controls input { width: 100%; height: 28px; margin: 0; accent-color: #1f5fa8; }
.trio { display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); gap: 18px 26px; }
.c1 { background: rgba(200,70,45,0.06); } .c2 { background: rgba(200,70,45,0.12); } .c3 { background: rgba(200,70,45,0.18); }
.c4 { background: rgba(200,70,45,0.24); } .c5 { background: rgba(200,70,45,0.30); } .c6 { background: rgba(200,70,45,0.36); }
.c7 { background: rgba(200,70,45,0.42); } .c8 { background: rgba(200,70,45,0.48); } .c9 { background: rgba(200,70,45,0.54); }
@media screen and (max-width: 760px) { .wide svg { min-width: 620px; } .verdict { font-size: 18px; } dl { grid-template-columns: 1fr; } dd { margin-bottom: 8px; }
  #panel svg .zone, #panel svg .tick { font-size: 18px; } #panel svg .share { font-size: 20px; } #panel svg tspan { font-size: 15px; } }
@media print { .controls, #script_note { display: none; } .wide { overflow: visible; } .list { font-size: 14px; } .list th, .list td { padding: 4px 8px; }
.map { font-size: 8pt; }
  .verdict { font-size: 12pt; } }
)css";

std::string precision_text(const LabRun& run) {
  if (run.dtype == kFloat32) return "float32";
  return fmt::format("{}{}", name(run.dtype), run.scaled ? " with a GradScaler" : ", not scaled");
}

bool is_bad(const LabRun& run) {
  if (run.dtype == kFloat32 || run.trials.empty()) return false;
  const LabRun::Trials& end = run.trials.back();
  const Range range = useful_range(end.at, good_error(end.at));
  return !range.smallest || end.scale < *range.smallest ||
         (end.scale > *range.largest && !range.open);
}

void introduction(Page& page, const LabRun& run) {
  std::string text = verdict(run);
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  page.add("<p class=\"verdict{}\">{}.</p>\n<p>", is_bad(run) ? " bad" : "", with_powers(text));
  page.add(
      "{} of {} steps{}, {} of them skipped. ", run.steps.size(), run.planned_steps,
      static_cast<int64_t>(run.steps.size()) < run.planned_steps ? ", then stopped by Ctrl-C" : "",
      std::count_if(run.steps.begin(), run.steps.end(), [](auto& s) { return s.skipped; }));
  if (!run.measures.empty())
    page.add("At the end, {}: {:.4g}. ", escape(run.measure), run.measures.back().value);
  if (run.loss_weight != 1)
    page.add("The loss was multiplied by {} on purpose, and its gradients with it. ",
             report::weight_text(run.loss_weight));
  page.raw(
      "A number is <i>lost</i> where float32 has one that is not zero and 16 bits keep a zero. The "
      "<i>error</i> of a weight gradient g is ‖g/S − f‖ / ‖f‖, where f is the gradient of the same "
      "batch in float32: it is the error that training feels.</p>\n");
}

/// "The last 40 of 812; overflows.csv has all."
void note_left_out(Page& page, size_t all, const char* file) {
  if (all > kMostLines)
    page.add("<p>The last {} of {} are shown; <code>{}</code> has all of them.</p>\n", kMostLines,
             all, file);
}

void overflow_section(Page& page, const LabRun& run) {
  page.raw("<h2>Overflows</h2>\n");
  if (run.overflows.empty()) {
    page.add("<p>No step {}.</p>\n",
             run.scaled ? "was skipped" : "gave a number that is not finite");
    return;
  }
  page.raw(
      run.scaled
          ? "<p>Of each skipped step: the first number that was not finite. The step was computed "
            "again at smaller scales; the last column is the largest one that would have passed. A "
            "few skips are how the scaler finds the largest scale, and no fault.</p>\n"
          : "<p>Of each step whose loss or weight gradients were not finite: the first number that "
            "was not. Without a scaler such a step is taken all the same.</p>\n");
  note_left_out(page, run.overflows.size(), "overflows.csv");
  open_wide(page, "overflows");
  page.raw(
      "<table class=\"list\"><thead><tr><th scope=\"col\" class=\"n\">step</th><th scope=\"col\" "
      "class=\"n\">scale"
      "</th><th scope=\"col\">where</th><th scope=\"col\">op</th><th scope=\"col\">module</th>"
      "<th scope=\"col\">number</th><th scope=\"col\">parameter</th>"
      "<th scope=\"col\" class=\"n\">largest scale that passes</th></tr></thead><tbody>\n");
  const size_t n = run.overflows.size();
  for (size_t i = n - std::min(n, kMostLines); i < n; ++i) {
    const amp::Overflow& o = run.overflows[i];
    const auto passes = o.largest_scale_that_passes;
    page.add("<tr><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td><td>{}</td>", o.step,
             power(o.scale), where_name(o.where), o.op.empty() ? "–" : escape(o.op));
    page.add("<td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td></tr>\n",
             escape(shown(o.module)), o.nan ? "NaN" : "infinite",
             o.parameter.empty() ? "–" : escape(o.parameter),
             !passes        ? "not tried"
             : *passes == 0 ? "none"
                            : power(*passes));
  }
  page.raw("</tbody></table>");
  close_wide(page);
}

void alarm_section(Page& page, const LabRun& run) {
  page.raw("<h2>Alarms</h2>\n");
  if (run.alarms.empty()) {
    page.raw(
        "<p>None: no module lost most of its gradients and its weight gradients with them, nothing "
        "stood still, and the scale moved within its bounds.</p>\n");
    return;
  }
  note_left_out(page, run.alarms.size(), "alarms.csv");
  open_wide(page, "alarms");
  page.raw(
      "<table class=\"list\"><thead><tr><th scope=\"col\" class=\"n\">step</th><th "
      "scope=\"col\">alarm</th>"
      "<th scope=\"col\">where</th><th scope=\"col\">what it means, and what to "
      "do</th></tr></thead>"
      "<tbody>\n");
  const size_t n = run.alarms.size();
  for (size_t i = n - std::min(n, kMostLines); i < n; ++i) {
    const amp::Alarm& a = run.alarms[i];
    page.add("<tr><td class=\"n\">{}</td><td>{}</td><td>{}</td><td class=\"t\">{}</td></tr>\n",
             a.step, alarm_name(a.kind), a.where.empty() ? "–" : escape(a.where),
             with_powers(a.text));
  }
  page.raw("</tbody></table>");
  close_wide(page);
}

void provenance(Page& page, const LabRun& run) {
  page.raw("<h2>How this was made</h2>\n<dl>\n");
  for (const auto& [name, text] : run.settings) {
    const bool code = name == "command";
    page.add("<dt>{}</dt><dd>{}{}{}</dd>\n", escape(name), code ? "<code>" : "",
             code ? escape(text) : with_powers(text), code ? "</code>" : "");
  }
  page.raw(
      "<dt>beside this page</dt><dd><code>steps.csv</code>, <code>ledger.csv</code>, "
      "<code>overflows.csv</code>, "
      "<code>alarms.csv</code>, and histograms for TensorBoard in <code>tensorboard</code></dd>\n"
      "</dl>\n");
}

}  // namespace

std::string with_powers(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const bool power = text.substr(i).starts_with("2^") && (i == 0 || !std::isalnum(text[i - 1]));
    size_t end = i + 2;
    if (power && end < text.size() && text[end] == '-') ++end;
    while (power && end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
    if (power && end > i + 2 && text[end - 1] != '-') {
      const bool negative = text[i + 2] == '-';
      out += fmt::format("2<sup>{}{}</sup>", negative ? "−" : "",
                         text.substr(i + 2 + negative, end - i - 2 - negative));
      i = end;
    } else {
      size_t next = i + 1;  // the whole of a character of several bytes
      while (next < text.size() && (static_cast<unsigned char>(text[next]) & 0xc0) == 0x80) ++next;
      out += escape(text.substr(i, next - i));
      i = next;
    }
  }
  return out;
}

std::vector<size_t> spread(size_t all, size_t most) {
  std::vector<size_t> chosen;
  const size_t n = std::min(all, most);
  for (size_t i = 0; i < n; ++i) chosen.push_back(n == 1 ? all - 1 : i * (all - 1) / (n - 1));
  return chosen;
}

std::string percent_number(double share) {
  if (std::isnan(share)) return "–";
  if (!std::isfinite(share)) return "∞";
  const double p = 100 * share;
  if (p == 0) return "0";
  if (p < 0.005) return "&lt;0.01";
  if (p > 99.9 && p < 100) return "&gt;99.9";
  return fmt::format("{:.{}f}", p, p < 1 ? 2 : p < 99.95 ? 1 : 0);
}

void open_wide(Page& page, std::string_view label) {
  page.add("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">", escape(label));
}
void close_wide(Page& page) { page.raw("</div>\n"); }

std::string html(const LabRun& run) {
  Page page;
  report::open_page(page, fmt::format("{} in {}", escape(run.training), precision_text(run)),
                    kStyle);
  page.raw("<main>\n");
  introduction(page, run);
  course(page, run);
  heat_maps(page, run);
  ledger_view(page, run);
  overflow_section(page, run);
  alarm_section(page, run);
  scales_view(page, run);
  provenance(page, run);
  page.raw("</main>\n</body></html>\n");
  return page.text();
}

}  // namespace lab
