// Pages and files of runs made by hand: long ones, odd names, nothing at all. Argument: a folder to
// write to, whose pages a browser can show.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "file.h"
#include "files.h"
#include "lab_page.h"
#include "verdict.h"

using namespace halftape;
namespace fs = std::filesystem;
using Place = amp::LedgerPlace;

namespace {

int failures = 0;

void check(bool good, const std::string& what) {
  if (good) return;
  ++failures;
  fmt::print("FAILED: {}\n", what);
}

/// Some numbers around 2^middle, and some zeros.
amp::ExponentCounts around(int middle, int64_t n) {
  amp::ExponentCounts counts;
  counts.slots[1] = n / 10;
  for (int e = middle - 12; e <= middle + 12; ++e)
    counts.slots[static_cast<size_t>(2 * (e + 127))] = static_cast<int64_t>(
        static_cast<double>(n) * std::exp(-0.03 * (e - middle) * (e - middle)));
  return counts;
}

/// As float16 stores `exact` times 2^shift.
amp::ExponentCounts stored(const amp::ExponentCounts& exact, int shift) {
  amp::ExponentCounts counts;
  counts.slots[1] = exact.zeros();
  for (int e = -126; e <= 127; ++e) {
    const int64_t n = exact.at(e);
    if (n == 0) continue;
    const int at = e + shift;
    counts.slots[at < -25 ? 1 : at >= 16 ? 511 : static_cast<size_t>(2 * (at + 127))] += n;
  }
  return counts;
}

amp::ClassCounts classes(const amp::ExponentCounts& c) {
  const lab::Classes k = lab::classes_of(c, kFloat16);
  return {{k.zero, k.subnormal, k.normal, k.large, k.inf, k.nan}};
}

/// Where the gradient of a module's output is stored, or that of its weight.
Place place_in(const std::string& module, Place::Kind kind) {
  Place place;
  place.kind = kind;
  place.op = "linear";
  place.module = module;
  if (kind == Place::Kind::Parameter)
    place.parameter = module + ".weight";
  else
    place.dtype = kFloat16;
  return place;
}

amp::Overflow overflow_in(const std::string& module, int64_t step) {
  amp::Overflow overflow;
  overflow.step = step;
  overflow.scale = 65536;
  overflow.op = "linear";
  overflow.module = module;
  overflow.dtype = kFloat16;
  overflow.parameter = module + ".weight";
  overflow.largest_scale_that_passes = 1024;
  return overflow;
}

amp::ScaleTrials trials_of(const std::vector<std::string>& modules) {
  amp::ScaleTrials trials;
  for (size_t i = 0; i < modules.size(); ++i) {
    trials.places.push_back(place_in(modules[i], Place::Kind::Gradient));
    trials.float32.push_back(around(-30 - static_cast<int>(i % 7), 5000));
    trials.parameters.push_back(modules[i] + ".weight");
  }
  for (int e = -10; e <= 40; ++e) {
    amp::ScaleTrials::Trial trial;
    trial.scale = std::ldexp(1.0, e);
    for (const amp::ExponentCounts& exact : trials.float32) {
      trial.seen.push_back(classes(stored(exact, e)));
      trial.errors.push_back(e > 36 ? INFINITY : std::exp2(-e) + 7e-4);
    }
    trial.overflows = e > 36;
    trials.trials.push_back(trial);
  }
  return trials;
}

LabRun make_run(const std::vector<std::string>& modules, int64_t steps, int64_t every) {
  LabRun run;
  run.training = "digits";
  run.settings = {{"command", "halftape-lab <digits> & more"}, {"seed", "0"}};
  run.planned_steps = steps;
  run.loss_weight = 1e-5;
  for (int64_t i = 0; i < steps; ++i)
    run.steps.push_back({2.3 * std::exp(-0.01 * static_cast<double>(i)),
                         std::ldexp(1.0, static_cast<int>(16 + i % 7)), i % 7 == 6});
  run.measure = "test accuracy in percent";
  run.measures = {{steps / 2, 90}, {steps, 97.5}};
  for (const std::string& module : modules) {
    run.places.push_back(place_in(module, Place::Kind::Gradient));
    run.places.push_back(place_in(module, Place::Kind::Parameter));
  }
  run.totals.resize(run.places.size());
  for (int64_t step = 0; step < steps; step += every)
    for (size_t p = 0; p < run.places.size(); ++p) {
      const bool half = run.places[p].dtype == kFloat16;
      const amp::ExponentCounts exact = around(-34 - static_cast<int>(p % 9), 123456 + step);
      amp::LedgerRow row;
      row.place = p;
      row.step = step;
      row.scale = 65536;
      row.seen = half ? stored(exact, 16) : exact;
      row.shadow = exact;
      if (!half) row.error = 0.001 * static_cast<double>(p % 300) + 1e-4;
      run.rows.push_back(row);
    }
  for (int i = 0; i < 100; ++i) {
    run.overflows.push_back(overflow_in(modules.back(), i));
    run.alarms.push_back({.kind = amp::Alarm::Kind::Lost,
                          .step = i,
                          .where = modules.back(),
                          .value = 0.7,
                          .text = "raise the scale to 2^12 < 2^13, \"now\""});
  }
  run.trials.push_back({steps / 2, 65536, trials_of(modules)});
  run.trials.push_back({steps, 65536, trials_of(modules)});
  return run;
}

std::vector<std::string> names(int n) {
  std::vector<std::string> list;
  for (int i = 0; i < n; ++i)
    list.push_back(fmt::format("transformer.h{}.attention.projection", i));
  return list;
}

std::string page_of(const fs::path& folder, const std::string& name, const LabRun& run) {
  const std::string html = lab::html(run);
  report::write_page((folder / (name + ".html")).string(), html);
  check(html.size() <= 300'000, fmt::format("{}: a page of {} bytes", name, html.size()));
  check(html.find("http") == std::string::npos, name + ": the page asks the network");
  check(html.find("src=") == std::string::npos, name + ": the page loads something");
  for (const char* tag :
       {"table", "details", "svg", "figure", "div", "p", "h2", "section", "script"}) {
    const auto count = [&](const std::string& text) {
      size_t n = 0;
      for (size_t at = html.find(text); at != std::string::npos; at = html.find(text, at + 1)) ++n;
      return n;
    };
    const size_t open = count(fmt::format("<{}>", tag)) + count(fmt::format("<{} ", tag));
    check(open == count(fmt::format("</{}>", tag)),
          fmt::format("{}: <{}> is not closed", name, tag));
  }
  check(html.find("nan") == std::string::npos, name + ": a number is missing");
  return html;
}

/// Fields of a line of a CSV file with quotes.
std::vector<std::string> fields(const std::string& line) {
  std::vector<std::string> list(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') quoted = !quoted;
    if (c == ',' && !quoted)
      list.emplace_back();
    else
      list.back() += c;
  }
  return list;
}

void check_ledger(const fs::path& path, size_t rows) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> columns = fields(line);
  check(columns.size() == 19 + 64 && columns[19] == "2^-48" && columns.back() == "2^15",
        "ledger.csv: columns");
  size_t n = 0;
  for (; std::getline(file, line); ++n) {
    const std::vector<std::string> cells = fields(line);
    if (cells.size() != columns.size()) return check(false, "ledger.csv: a line of other length");
    std::map<std::string, int64_t> at;
    for (size_t i = 6; i < 13; ++i) at[columns[i]] = std::atoll(cells[i].c_str());
    int64_t bins = 0;
    for (size_t i = 19; i < cells.size(); ++i) bins += std::atoll(cells[i].c_str());
    const int64_t numbers = at["subnormal"] + at["normal"] + at["large"];
    check(numbers == bins && at["total"] == numbers + at["zero"] + at["inf"] + at["nan"],
          "ledger.csv: sums");
  }
  check(n == rows, fmt::format("ledger.csv: {} rows, not {}", n, rows));
}

void odd_runs(const fs::path& folder) {
  LabRun nothing;
  page_of(folder, "nothing", nothing);
  LabRun exact = make_run({"fc1"}, 3, 1);
  exact.dtype = kFloat32;
  exact.trials.clear();
  check(lab::verdict(exact).starts_with("all gradients are float32"), lab::verdict(exact));
  page_of(folder, "float32", exact);
  LabRun brain = make_run({"fc1", "fc2"}, 30, 5);
  brain.dtype = kBFloat16;
  for (LabRun::Trials& trials : brain.trials) {
    for (Place& place : trials.at.places) place.dtype = kBFloat16;
    for (auto& trial : trials.at.trials) std::fill(trial.errors.begin(), trial.errors.end(), 0.2);
  }
  check(lab::verdict(brain).starts_with("no scale from 2^-10 to 2^40"), lab::verdict(brain));
  page_of(folder, "bf16", brain);
  LabRun unseen = make_run({"fc1"}, 30, 5);
  for (amp::LedgerRow& row : unseen.rows) row.shadow = {}, row.error = {};
  page_of(folder, "no_shadow", unseen);
  LabRun diverged = make_run({"fc1"}, 30, 5);
  for (LabRun::Step& step : diverged.steps) step.loss = NAN;
  for (auto& trial : diverged.trials.back().at.trials)
    std::fill(trial.errors.begin(), trial.errors.end(), INFINITY);
  page_of(folder, "diverged", diverged);
}

void verdicts() {
  LabRun run = make_run({"fc1", "fc2"}, 240, 20);
  check(lab::verdict(run) ==
            "gradients within 1 % of float32 for scales from 2^7 to 2^36 (after step 120: from 2^7 "
            "to 2^36); the "
            "scaler stood at 2^16",
        lab::verdict(run));
  run.trials.back().scale = 1;
  check(lab::verdict(run).ends_with("at 1, which is too little: weight gradients are off by 100 %"),
        lab::verdict(run));
  run.trials.back().scale = std::ldexp(1.0, 38);
  check(lab::verdict(run).find("at 2^38, which is too much") != std::string::npos,
        lab::verdict(run));
  run.trials.back().at.trials.resize(40);  // none that overflows
  check(lab::verdict(run).find("to 2^29 or more") != std::string::npos, lab::verdict(run));
  check(lab::with_powers("at 2^-16, 12^3 & 2^x") == "at 2<sup>−16</sup>, 12^3 &amp; 2^x",
        lab::with_powers("at 2^-16, 12^3 & 2^x"));
  const std::string table = lab::scale_table(run.trials.front(), {0, 7, 50});
  check(table.find("S = 2^7") != std::string::npos && table.find("2^50") == std::string::npos,
        table);
}

}  // namespace

