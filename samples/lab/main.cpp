// Runs a sample's training with amp::Inspector on, and writes a page about its numbers: what 16
// bits lost, at which scale nothing that matters would be lost, where it overflowed.
//
//     halftape-lab digits --loss-weight 1e-5 --epochs 20 --out run1
//     halftape-lab char_gpt --steps 200 --out run2
//
// The folder then has report.html, steps.csv, ledger.csv, overflows.csv, alarms.csv, tensorboard/.
// Ctrl-C ends the training early; the folder tells of what was seen. Last lines: the verdict in one
// sentence, and the paths. Exit code 2: wrong arguments or a folder in use; the message says what
// to do.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>

#include "file.h"
#include "files.h"
#include "lab_page.h"
#include "observe.h"
#include "program.h"
#include "verdict.h"

using namespace halftape;
using sample::UserError;
namespace fs = std::filesystem;

namespace {

struct Arguments {
  std::string training, out = "lab";
  sample::Machine machine{.seed = 0};
  sample::Precision precision;
  double loss_weight = 1, init_scale = amp::GradScalerOptions().init_scale;
  std::optional<double> lr;
  std::optional<int64_t> epochs, steps, growth_interval, every, shadow_every;
  std::vector<int> scales;
};

void declare(CLI::App& app, Arguments& a) {
  const auto count = sample::between(int64_t{1}, int64_t{1} << 30);
  app.add_option("training", a.training,
                 "digits or char_gpt, as the samples train_digits and char_gpt")
      ->required()
      ->check(CLI::IsMember({"digits", "char_gpt"}));
  app.add_option("--out", a.out, "folder for the page and the tables; new or empty")
      ->capture_default_str();
  a.precision.add_option(app);
  app.add_option("--loss-weight", a.loss_weight, "what the loss is multiplied by")
      ->capture_default_str();
  app.add_option("--init-scale", a.init_scale, "the first scale of the GradScaler")
      ->capture_default_str();
  app.add_option(
         "--growth-interval", a.growth_interval,
         "good steps in a row after which the scale grows (default: 20 for digits, else 2000)")
      ->check(count);
  auto* epochs = app.add_option("--epochs", a.epochs, "passes over the digits (default: 60)")
                     ->check(sample::between(int64_t{1}, int64_t{10000}));
  app.add_option("--steps", a.steps, "steps, instead of epochs (default of char_gpt: 600)")
      ->check(count)
      ->excludes(epochs);
  app.add_option("--lr", a.lr, "learning rate (default: 1e-3)");
  app.add_option("--every", a.every,
                 "steps between two samples of the numbers (default: 50 samples in all)")
      ->check(count);
  app.add_option("--shadow-every", a.shadow_every,
                 "steps between two comparisons with float32, a multiple of --every; 0: none "
                 "(default: --every)")
      ->check(sample::between(int64_t{0}, int64_t{1} << 30));
  app.add_option(
         "--scales", a.scales,
         "also print what the scales 2^n lose at the end, for these n of -10 to 40: 0,7,16,24")
      ->delimiter(',')
      ->check(sample::between(-10, 40));
  a.machine.add_options(app);
}

void require_positive(const char* option, double value) {
  if (std::isfinite(value) && value > 0) return;
  throw UserError(fmt::format("{}: expected a number above 0, found {}", option, value));
}

void check(const Arguments& a) {
  require_positive("--loss-weight", a.loss_weight);
  require_positive("--init-scale", a.init_scale);
  try {
    const amp::GradScaler takes_it({.init_scale = a.init_scale});
  } catch (const Error& e) {
    throw UserError(fmt::format("--init-scale: {}", e.what()));
  }
  if (a.lr) require_positive("--lr", *a.lr);
  if (a.training == "char_gpt" && a.epochs)
    throw UserError("--epochs: char_gpt has no epochs; say how long with --steps");
  if (a.shadow_every && a.every && *a.shadow_every % *a.every != 0)
    throw UserError(fmt::format("--shadow-every {}: expected a multiple of --every {}, or 0",
                                *a.shadow_every, *a.every));
}

/// Makes the folder. Throws for one that has files, before any work.
void claim(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder, error))
    throw UserError(fmt::format("--out {}: cannot make this folder: {}", folder.string(),
                                error ? error.message() : "a file has its name"));
  const bool empty = fs::is_empty(folder, error);
  if (error) throw UserError(fmt::format("--out {}: {}", folder.string(), error.message()));
  if (!empty)
    throw UserError(
        fmt::format("--out {}: it has files already; name a new folder", folder.string()));
  try {
    report::check_writable((folder / "report.html").string());
  } catch (const std::exception& e) {
    throw UserError(fmt::format("--out: {}", e.what()));
  }
}

