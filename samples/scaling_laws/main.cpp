// Runs the laws of dynamic loss scaling of eight systems over one training, and draws the scales
// that each of them chose.
//
//     scaling_laws                        records the limits of a short float16 training: seconds
//     scaling_laws --trace FILE           reads the limits from a file: lines "step,limit"
//     scaling_laws --save-trace FILE      saves the limits that were recorded
//     scaling_laws --growth-interval 0    each law with its own interval, 1000 or 2000 steps
//
// Last line: "best LAW: N % of S steps at the best scale". Ctrl-C ends the recording; the laws then
// run over what there is. Exit code 2: wrong arguments, device or data; the message says what to
// do.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "file.h"
#include "picture.h"
#include "program.h"
#include "trace.h"

using namespace halftape;
using sample::UserError;

namespace {

struct Arguments {
  sample::Machine machine{.seed = 0};
  std::optional<std::string> trace;
  std::string out = "scaling_laws.html", save_trace;
  int64_t growth_interval = 50;
  RecordedRun recording;
};

void declare(CLI::App& app, Arguments& a) {
  a.machine.add_options(app);
  auto* trace = app.add_option("--trace", a.trace,
                               "CSV file with the header step,limit: for every step, from 0, the "
                               "largest scale that would have passed, or inf");
  const auto only_recorded = [&](CLI::Option* option) { option->excludes(trace); };
  only_recorded(app.add_option("--save-trace", a.save_trace, "where to write the recorded limits"));
  only_recorded(app.add_option("--epochs", a.recording.epochs, "of the training that is recorded")
                    ->check(sample::between(1, 10000))
                    ->capture_default_str());
  only_recorded(app.add_option("--batch-size", a.recording.batch_size, "images per step")
                    ->check(sample::between(1, 1442))
                    ->capture_default_str());
  only_recorded(app.add_option("--lr", a.recording.lr, "learning rate of Adam")
                    ->check(CLI::PositiveNumber)
                    ->capture_default_str());
  for (const char* name : {"--device", "--seed", "--threads"}) only_recorded(app.get_option(name));
  app.add_option("--growth-interval", a.growth_interval,
                 "of all laws, in steps; 0: each its own, which outlast a training this short")
      ->check(sample::between(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--out", a.out, "where to write the page; \"\" for none")->capture_default_str();
}

void check_writable(const char* option, const std::string& path) {
  if (path.empty()) return;
  try {
    report::check_writable(path);
  } catch (const std::exception& e) {
    throw UserError(
        fmt::format("{}: {}; name a file in a folder that can be written to", option, e.what()));
  }
}

std::vector<Outcome> replay_all(const LimitTrace& trace, int64_t growth_interval) {
  std::vector<Outcome> outcomes;
  for (amp::laws::Law law : amp::laws::all()) {
    if (growth_interval > 0) law.constants.growth_interval = growth_interval;
    amp::laws::Replay replay = amp::laws::replay_limits(law, trace.limits);
    const amp::laws::Summary summary = amp::laws::summarise(replay, trace.limits);
    outcomes.push_back({law, std::move(replay), summary});
  }
  return outcomes;
}

void print_table(const std::vector<Outcome>& outcomes) {
  fmt::print("{:24}{:>10}{:>10}{:>18}{:>20}\n", "law", "interval", "skipped", "mean log2(scale)",
             "at the best scale");
  for (const Outcome& o : outcomes)
    fmt::print("{:24}{:>10}{:>10}{:>18.3f}{:>18.1f} %\n", o.law.title,
               o.law.constants.growth_interval, o.summary.skips, o.summary.mean_log2_scale,
               100 * o.summary.best_share);
}

void run(Arguments& a, const std::string& command) {
  check_writable("--out", a.out);
  check_writable("--save-trace", a.save_trace);
  sample::check_other_file("--out", a.out, "--save-trace", a.save_trace);
  if (a.trace) sample::check_other_file("--out", a.out, "--trace", *a.trace);
  if (!a.trace) {
    a.recording.device = a.machine.prepare();
    a.recording.seed = a.machine.seed;
  }
  const LimitTrace trace = a.trace ? read_trace(*a.trace) : record_trace(a.recording);
  if (!a.save_trace.empty()) write_trace(a.save_trace, trace);
  const auto [low, high] = std::minmax_element(trace.limits.begin(), trace.limits.end());
  fmt::print("{}\n{} steps; limits from 2^{:.3g} to 2^{:.3g}\n\n", trace.text, trace.limits.size(),
             std::log2(*low), std::log2(*high));

  const std::vector<Outcome> outcomes = replay_all(trace, a.growth_interval);
  print_table(outcomes);
  if (!a.out.empty()) {
    report::write_page(a.out, picture(trace, outcomes, command));
    fmt::print("\nreport: {}\n", std::filesystem::absolute(a.out).string());
  }
  const auto best = std::max_element(outcomes.begin(), outcomes.end(), [](auto& x, auto& y) {
    return x.summary.best_share < y.summary.best_share;
  });
  fmt::print("best {}: {:.1f} % of {} steps at the best scale\n", best->law.name,
             100 * best->summary.best_share, best->summary.steps);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Replays the laws of dynamic loss scaling on the overflow limits of one training.",
               "scaling_laws"};
  Arguments a;
  declare(app, a);
  return sample::run(app, argc, argv, [&] { run(a, sample::command_line(argc, argv)); });
}
