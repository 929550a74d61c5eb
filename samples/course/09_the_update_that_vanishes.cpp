// Chapter 9: a network whose weights are bfloat16, trained by SGD with four ways to keep what
// rounding takes from an update.
#include "figure.h"

using namespace course;
using namespace halftape;
using optim::Weights;

namespace {

constexpr int kEpochs = 60;

struct Way {
  const char* name;
  Dtype dtype;
  Weights weights;
  Look look;
};
constexpr Way kWays[] = {{"float32", kFloat32, Weights::Plain, Look::Ink},
                         {"Plain", kBFloat16, Weights::Plain, Look::Orange},
                         {"Master", kBFloat16, Weights::Master, Look::Blue},
                         {"Stochastic", kBFloat16, Weights::Stochastic, Look::Green},
                         {"Kahan", kBFloat16, Weights::Kahan, Look::Purple}};

struct Outcome {
  report::Points losses, unchanged;  // by epoch; updates that left the bfloat16 weight as it was
  double accuracy = 0;
};

Outcome train(const Way& way, uint64_t seed) {
  manual_seed(seed);
  nn::Sequential model = sample::make_mlp(digits(), 64);
  model->to(kBFloat16);  // all ways start from weights that bfloat16 can hold
  model->to(way.dtype);
  optim::SGD optimizer(model->parameters(), optim::SGDOptions(0.003).weights(way.weights));
  const auto scores = [&](const Tensor& x) { return model->forward(x.to(way.dtype)).to(kFloat32); };
  const auto loss_of = [&](const sample::Samples& samples) {
    return nn::functional::cross_entropy(scores(samples.images), samples.labels);
  };
  const auto rounded = [](const Tensor& p) { return p.to(kBFloat16).clone(); };
  const auto moved = [](const Tensor& p) { return (p.grad() != 0).to(kFloat32); };
  const sample::Samples &training = digits().train, &test = digits().test;
  Outcome outcome;
  Generator batches = get_generator();  // Stochastic draws its keys from the same stream
  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    set_generator(batches);
    const Tensor order = randperm(training.size());
    batches = get_generator();
    double updates = 0, unchanged = 0;
    for (int64_t i = 0; i < training.size(); i += 32) {
      optimizer.zero_grad();
      loss_of(select(training, order.slice(0, i, i + 32))).backward();
      const Tensor before = row_of(model, rounded), moves = row_of(model, moved);
      optimizer.step();
      updates += moves.sum().item<double>();
      unchanged += (moves * (row_of(model, rounded) == before).to(kFloat32)).sum().item<double>();
    }
    const NoGradGuard no_grad;
    outcome.losses.emplace_back(epoch, loss_of(training).item<double>());
    outcome.unchanged.emplace_back(epoch, 100 * unchanged / updates);
  }
  const NoGradGuard no_grad;
  const Tensor right = scores(test.images).argmax(1) == test.labels;
  outcome.accuracy = 100 * right.to(kFloat64).mean().item<double>();
  return outcome;
}

void body(const Arguments& arguments) {
  Figure figure("Weights in bfloat16: the loss, and the updates without effect",
                "Above, the training loss over 60 epochs: float32, Master, Stochastic and Kahan "
                "fall together, Plain stays near its first value. Below, the share of updates "
                "that leave the bfloat16 weight as it was: nine in ten in all ways but Plain, "
                "where it is nearly all.",
                560);
  Panel &above = figure.panel(0, 0.5), &below = figure.panel(0.5, 1);
  for (Panel* panel : {&above, &below}) panel->x_axis(0, kEpochs, "epoch", numbers(0, kEpochs, 10));
  above.y_axis(0, 2.5, "training loss", numbers(0, 2.5, 0.5));
  below.y_axis(80, 100, "updates without effect", numbers(80, 100, 5, " %"));
  const std::string percent = "{:.1f} %";
  Table table({{"weights"}, {"no effect", percent}, {"loss"}, {"accuracy", percent}});
  Table curves({{"weights"}, {"epoch"}, {"loss"}, {"no effect in percent"}});
  for (const Way& way : kWays) {
    const Outcome o = train(way, arguments.seed);
    table.add({way.name, o.unchanged.back().second, o.losses.back().second, o.accuracy});
    above.line(o.losses, way.look, way.name, false);
    below.line(o.unchanged, way.look, way.name, false);
    for (size_t i = 4; i < o.losses.size(); i += 5)
      curves.add({way.name, o.losses[i].first, o.losses[i].second, o.unchanged[i].second});
  }
  table.print();
  write(arguments, figure, curves);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, "09_the_update_that_vanishes",
             "Weights in bfloat16, with four ways to keep small updates.", Seed::Taken, body);
}
