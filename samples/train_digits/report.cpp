// The HTML page about a comparison of precisions: a result table, curves and histograms in SVG.
#include "report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <limits>
#include <random>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "curves.h"
#include "histograms.h"
#include "page.h"

namespace report {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

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
th, td { padding: 8px 12px; border-bottom: 1px solid #e4e8ec; vertical-align: middle; }
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
  .charts, .pair, .one { grid-template-columns: 1fr; } .wide { overflow-x: auto; } }
@media print { @page { margin: 14mm; } body { padding: 0; font-size: 11pt; max-width: none; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  .heat { font-size: 9pt; } h1 { font-size: 22pt; } h2 { font-size: 15pt; margin-top: 26px; } h3 { font-size: 12pt; }
  table { font-size: 9pt; } th { font-size: 8pt; } th, td { padding: 4px 6px; }
  .bar { min-width: 60px; } .legend { font-size: 9pt; } figure { margin-bottom: 8px; }
  h2, h3, h2 + p, h3 + p, .legend { break-after: avoid; }
  .charts, table, dl, svg { break-inside: avoid; } }
)css";

std::string number_word(size_t n) {
  constexpr std::string_view kWords[] = {"no", "one", "two", "three", "four", "five", "six"};
  return n < std::size(kWords) ? std::string(kWords[n]) : fmt::format("{}", n);
}

void heading(Page& page, const Report& r) {
  const std::string title =
      r.runs.size() == 1 ? fmt::format("One network in {}", escape(r.runs[0].title))
                         : fmt::format("One network in {} precisions", number_word(r.runs.size()));
  page.add(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>{1}</style></head><body>\n<h1>{0}</h1>\n<p>",
      title, kStyle);
  if (r.runs.size() > 1) {
    page.raw(
        "The same network is trained from the same start on the same batches; only the "
        "number format of the arithmetic changes. ");
  }
  if (r.loss_weight == 1) {
    page.raw("The loss is not weighted.</p>\n");
  } else {
    page.add("The loss is multiplied by {} on purpose, and its gradients with it{}.</p>\n",
             weight_text(r.loss_weight),
             std::abs(r.loss_weight) < 1
                 ? ": without that, a network this small rarely needs loss scaling"
                 : "");
  }
}

void result_table(Page& page, const Report& r) {
  const bool scaled =
      std::any_of(r.runs.begin(), r.runs.end(), [](const Run& run) { return !run.scale.empty(); });
  const auto exact = std::find_if(r.runs.begin(), r.runs.end(),
                                  [](const Run& run) { return run.name == "float32"; });
  const bool compare = r.runs.size() > 1 && exact != r.runs.end() && !exact->test_accuracy.empty();
  page.add(
      "<div class=\"wide\"><table><thead><tr><th>precision</th><th class=\"n\">test "
      "accuracy</th><th style=\"width:22%\"></th>{}<th class=\"n\">loss, last epoch</th>{}"
      "<th class=\"n\">time</th></tr></thead><tbody>\n",
      compare ? "<th class=\"n\">to float32</th>" : "",
      scaled ? "<th class=\"n\">skipped steps</th><th class=\"n\">last scale</th>" : "");
  for (size_t i = 0; i < r.runs.size(); ++i) {
    const Run& run = r.runs[i];
    const double accuracy = run.test_accuracy.empty() ? kNan : run.test_accuracy.back();
    const std::string c = colour(r.runs, i);
    page.add("<tr><td><span class=\"swatch\" style=\"background:{}\"></span>{}</td>", c,
             escape(run.title));
    page.add(
        "<td class=\"n big\">{}</td><td><div class=\"bar\"><div style=\"width:{:.1f}%;"
        "background:{}\"></div></div></td>",
        std::isfinite(accuracy) ? fmt::format("{:.2f} %", accuracy) : "–",
        std::isfinite(accuracy) ? std::clamp(accuracy, 0.0, 100.0) : 0.0, c);
    if (compare) {
      const double gap = std::round(100 * (accuracy - exact->test_accuracy.back())) / 100;
      page.add("<td class=\"n\">{}</td>", &run == &*exact || !std::isfinite(gap)
                                              ? "–"
                                              : fmt::format("{}{:.2f}",
                                                            gap < 0   ? "−"
                                                            : gap > 0 ? "+"
                                                                      : "±",
                                                            std::abs(gap)));
    }
    page.add("<td class=\"n\">{}</td>", loss_text(last_loss(run)));
    if (scaled && run.scale.empty()) page.raw("<td class=\"n\">–</td><td class=\"n\">–</td>");
    if (scaled && !run.scale.empty()) {
      page.add("<td class=\"n\">{} of {}</td><td class=\"n\">{}</td>", run.skipped_steps.size(),
               std::max(run.loss.size(), run.scale.size()), power(run.scale.back()));
    }
    page.add("<td class=\"n\">{:.1f} s</td></tr>\n", run.seconds);
  }
  page.raw("</tbody></table></div>\n");
}

void provenance(Page& page, const Report& r) {
  page.raw("<h2>How this was made</h2>\n<dl>\n");
  if (!r.command.empty()) page.add("<dt>command</dt><dd><code>{}</code></dd>\n", escape(r.command));
  const std::pair<std::string_view, const std::string&> lines[] = {
      {"data", r.data}, {"model", r.model}, {"seed", r.seed}};
  for (const auto& [name, value] : lines) {
    if (!value.empty()) page.add("<dt>{}</dt><dd>{}</dd>\n", name, escape(value));
  }
  page.add("<dt>loss weight</dt><dd>{}</dd>\n", weight_text(r.loss_weight));
  if (r.steps_per_epoch > 0) page.add("<dt>steps per epoch</dt><dd>{}</dd>\n", r.steps_per_epoch);
  page.raw("</dl>\n");
}

std::string html(const Report& r) {
  Page page;
  heading(page, r);
  result_table(page, r);
  if (!r.runs.empty()) {
    const Time time = time_axis(r);
    page.raw("<h2>Learning</h2>\n");
    legend(page, r);
    page.raw("<div class=\"charts\"><div><h3>Training loss, without its weight</h3>\n");
    loss_chart(page, r, time);
    page.raw("</div><div><h3>Test accuracy</h3>\n");
    accuracy_chart(page, r);
    page.raw("</div></div>\n<h2>The loss scale</h2>\n");
    if (std::all_of(r.runs.begin(), r.runs.end(), [](const Run& run) { return run.scale.empty(); }))
      page.add("<p>{} its loss.</p>\n",
               r.runs.size() == 1 ? "This run does not scale" : "None of these runs scales");
    else {
      page.raw(
          "<p>A cross marks a step whose gradients overflowed: it is skipped, and the scale "
          "falls. After a run of finite steps the scale grows again, in search of the "
          "largest one that fits.</p>\n");
      scale_chart(page, r, time);
    }
  }
  if (!r.before.empty() || !r.after.empty()) {
    page.raw("<h2>Where the gradients live</h2>\n");
    histograms(page, r);
    if (!r.before.empty()) scale_table(page, r);
  }
  provenance(page, r);
  page.raw("</body></html>\n");
  return page.text();
}

}  // namespace

