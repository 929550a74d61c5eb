// The HTML page about a comparison of precisions: a result table, curves and histograms in SVG.
#include "report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "curves.h"
#include "file.h"
#include "histograms.h"
#include "page.h"

namespace report {
namespace {

std::string number_word(size_t n) {
  constexpr std::string_view kWords[] = {"no", "one", "two", "three", "four", "five", "six"};
  return n < std::size(kWords) ? std::string(kWords[n]) : fmt::format("{}", n);
}

void heading(Page& page, const Report& r) {
  const std::string title =
      r.runs.size() == 1 ? fmt::format("One network in {}", escape(r.runs[0].title))
                         : fmt::format("One network in {} precisions", number_word(r.runs.size()));
  open_page(page, title);
  page.raw("<p>");
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
          "largest one that fits.</p>\n<div class=\"wide\">\n");
      scale_chart(page, r, time);
      page.raw("</div>\n");
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

void write_html(const std::string& path, const Report& report) { write_page(path, html(report)); }

}  // namespace report
