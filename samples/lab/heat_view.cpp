// Two tables with a colour for each number: what went wrong where, and when.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "files.h"
#include "lab_page.h"
#include "verdict.h"

using namespace halftape;
using report::escape;
using report::Page;

namespace lab {
namespace {

constexpr size_t kMostColumns = 14, kMostRows = 40;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Rows of shares by name, at the steps of the samples.
struct Map {
  std::vector<std::string> rows;  // in the order of their appearance
  std::map<std::string, std::map<int64_t, double>> cells;

  double& at(const std::string& row, int64_t step) {
    if (!cells.contains(row)) rows.push_back(row);
    return cells[row].try_emplace(step, kNan).first->second;
  }
  double worst(const std::string& row) const {
    double most = 0;
    for (const auto& [step, value] : cells.at(row))
      if (!std::isnan(value)) most = std::max(most, value);
    return most;
  }
  std::vector<int64_t> steps() const {
    std::set<int64_t> all;
    for (const auto& [row, values] : cells)
      for (const auto& [step, value] : values) all.insert(step);
    std::vector<int64_t> list(all.begin(), all.end()), chosen;
    for (const size_t i : spread(list.size(), kMostColumns)) chosen.push_back(list[i]);
    return chosen;
  }
  /// The rows with the largest numbers, in their order.
  std::vector<std::string> shown_rows() const {
    std::vector<std::string> sorted = rows;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](auto& a, auto& b) { return worst(a) > worst(b); });
    sorted.resize(std::min(sorted.size(), kMostRows));
    const std::set<std::string> chosen(sorted.begin(), sorted.end());
    std::vector<std::string> result;
    for (const std::string& row : rows)
      if (chosen.contains(row)) result.push_back(row);
    return result;
  }
};

Map errors(const LabRun& run) {
  Map map;
  for (const amp::LedgerRow& row : run.rows)
    if (row.error && !run.places[row.place].parameter.empty())
      map.at(run.places[row.place].parameter, row.step) = *row.error;
  return map;
}

Map lost(const LabRun& run) {
  std::map<std::pair<std::string, int64_t>, std::pair<int64_t, int64_t>> sums;  // gone, all
  Map map;
  for (const amp::LedgerRow& row : run.rows) {
    const amp::LedgerPlace& place = run.places[row.place];
    const auto share = row.lost();
    if (!is_16bit(place.dtype) || !share) continue;
    const std::string module = shown(place.module);
    const int64_t all = row.shadow->numbers();
    auto& sum = sums[{module, row.step}];
    sum.first += std::llround(*share * static_cast<double>(all));
    sum.second += all;
    map.at(module, row.step) = static_cast<double>(sum.first) / static_cast<double>(sum.second);
  }
  std::reverse(map.rows.begin(), map.rows.end());  // from backward's order to the model's
  return map;
}

/// 0 … 9: the colour of a number between `pale` and `strong`, by its logarithm.
int shade(double value, double pale, double strong) {
  if (std::isnan(value) || value <= pale) return 0;
  const double part = std::log(std::min(value, strong) / pale) / std::log(strong / pale);
  return std::clamp(static_cast<int>(std::lround(9 * part)), 0, 9);
}

void table(Page& page, const Map& map, std::string_view what, std::string_view of, double pale,
           double strong) {
  const std::vector<int64_t> steps = map.steps();
  const std::vector<std::string> rows = map.shown_rows();
  open_wide(page, what);
  page.add(
      "<table class=\"map\"><caption><span>{}, in percent{}</span></caption><thead><tr><th "
      "scope=\"col\">{} / step</th>",
      what,
      rows.size() < map.rows.size()
          ? fmt::format("; the {} largest of {}", rows.size(), map.rows.size())
          : "",
      of);
  for (const int64_t step : steps) page.add("<th scope=\"col\" class=\"n\">{}</th>", step);
  page.raw("</tr></thead><tbody>\n");
  for (const std::string& row : rows) {
    page.add("<tr><th scope=\"row\">{}</th>", escape(row));
    for (const int64_t step : steps) {
      const auto& cells = map.cells.at(row);
      const auto cell = cells.find(step);
      const double value = cell == cells.end() ? kNan : cell->second;
      page.add("<td class=\"c{}\">{}", shade(value, pale, strong), percent_number(value));
    }
    page.raw("\n");
  }
  page.raw("</tbody></table>");
  close_wide(page);
}

}  // namespace

void heat_maps(Page& page, const LabRun& run) {
  if (run.dtype == kFloat32) return;
  page.raw("<h2>What was lost, and what that did</h2>\n");
  const Map error = errors(run), gone = lost(run);
  if (error.rows.empty() && gone.rows.empty()) {
    page.raw("<p>No step was compared with float32: <code>--shadow-every</code> was 0.</p>\n");
    return;
  }
  page.raw(
      "<p>Every number compares a step with the same batch in float32. The stronger the colour, "
      "the worse. "
      "Much may be lost before a weight gradient feels it: it is a sum over the batch.</p>\n");
  if (!error.rows.empty())
    table(page, error, "Error of the weight gradients", "parameter", 1e-3, 1);
  if (!gone.rows.empty())
    table(page, gone, "Share of activation gradients that became zero", "module", 1e-2, 1);
}

}  // namespace lab