double last_loss(const Run& run) {
  if (run.loss.empty()) return kNan;
  const size_t n =
      std::max<size_t>(1, run.loss.size() / std::max<size_t>(1, run.test_accuracy.size()));
  double sum = 0;
  for (size_t i = run.loss.size() - n; i < run.loss.size(); ++i) sum += run.loss[i];
  return std::isfinite(sum) ? sum / static_cast<double>(n) : kNan;
}

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
  throw std::runtime_error(fmt::format("cannot write {}: {}", path, reason));
}

std::string system_reason() { return std::generic_category().message(errno); }

/// A new file beside `path`, to become `path` when it is complete.
struct Temporary {
  explicit Temporary(const std::string& path)
      : name(fmt::format("{}.{:08x}.tmp", path, std::random_device{}())) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (fs::is_directory(status)) fail(path, "it is a folder");
    if (fs::exists(status) && !fs::is_regular_file(status)) fail(path, "it is not a regular file");
    file = std::fopen(name.c_str(), "wb");
    if (!file) fail(path, system_reason());
  }
  ~Temporary() {
    if (file) std::fclose(file);
    std::error_code error;
    fs::remove(name, error);  // finds nothing once it was renamed
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  std::string name;
  std::FILE* file = nullptr;
};

}  // namespace

void check_writable(const std::string& path) { const Temporary probe(path); }

void write_html(const std::string& path, const Report& report) {
  const std::string text = html(report);
  Temporary temporary(path);
  if (std::fwrite(text.data(), 1, text.size(), temporary.file) != text.size())
    fail(path, system_reason());
  if (std::fclose(std::exchange(temporary.file, nullptr)) != 0) fail(path, system_reason());
  std::error_code error;
  fs::rename(temporary.name, path, error);
  if (error) fail(path, error.message());
}

}  // namespace report
