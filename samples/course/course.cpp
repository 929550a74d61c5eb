#include "course.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <exception>
#include <optional>
#include <system_error>

using namespace halftape;
namespace F = halftape::nn::functional;

namespace course {
namespace {

/// nullopt for anything but digits.
std::optional<uint64_t> whole_number(const std::string& text) {
  uint64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return n;
}

std::optional<Dtype> lower(Dtype dtype) {
  return dtype == kFloat32 ? std::nullopt : std::optional(dtype);
}

}  // namespace

int run(int argc, char** argv, const std::string& name, const std::string& what, Seed seed,
        const std::function<void(const Arguments&)>& body) {
  const std::string usage =
      fmt::format("usage: course_{}{} [FOLDER]", name, seed == Seed::Taken ? " [--seed N]" : "");
  const auto refuse = [&](const std::string& why) {
    fmt::print(stderr, "course_{}: {}\n{}\n", name, why, usage);
    return 2;
  };
  Arguments arguments{name, {}, 0};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--help" || word == "-h") {
      fmt::print("{}\n{}\nWith a FOLDER it also writes FOLDER/{}.svg and FOLDER/{}.csv.\n", what,
                 usage, name, name);
      return 0;
    }
    if (word == "--seed" && seed == Seed::Taken) {
      const auto n = i + 1 < argc ? whole_number(argv[++i]) : std::nullopt;
      if (!n) return refuse("--seed: expected a whole number from 0 on");
      arguments.seed = *n;
    } else if (word.empty() || word[0] == '-') {
      return refuse(fmt::format("unknown argument '{}'", word));
    } else if (!arguments.folder.empty()) {
      return refuse(fmt::format("one folder is enough, found '{}' too", word));
    } else {
      arguments.folder = word;
    }
  }
  if (!arguments.folder.empty()) {  // before the work, not after it
    std::error_code error;
    std::filesystem::create_directories(arguments.folder, error);
    if (error)
      return refuse(fmt::format("cannot make the folder '{}': {}", arguments.folder.string(),
                                error.message()));
    try {
      const OutputFile probe("FOLDER", arguments.folder / (std::string(name) + ".csv"));
    } catch (const FileError& e) {
      return refuse(e.what());
    }
  }
  try {
    set_native_bfloat16(false);  // so that every machine prints the text's numbers
    body(arguments);
    if (std::fflush(stdout) != 0) throw std::system_error(errno, std::generic_category(), "output");
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "course_{}: {}\n", name, error.what());
    return 1;
  }
}

const sample::Dataset& digits() {
  static const sample::Dataset all = sample::make_dataset(data::digits(), "digits", kCPU);
  return all;
}

sample::Samples select(const sample::Samples& all, const Tensor& indices) {
  return {all.images.index_select(0, indices), all.labels.index_select(0, indices)};
}

Tensor row_of(const nn::Sequential& model, const std::function<Tensor(const Tensor&)>& f) {
  const NoGradGuard no_grad;
  TensorList all;
  for (const Tensor& p : model->parameters()) all.push_back(f(p).flatten());
  return cat(all, 0);
}

Training::Training(const Recipe& recipe)
    : model((manual_seed(recipe.seed), sample::make_mlp(digits(), 64, recipe.hidden_layers))),
      // Adam divides a gradient by its own size, so that the loss's weight cancels out, but for
      // eps.
      optimizer(model->parameters(), optim::AdamOptions(recipe.lr).eps(1e-8 * recipe.loss_weight)),
      scaler([&] {
        amp::GradScalerOptions options = recipe.scaler;
        options.warn_after_skips = 0;  // the program shows them
        return options;
      }()),
      recipe_(recipe) {}

const sample::Samples& Training::next_batch() {
  const sample::Samples& all = digits().train;
  const int64_t epoch = step_ / kStepsPerEpoch, i = step_ % kStepsPerEpoch * kBatch;
  ++step_;
  if (i == 0) {
    const double left = 1 - static_cast<double>(epoch) / static_cast<double>(recipe_.epochs);
    optimizer.param_groups()[0].options().set_lr(recipe_.lr * left);
    order_ = randperm(all.size());
  }
  return batch_ = select(all, order_.slice(0, i, i + kBatch));
}

bool Training::step() {
  next_batch();
  optimizer.zero_grad();
  scaler.scale(loss()).backward();
  const bool applied = scaler.step(optimizer).applied();
  scaler.update();
  return applied;
}

void Training::run(int64_t count) {
  const int64_t end = count < 0 ? steps() : std::min(steps(), step_ + count);
  while (step_ < end) step();
}

Tensor Training::loss(Dtype dtype) const {
  HALFTAPE_CHECK(batch_.images.defined(), "Training::loss: there was no step yet");
  const amp::autocast region(kCPU, lower(dtype), dtype != kFloat32);
  return F::cross_entropy(model->forward(batch_.images), batch_.labels) * recipe_.loss_weight;
}

double Training::accuracy() const {
  return sample::test_accuracy(model, digits().test, lower(recipe_.dtype));
}

void Table::add(std::vector<Cell> row) {
  HALFTAPE_CHECK(row.size() == columns_.size(), "Table::add: ", row.size(), " cells for ",
                 columns_.size(), " columns");
  rows_.push_back(std::move(row));
}

void Table::print() const {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& c : columns_) lines[0].push_back(c.name);
  for (const auto& row : rows_) {
    auto& line = lines.emplace_back();
    for (size_t i = 0; i < row.size(); ++i) {
      const auto* number = std::get_if<double>(&row[i]);
      line.push_back(!number ? std::get<std::string>(row[i])
                     : std::isfinite(*number)
                         ? fmt::format(fmt::runtime(columns_[i].format), *number)
                         : fmt::format("{}", *number));
    }
  }
  std::vector<int> width(columns_.size());
  // In code points: a continuing byte of UTF-8 takes no room.
  const auto length = [](const std::string& s) {
    return static_cast<int>(
        std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xc0) != 0x80; }));
  };
  for (const auto& line : lines)
    for (size_t i = 0; i < line.size(); ++i) width[i] = std::max(width[i], length(line[i]));
  for (const auto& line : lines) {
    std::string text;
    for (size_t i = 0; i < line.size(); ++i) {
      const bool words = !rows_.empty() && std::holds_alternative<std::string>(rows_[0][i]);
      const std::string room(static_cast<size_t>(width[i] - length(line[i])), ' ');
      text += (i ? "  " : "") + (words ? line[i] + room : room + line[i]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    fmt::print("{}\n", text);
  }
}

std::string Table::csv() const {
  std::string text;
  for (size_t i = 0; i < columns_.size(); ++i) text += (i ? "," : "") + columns_[i].name;
  for (const auto& row : rows_) {
    text += '\n';
    for (size_t i = 0; i < row.size(); ++i) {
      const auto* number = std::get_if<double>(&row[i]);
      text += (i ? "," : "") +
              (number ? fmt::format("{:.6g}", *number) : std::get<std::string>(row[i]));
    }
  }
  return text + '\n';
}

}  // namespace course