int main(int argc, char** argv) {
  const fs::path folder = argc > 1 ? argv[1] : "page_test";
  fs::remove_all(folder);
  fs::create_directories(folder);
  verdicts();
  odd_runs(folder);

  const LabRun small = make_run({"fc1", "fc2", "fc3"}, 240, 20);
  page_of(folder, "small", small);
  const LabRun large = make_run(names(60), 1000, 20);
  fmt::print("60 modules, 1000 steps: a page of {} bytes\n",
             page_of(folder, "large", large).size());

  const std::string evil = "</script><script>alert(\"1\")</script>,'2'\n";
  const LabRun odd = make_run({evil}, 40, 20);
  check(page_of(folder, "odd_names", odd).find("<script>alert") == std::string::npos,
        "a name runs as a script");
  fs::create_directories(folder / "files");
  lab::write_files(folder / "files", small);
  check_ledger(folder / "files" / "ledger.csv", small.rows.size());
  std::ifstream alarms(folder / "files" / "alarms.csv");
  const std::string text((std::istreambuf_iterator<char>(alarms)), {});
  check(text.find("\"raise the scale to 2^12 < 2^13, \"\"now\"\"\"\n") != std::string::npos,
        "alarms.csv: quotes");
  fmt::print("{}\n",
             failures == 0 ? "pages and files are as promised" : "pages or files are wrong");
  return failures == 0 ? 0 : 1;
}
