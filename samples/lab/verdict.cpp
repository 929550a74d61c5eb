#include "verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

using namespace halftape;

namespace lab {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// "0.07 %" or "12 %": two digits, and never 0 % of something.
std::string share_text(double share) {
  if (std::isnan(share)) return "–";
  if (!std::isfinite(share)) return "infinite";
  const double p = 100 * share;
  if (p == 0 || p == 100) return fmt::format("{:.0f} %", p);
  if (p > 99.9 && p < 100) return "> 99.9 %";
  if (p < 0.01) return "< 0.01 %";
  return fmt::format("{:.{}f} %", p, p < 1 ? 2 : p < 99.95 ? 1 : 0);
}

std::string range_text(const Range& range) {
  return fmt::format("from {} to {}{}", power_text(*range.smallest), power_text(*range.largest),
                     range.open ? " or more" : "");
}

/// The parameter whose gradient is worst at the best scale for it, and how far it is off there.
std::pair<std::string, double> worst(const amp::ScaleTrials& trials) {
  std::pair<std::string, double> result{"", 0};
  for (size_t p = 0; p < trials.parameters.size(); ++p) {
    double best = std::numeric_limits<double>::infinity();
    for (const auto& trial : trials.trials)
      if (std::isfinite(trial.errors[p])) best = std::min(best, trial.errors[p]);
    if (best >= result.second) result = {trials.parameters[p], best};
  }
  return result;
}

/// The loss of the module that loses most at the trial whose scale is nearest to `scale`.
double largest_error(const amp::ScaleTrials& trials, double scale) {
  size_t nearest = 0;
  const auto distance = [&](size_t i) {
    return std::abs(std::log2(trials.trials[i].scale) - std::log2(scale));
  };
  for (size_t i = 0; i < trials.trials.size(); ++i)
    if (distance(i) < distance(nearest)) nearest = i;
  double most = 0;
  for (const double error : trials.trials[nearest].errors)
    if (!std::isnan(error)) most = std::max(most, error);
  return most;
}

std::string where_the_scale_is(const LabRun& run, const Range& range) {
  const LabRun::Trials& end = run.trials.back();
  const std::string stood = run.scaled
                                ? fmt::format("the scaler stood at {}", power_text(end.scale))
                                : "the loss was not scaled";
  if (end.scale > *range.largest && !range.open)
    return stood + ", which is too much: gradients overflow or are off";
  if (end.scale < *range.smallest)
    return fmt::format("{}, which is too little: weight gradients are off by {}", stood,
                       share_text(largest_error(end.at, end.scale)));
  return stood;
}

}  // namespace

std::string shown(std::string_view module) {
  return module.empty() ? "(outside)" : std::string(module);
}

std::string power_text(double value) {
  int exponent = 0;
  if (value > 0 && std::isfinite(value) && std::frexp(value, &exponent) == 0.5)
    return exponent == 1 ? "1" : fmt::format("2^{}", exponent - 1);
  return fmt::format("{:g}", value);
}

std::vector<ModuleLoss> losses(const amp::ScaleTrials& trials, size_t trial) {
  struct Sum {
    int64_t gone = 0, all = 0;
    double error = kNan;
  };
  std::vector<std::string> order;
  std::map<std::string, Sum> sums;
  const auto at = [&](const std::string& module) -> Sum& {
    if (!sums.contains(module)) order.push_back(module);
    return sums[module];
  };
  const auto& seen = trials.trials[trial];
  for (size_t p = 0; p < trials.parameters.size(); ++p) {
    Sum& sum = at(std::string(amp::module_of(trials.parameters[p])));
    const double error = seen.errors[p];
    if (!(sum.error >= error)) sum.error = std::isnan(error) ? sum.error : error;
  }
  for (size_t i = 0; i < trials.places.size(); ++i) {
    Sum& sum = at(trials.places[i].module);
    const int64_t all = trials.float32[i].numbers();
    sum.all += all;
    sum.gone += std::llround(trials.lost(trial, i) * static_cast<double>(all));
  }
  std::vector<ModuleLoss> result;
  for (const std::string& module : order) {
    const Sum& sum = sums[module];
    result.push_back(
        {shown(module),
         sum.all > 0 ? static_cast<double>(sum.gone) / static_cast<double>(sum.all) : kNan,
         sum.error});
  }
  return result;
}

double good_error(const amp::ScaleTrials& trials) {
  for (const double error : {0.01, 0.02, 0.05, 0.1})
    if (useful_range(trials, error).smallest) return error;
  return 0.01;
}

Range useful_range(const amp::ScaleTrials& trials, double error) {
  Range range;
  for (const amp::UsefulScales& module : amp::useful_scales(trials, error)) {
    if (!module.smallest || !module.largest) return {};
    range.smallest = std::max(range.smallest.value_or(0), *module.smallest);
    range.largest = std::min(range.largest.value_or(*module.largest), *module.largest);
  }
  if (!range.smallest || *range.smallest > *range.largest) return {};
  range.open = *range.largest == trials.trials.back().scale;
  return range;
}

std::string verdict(const LabRun& run) {
  if (run.dtype == kFloat32)
    return "all gradients are float32: nothing is lost, and no scale is needed";
  if (run.trials.empty() || run.trials.back().at.trials.empty())
    return "no scales were tried: the training ended before they could be";
  const LabRun::Trials& end = run.trials.back();
  const double error = good_error(end.at);
  const Range range = useful_range(end.at, error);
  if (!range.smallest) {
    const auto [name, off] = worst(end.at);
    if (off <= 0.1)
      return "no one scale brings the weight gradients of all modules within 10 % of float32";
    return fmt::format(
        "no scale from {} to {} brings all weight gradients within 10 % of float32: that of {} is "
        "off by {} at best",
        power_text(end.at.trials.front().scale), power_text(end.at.trials.back().scale), name,
        share_text(off));
  }
  std::string text = fmt::format("gradients within {:g} % of float32 for scales {}", 100 * error,
                                 range_text(range));
  if (run.trials.size() > 1) {
    const LabRun::Trials& middle = run.trials.front();
    const Range before = useful_range(middle.at, error);
    text += before.smallest ? fmt::format(" (after step {}: {})", middle.step, range_text(before))
                            : fmt::format(" (after step {}: for none)", middle.step);
  }
  return text + "; " + where_the_scale_is(run, range);
}

std::string scale_table(const LabRun::Trials& trials, const std::vector<int>& exponents) {
  std::vector<size_t> columns;
  for (const int e : exponents)
    for (size_t i = 0; i < trials.at.trials.size(); ++i)
      if (trials.at.trials[i].scale == std::ldexp(1.0, e)) columns.push_back(i);
  std::string text = fmt::format("{:<14}", "module");
  for (const size_t c : columns)
    text += fmt::format("{:>22}", "S = " + power_text(trials.at.trials[c].scale));
  text += fmt::format("\n{:<14}", "");
  for (size_t i = 0; i < columns.size(); ++i) text += fmt::format("{:>12}{:>10}", "lost", "error");
  text += '\n';
  std::vector<std::vector<ModuleLoss>> cells;
  for (const size_t c : columns) cells.push_back(losses(trials.at, c));
  for (size_t row = 0; !cells.empty() && row < cells[0].size(); ++row) {
    text += fmt::format("{:<14}", cells[0][row].module);
    for (const auto& column : cells)
      text +=
          fmt::format("{:>12}{:>10}", share_text(column[row].lost), share_text(column[row].error));
    text += '\n';
  }
  return text;
}

}  // namespace lab