lab::ObserveOptions observe_options(const Arguments& a, const lab::Training& training) {
  lab::ObserveOptions o;
  o.scaler.enabled = a.precision.scaled();
  o.scaler.init_scale = a.init_scale;
  o.scaler.growth_interval = a.growth_interval.value_or(training.growth_interval());
  o.scaler.warn_after_skips = 0;  // an alarm says it
  o.every = a.every.value_or(std::max<int64_t>(1, training.steps() / 50));
  if (!a.every && a.shadow_every.value_or(0) > 0) o.every = std::min(o.every, *a.shadow_every);
  o.shadow_every = a.shadow_every.value_or(o.every);
  if (o.shadow_every > 0) o.shadow_every = (o.shadow_every + o.every - 1) / o.every * o.every;
  return o;
}

void describe(LabRun& run, lab::Training& training, const lab::ObserveOptions& o,
              const Arguments& a, const std::string& command) {
  const Device device = training.model().parameters().front().device();
  run.settings = {
      {"command", command},
      {"data", training.data_text()},
      {"model", training.model_text()},
      {"precision", a.precision.name},
      {"loss weight", fmt::format("{:g}", a.loss_weight)},
      {"seed", fmt::format("{}", a.machine.seed)},
      {"samples",
       fmt::format("every {} steps; compared with float32 {}", o.every,
                   o.shadow_every > 0 ? fmt::format("every {}", o.shadow_every) : "never")},
      {"device", device.is_cpu() ? fmt::format("cpu, {} threads", get_num_threads()) : "cuda"},
      {"hash of the weights", fmt::format("{:016x}", sample::hash(training.model()))},
      {"version", fmt::format("halftape {}", HALFTAPE_VERSION)}};
  if (run.scaled)
    run.settings.insert(
        run.settings.begin() + 4,
        {"GradScaler",
         fmt::format("starts at {}, grows after {} good steps in a row",
                     lab::power_text(o.scaler.init_scale), o.scaler.growth_interval)});
}

void run(const Arguments& a, const std::string& command) {
  check(a);
  lab::TrainingOptions options{.dtype = a.precision.dtype(),
                               .loss_weight = a.loss_weight,
                               .lr = a.lr,
                               .epochs = a.epochs,
                               .steps = a.steps,
                               .seed = a.machine.seed,
                               .device = a.machine.prepare()};
  claim(a.out);
  const auto training =
      a.training == "digits" ? lab::train_digits(options) : lab::train_char_gpt(options);
  fmt::print("{}\n{}\n", training->data_text(), training->model_text());

  LabRun run;
  run.training = a.training;
  run.dtype = options.dtype;
  run.scaled = a.precision.scaled();
  run.loss_weight = a.loss_weight;
  const fs::path folder = a.out;
  lab::ObserveOptions observing = observe_options(a, *training);
  observing.steps_file = folder / "steps.csv";
  lab::observe(*training, observing, run);
  describe(run, *training, observing, a, command);

  lab::write_files(folder, run);
  report::write_page((folder / "report.html").string(), lab::html(run));
  if (!run.measures.empty())
    fmt::print("{}: {:.4g} after {} steps\n", run.measure, run.measures.back().value,
               run.steps.size());
  if (!a.scales.empty() && !run.trials.empty())
    fmt::print("\n{}\n", lab::scale_table(run.trials.back(), a.scales));
  fmt::print("{}\n", lab::verdict(run));
  for (const char* file :
       {"report.html", "steps.csv", "ledger.csv", "overflows.csv", "alarms.csv", "tensorboard"})
    fmt::print("{}\n", (folder / file).string());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Runs a training and writes a page about the numbers in it: what 16 bits lost, and why.",
      "halftape-lab"};
  Arguments a;
  declare(app, a);
  return sample::run(app, argc, argv, [&] { run(a, sample::command_line(argc, argv)); });
}
