// Trains a convolutional network on handwritten digits in a chosen precision.
//
//     mnist                                  the 8x8 digits in the library, fp16 and a GradScaler
//     mnist --data FOLDER --epochs 3         MNIST or Fashion-MNIST from its four IDX files
//     mnist --data FOLDER --precision bf16   float32, fp16 (not scaled), amp (fp16, scaled), bf16
//     torchrun --no-python --nproc-per-node 4 mnist     four processes, each with a part of a batch
//
// Ends, also when Ctrl-C stops it, with a table of confusions and "accuracy amp=…", in percent.
// Exit code 2: wrong arguments, device or data; the message says what to do.
#include <fmt/format.h>

#include <array>
#include <optional>

#include "program.h"
#include "progress_line.h"
#include "ranks.h"

using namespace halftape;
namespace F = halftape::nn::functional;

namespace {

struct Arguments {
  sample::Machine machine;
  std::optional<std::string> data;
  sample::Precision precision;
  int64_t epochs = 0, steps = 0, batch_size = 64, workers = 0;
  double lr = 3e-3, dropout = 0.25;
};

void declare(CLI::App& app, Arguments& a) {
  a.machine.add_options(app);
  a.precision.add_option(app);
  app.add_option("--data", a.data,
                 "folder with the four IDX files of MNIST or Fashion-MNIST, plain or .gz; "
                 "without it: the 8x8 digits in the library");
  app.add_option("--epochs", a.epochs, "passes over the data (default: 15 for the digits, else 3)")
      ->check(sample::between(1, 10000));
  app.add_option("--steps", a.steps, "end after so many steps, if the epochs have more")
      ->check(CLI::PositiveNumber);
  app.add_option("--batch-size", a.batch_size, "images per step, of all ranks")
      ->check(sample::between(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--workers", a.workers, "threads that load batches ahead")
      ->check(sample::between(0, 64))
      ->capture_default_str();
  app.add_option("--lr", a.lr, "the highest learning rate of the one cycle")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--dropout", a.dropout, "")
      ->check(sample::between(0.0, 0.99))
      ->capture_default_str();
}

/// Images of rows x cols pixels and one channel → the scores of ten classes.
nn::Sequential make_model(int64_t rows, int64_t cols, double dropout) {
  const auto same = [](int64_t in, int64_t out) {
    return nn::Conv2d(nn::Conv2dOptions(in, out, 5).padding(2));
  };
  return nn::Sequential{
      same(1, 16),   nn::ReLU(),           nn::MaxPool2d(2),
      same(16, 32),  nn::ReLU(),           nn::MaxPool2d(2),
      nn::Flatten(), nn::Dropout(dropout), nn::Linear(32 * (rows / 4) * (cols / 4), 10)};
}

/// How often a digit (row) was taken for another (column), over a whole set.
struct Confusion {
  std::array<std::array<int64_t, 10>, 10> count{};
  double accuracy() const {
    int64_t right = 0, all = 0;
    for (size_t i = 0; i < 10; ++i)
      for (size_t j = 0; j < 10; ++j) (i == j ? right : all) += count[i][j];
    return 100.0 * static_cast<double>(right) / static_cast<double>(right + all);
  }
  void print() const {
    fmt::print("\n      taken for\n   ");
    for (int j = 0; j < 10; ++j) fmt::print("{:>6}", j);
    for (size_t i = 0; i < 10; ++i) {
      fmt::print("\n{:>3}", i);
      for (const int64_t n : count[i]) fmt::print("{:>6}", n > 0 ? fmt::format("{}", n) : ".");
    }
    fmt::print("\n\n");
  }
};

/// Each rank takes some of the batches.
template <class Dataset>
Confusion test(nn::Sequential& model, Dataset& dataset, Dtype dtype, const sample::Ranks& ranks) {
  const NoGradGuard no_grad;
  model->eval();
  Confusion confusion;
  auto loader = data::make_data_loader<data::samplers::SequentialSampler>(
      dataset, data::DataLoaderOptions(1000));
  int64_t number = 0;
  for (auto& batch : *loader) {
    if (number++ % ranks.size() != ranks.rank()) continue;
    const amp::autocast region = sample::autocast_to(dtype, ranks.device());
    const Tensor guess = model->forward(batch.data.to(ranks.device())).argmax(1).cpu();
    for (int64_t i = 0; i < guess.numel(); ++i)
      ++confusion.count[batch.target[i].template item<size_t>()][guess[i].template item<size_t>()];
  }
  model->train();
  ranks.sum(from_blob(confusion.count.data(), {10, 10}, kInt64));
  return confusion;
}

template <class Set>
void train(const Set& train_set, const Set& test_set, const Arguments& a,
           const sample::Ranks& ranks) {
  const Device device = ranks.device();
  const Dtype dtype = a.precision.dtype();
  // Mean 0 and standard deviation 1 over all training pixels.
  const Tensor pixels = train_set.data();
  const data::transforms::Normalize<> normalize(pixels.mean().item<double>(),
                                                pixels.std().item<double>());
  auto prepared = [&](Set set) { return set.map(normalize).map(data::transforms::Stack<>()); };
  auto tests = prepared(test_set);
  // The batches of one process, of which each rank takes its part.
  auto loader = data::make_data_loader(
      prepared(train_set),
      data::samplers::DistributedBatchSampler(data::samplers::RandomSampler(pixels.size(0)),
                                              static_cast<size_t>(ranks.size()),
                                              static_cast<size_t>(ranks.rank())),
      data::DataLoaderOptions(static_cast<size_t>(ranks.part_of(a.batch_size)))
          .workers(static_cast<size_t>(a.workers))
          .pin_memory(device.is_cuda())
          .pin_memory_device(device));

  nn::Sequential model = make_model(pixels.size(2), pixels.size(3), a.dropout);
  model->to(device);
  distributed::DistributedDataParallel ddp(*model);  // backward() gives the mean over the ranks
  ranks.draw_apart();                                // dropout
  optim::Adam optimizer(model->parameters(), optim::AdamOptions(a.lr));
  const int64_t in_epoch = (pixels.size(0) + a.batch_size - 1) / a.batch_size;
  const int64_t steps = a.steps > 0 ? std::min(a.steps, a.epochs * in_epoch) : a.epochs * in_epoch;
  optim::OneCycleLR schedule(optimizer, optim::OneCycleLROptions(a.lr, steps + 1));
  amp::GradScaler scaler({.enabled = a.precision.scaled()});
  amp::AppliedSteps applied;

  Confusion confusion;
  sample::ProgressLine progress(steps);
  const sample::Interrupt ctrl_c;
  int64_t step = 0;
  for (bool stops = false; !stops;) {
    const double start = progress.seconds();
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      Tensor loss;
      {
        const amp::autocast region = sample::autocast_to(dtype, device);
        loss = F::cross_entropy(model->forward(batch.data.to(device, true)),
                                batch.target.to(device, true));
      }
      scaler.scale(loss).backward();
      const amp::StepResult result = scaler.step(optimizer);  // skipped if a gradient is not finite
      scaler.update();
      applied.step(result, schedule);
      stops = ++step == steps || ranks.interrupted();
      if (step % 10 == 0 || stops)
        progress.show(step, fmt::format("loss {:.3f}", ranks.mean(loss.item<double>())));
      if (stops) break;
    }
    const double seconds = progress.seconds() - start;
    confusion = test(model, tests, dtype, ranks);
    progress.print(fmt::format(
        "epoch {}: test accuracy {:.2f} %, {:.1f} s{}{}", (step + in_epoch - 1) / in_epoch,
        confusion.accuracy(), seconds,
        scaler.is_enabled()
            ? fmt::format(", scale {:g}, {} skipped", scaler.get_scale(), scaler.stats().skips)
            : "",
        stops && step < steps ? fmt::format("; stopped after {} of {} steps", step, steps) : ""));
  }
  confusion.print();
  fmt::print("accuracy {}={:.2f}\n", a.precision.name, confusion.accuracy());
  ranks.wait();  // after Ctrl-C a launcher ends all ranks as soon as one has ended
}

void run(Arguments& a) {
  using namespace data::datasets;
  if (a.epochs == 0) a.epochs = a.data ? 3 : 15;
  const sample::Ranks ranks(a.machine);
  if (a.data)
    train(MNIST(*a.data), MNIST(*a.data, MNIST::Mode::kTest), a, ranks);
  else
    train(Digits(), Digits(Digits::Mode::kTest), a, ranks);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Trains a convolutional network on handwritten digits.", "mnist"};
  Arguments a;
  declare(app, a);
  return sample::run(app, argc, argv, [&] { run(a); });
}
