// Trains the same small network in several precisions and shows what loss scaling is for.
//
//     train_digits                        the four precisions on the embedded digits: seconds
//     train_digits --loss-weight 1        the same with a loss that needs no scaling in fp16
//     train_digits --data FOLDER          MNIST or Fashion-MNIST from its four IDX files
//
// Last line: "accuracy float32=… fp16=… amp=… bf16=…", in percent. On a GPU the line before says
// whether its steps are the CPU's: "checks on cuda:0: 12 of 12 passed"; else the exit code is 1.
// Ctrl-C ends the training, and the page shows what was trained. Exit code 2: wrong arguments or
// data; the message says what to do.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "checks.h"
#include "file.h"
#include "program.h"
#include "progress.h"
#include "report.h"
#include "train.h"

using namespace halftape;
using sample::UserError;

namespace {

struct Arguments {
  std::vector<std::string> precision{"all"};
  std::optional<std::string> data;
  std::string out = "report.html";
  std::optional<int> epochs;
  bool hash = false;
  sample::Machine machine{.seed = 0};
  Settings settings;
};

void declare(CLI::App& app, Arguments& a) {
  app.add_option("--precision", a.precision, "float32, fp16, amp, bf16, or all; several allowed")
      ->delimiter(',')
      ->check(CLI::IsMember({"all", "float32", "fp16", "amp", "bf16"}))
      ->capture_default_str();
  app.add_option("--data", a.data,
                 "folder with the four IDX files of MNIST or Fashion-MNIST, plain or .gz; "
                 "without it: the 8x8 digits in the program");
  app.add_option("--loss-weight", a.settings.loss_weight,
                 "what the loss is multiplied by; 1: plain fp16 then trains as well as the others")
      ->capture_default_str();
  app.add_option("--epochs", a.epochs, "passes over the data (default: 60 for the digits, else 5)")
      ->check(sample::between(1, 10000));
  app.add_option("--batch-size", a.settings.batch_size, "images per step")
      ->check(sample::between(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--lr", a.settings.lr, "learning rate of Adam at first; falls with every epoch")
      ->capture_default_str();
  app.add_option("--growth-interval", a.settings.growth_interval,
                 "good steps in a row after which the scale grows")
      ->check(sample::between(1, 1 << 30))
      ->capture_default_str();
  a.machine.add_options(app);
  app.add_option("--out", a.out, "where to write the page; \"\" for none")->capture_default_str();
  app.add_flag("--hash", a.hash, "print a hash of the trained weights, to compare runs bit by bit");
}

void require_positive(const char* option, double value) {
  if (std::isfinite(value) && value > 0) return;
  throw UserError(fmt::format("{}: expected a number above 0, found {}", option, value));
}

Dataset load(const Arguments& a) {
  if (!a.data)
    return sample::make_dataset(data::digits(), "digits (E. Alpaydin and C. Kaynak, CC BY 4.0)",
                                a.settings.device);
  try {
    const data::Split split = data::mnist(*a.data);
    if (split.train.pixels.empty() || split.test.pixels.empty())
      throw UserError(*a.data +
                      ": expected images to train and to test on, found a part with none");
    return sample::make_dataset(split, *a.data, a.settings.device);
  } catch (const data::DataError& e) {
    throw UserError(e.what());
  }
}

std::vector<Precision> chosen(const std::vector<std::string>& names) {
  const auto has = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  std::vector<Precision> out;
  for (const Precision& p : precisions())
    if (has("all") || has(p.name)) out.push_back(p);
  return out;
}

std::string network(const Dataset& data, const Settings& s) {
  int64_t parameters = 0;
  for (const Tensor& p : make_mlp(data, s.hidden)->parameters()) parameters += p.numel();
  return fmt::format("{}-{}-{}-{} with ReLU, {} parameters", data.pixels, s.hidden, s.hidden,
                     data.classes, parameters);
}

void introduce(const Dataset& data, const std::vector<Precision>& list, const Settings& s) {
  fmt::print(
      "{}\nnetwork {}; Adam, lr {:g} falling linearly, batch {}, seed {}; {}, {} threads\n\n",
      data.text, network(data, s), s.lr, s.batch_size, s.seed, s.device.is_cpu() ? "cpu" : "cuda",
      get_num_threads());
  if (s.loss_weight < 1) {
    fmt::print(
        "The loss is multiplied by {:g}, on purpose: the gradients are then as small as those of\n"
        "losses averaged over very many values, and fp16 rounds most of them to zero. At weight 1\n"
        "this network trains in plain fp16 just as well: try --loss-weight 1.\n",
        s.loss_weight);
  } else if (s.loss_weight == 1) {
    fmt::print("The loss is not weighted: a network this small then trains in plain fp16 too.\n");
  } else {
    fmt::print("The loss is multiplied by {:g}: gradients above 65504 are infinite in fp16.\n",
               s.loss_weight);
  }
  const bool scaled = std::any_of(list.begin(), list.end(), [](auto& p) { return p.scaler; });
  if (scaled && s.growth_interval != amp::GradScalerOptions().growth_interval) {
    fmt::print(
        "The scale doubles after {} good steps in a row; the library waits for {}, too long for a\n"
        "run as short as this to show it.\n",
        s.growth_interval, amp::GradScalerOptions().growth_interval);
  }
  fmt::print("\n");
}

void check_report(const std::string& path) {
  if (path.empty()) return;
  try {
    report::check_writable(path);
  } catch (const std::exception& e) {
    throw UserError(
        fmt::format("--out: {}; name a file in a folder that exists and can be "
                    "written to, or \"\" for no report",
                    e.what()));
  }
}

void run(const Arguments& a, const std::string& command) {
  const Dataset data = load(a);
  const Settings& s = a.settings;
  const std::vector<Precision> list = chosen(a.precision);
  introduce(data, list, s);
  const sample::Interrupt ctrl_c;
  std::vector<Check> checks;  // a GPU's; the CPU's arithmetic is what they compare with
  if (!s.device.is_cpu()) {
    const int64_t rows = std::min(std::max<int64_t>(s.batch_size, 64), data.train.size());
    checks = check_steps(s.device, data.train.images.slice(0, 0, rows).cpu(),
                         data.train.labels.slice(0, 0, rows).cpu(), data.classes);
  }

  report::Report page;
  page.command = command;
  page.data = data.text;
  page.model = network(data, s);
  page.seed = fmt::format("{}", s.seed);
  page.loss_weight = s.loss_weight;
  page.steps_per_epoch = (data.train.size() + s.batch_size - 1) / s.batch_size;
  std::string accuracies = "accuracy", hashes;
  for (const Precision& precision : list) {
    if (ctrl_c.asked()) break;
    Outcome outcome = train(data, precision, s);
    accuracies += fmt::format(" {}={:.2f}", precision.name, outcome.run.test_accuracy.back());
    hashes += fmt::format("hash {}={:016x}\n", precision.name, outcome.hash);
    if (ctrl_c.asked()) outcome.run.title += ", stopped";
    if (!outcome.gradients.empty() && (page.before.empty() || precision.scaler)) {
      page.before = std::move(outcome.gradients);
      page.after = std::move(outcome.scaled_gradients);
      page.scale_shown = outcome.scale_shown;
      page.gradients = fmt::format(
          "gradients of the layers' outputs, from the weighted loss on the first {} training "
          "images, computed in float32 "
          "with the weights that the run \"{}\" had after epoch {}",
          std::min(s.batch_size, data.train.size()), precision.title, outcome.gradients_epoch);
    }
    page.runs.push_back(std::move(outcome.run));
  }

  fmt::print("\n");
  print_table(page.runs);
  if (ctrl_c.asked()) fmt::print("\nstopped in run {} of {}\n", page.runs.size(), list.size());
  if (!a.out.empty()) {
    report::write_html(a.out, page);
    fmt::print("\nreport: {}\n", std::filesystem::absolute(a.out).string());
  }
  if (a.hash) fmt::print("{}", hashes);
  if (!checks.empty()) fmt::print("{}\n", verdict(s.device, checks));
  fmt::print("{}\n", accuracies);
  if (!all_passed(checks))
    throw std::runtime_error("the device's arithmetic is wrong; please report the line of checks");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Trains one small network in float32, in fp16 with and without loss scaling, and in "
      "bf16, and compares them.",
      "train_digits"};
  Arguments a;
  declare(app, a);
  return sample::run(app, argc, argv, [&] {
    if (a.data) a.settings.hidden = 256;
    a.settings.epochs = a.epochs.value_or(a.data ? 5 : 60);
    require_positive("--lr", a.settings.lr);
    require_positive("--loss-weight", a.settings.loss_weight);
    a.settings.device = a.machine.prepare();
    a.settings.seed = a.machine.seed;
    check_report(a.out);
    run(a, sample::command_line(argc, argv));
  });
}
