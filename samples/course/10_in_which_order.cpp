// Chapter 10: all orders of the six calls of a training step, and four micro-batches in place of
// one batch, with a scale multiplied by hand and with GradScaler.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "figure.h"

using namespace halftape;
using course::Look;

namespace {

enum Call { Scale, Backward, Unscale, Clip, Step, Update };
constexpr const char* kNames[] = {"scale", "backward", "unscale_", "clip", "step", "update"};
using Order = std::array<Call, 6>;
enum Outcome { Clipped, Unclipped, Nothing, Refused, Wrong };

/// How far one step of SGD with lr 1 moves the first of the weights (3, -4): the gradient of Σw² is
/// (6, -8), and is clipped to a norm of 0.5. NaN: the order was refused.
double moved(const Order& order, bool by_hand) {
  const Tensor w = tensor({3.0, -4.0}, requires_grad());
  optim::SGD optimizer({w}, optim::SGDOptions(1.0));
  amp::GradScaler scaler({.init_scale = 1024});
  const Tensor loss = (w * w).sum();
  Tensor scaled = loss;
  try {
    for (const Call call : order) {
      if (call == Scale) scaled = by_hand ? loss * 1024 : scaler.scale(loss);
      if (call == Backward) scaled.backward({}, true);
      if (call == Clip) nn::utils::clip_grad_norm_({w}, 0.5);
      if (by_hand && call == Unscale && w.grad().defined()) w.grad().div_(1024);
      if (by_hand && call == Step) optimizer.step();
      if (!by_hand && call == Unscale) scaler.unscale_(optimizer);
      if (!by_hand && call == Step) scaler.step(optimizer);
      if (!by_hand && call == Update) scaler.update();
    }
  } catch (const Error&) {
    return NAN;
  }
  return 3 - w.to_vector()[0];
}

Outcome judge(double moved) {
  const auto near = [&](double wanted) { return std::abs(moved - wanted) < 1e-5; };
  if (std::isnan(moved)) return Refused;
  return near(0) ? Nothing : near(6) ? Unclipped : near(0.3) ? Clipped : Wrong;
}

/// One panel: from left to right the first two calls, from top to bottom the other four.
std::array<double, 5> draw(course::Panel& panel, const char* title, bool by_hand) {
  constexpr Look looks[] = {Look::Green, Look::Blue, Look::Ink, Look::Purple, Look::Orange};
  constexpr double widths[] = {0.9, 0.35, 0, 0.04, 0.9};
  course::Ticks ticks;
  for (int i = 0; i < 6; ++i) ticks.emplace_back(5 * i + 2.5, kNames[i]);
  panel.x_axis(0, 30, title, ticks);
  panel.y_axis(24, 0, "the other calls", {});
  std::array<double, 5> counts{};
  Order order{Scale, Backward, Unscale, Clip, Step, Update};
  for (int column = 0; column < 30; ++column) {
    Outcome outcomes[24];
    for (int i = 0; i < 24; ++i, std::next_permutation(order.begin(), order.end()))
      ++counts[outcomes[i] = judge(moved(order, by_hand))];
    for (int i = 0, begin = 0; i < 24; ++i) {
      const Outcome outcome = outcomes[i];
      if (i < 23 && outcomes[i + 1] == outcome) continue;
      const double middle = column + 0.5, half = widths[outcome] / 2;
      if (half > 0) panel.bar(middle - half, middle + half, begin, i + 1, looks[outcome]);
      begin = i + 1;
    }
  }
  return counts;
}

enum How { Whole, Right, NotDivided, ClipsEach, UnscalesEach, UpdatesEach };

/// The gradients with which a step of 128 digits is taken, in one row.
Tensor accumulated(How how, bool by_hand, bool clips) {
  static const sample::Dataset digits = sample::make_dataset(data::digits(), "digits", kCPU);
  manual_seed(0);
  const nn::Sequential model = sample::make_mlp(digits, 64);
  optim::SGD optimizer(model->parameters(), optim::SGDOptions(1.0));
  amp::GradScaler scaler({.init_scale = 1024});
  double scale = 1024;
  const int64_t parts = how == Whole ? 1 : 4, size = 128 / parts;
  const auto unscale = [&] {
    if (!by_hand) return scaler.unscale_(optimizer);
    for (const Tensor& p : model->parameters()) p.grad().div_(scale);
  };
  for (int64_t part = 0; part < parts; ++part) {
    const Tensor x = digits.train.images.slice(0, part * size, (part + 1) * size),
                 labels = digits.train.labels.slice(0, part * size, (part + 1) * size);
    Tensor loss;
    {
      const amp::autocast region(kCPU, kFloat16);
      loss = nn::functional::cross_entropy(model->forward(x), labels);
    }
    if (how != NotDivided) loss = loss / static_cast<double>(parts);
    (by_hand ? loss * scale : scaler.scale(loss)).backward();
    if (how == UnscalesEach) unscale();
    if (how == ClipsEach) nn::utils::clip_grad_norm_(model->parameters(), 0.1);
    if (how == UpdatesEach && part + 1 < parts) by_hand ? void(scale *= 2) : scaler.update();
  }
  if (how != UnscalesEach) unscale();
  if (clips) nn::utils::clip_grad_norm_(model->parameters(), 0.1);
  TensorList all;
  for (const Tensor& p : model->parameters()) all.push_back(p.grad().flatten());
  return cat(all, 0);
}

void show_accumulation() {
  constexpr std::pair<How, const char*> kHows[] = {{Right, "mean of the parts, unscaled once"},
                                                   {NotDivided, "sum of the parts"},
                                                   {ClipsEach, "clipped after each part"},
                                                   {UnscalesEach, "unscaled after each part"},
                                                   {UpdatesEach, "a new scale after each part"}};
  course::Table table(
      {{"128 digits in four parts"}, {"off, by hand"}, {"then clipped"}, {"GradScaler"}});
  const auto off = [](How how, bool by_hand, bool clips) {
    const Tensor exact = accumulated(Whole, true, clips);
    const Tensor error = accumulated(how, by_hand, clips) - exact;
    return fmt::format("{:.2f} %", 100 * (error.norm() / exact.norm()).item<double>());
  };
  for (const auto& [how, name] : kHows) {
    std::string ours = "refused";
    try {
      ours = off(how, false, true);
    } catch (const Error&) {
    }
    table.add({name, off(how, true, false), off(how, true, true), ours});
  }
  table.print();
}

void body(const course::Arguments& arguments) {
  course::Figure figure("720 orders of six calls; empty: nothing happens",
                        "Each column is a pair of first calls, each row an order of the other "
                        "four. By hand a quarter of all cells are silently wrong. GradScaler "
                        "refuses nearly all orders, and none is wrong.",
                        620);
  figure.legend(Look::Green, "clipped"), figure.legend(Look::Blue, "not clipped");
  figure.legend(Look::Purple, "refused with an error"),
      figure.legend(Look::Orange, "silently wrong");
  const auto hand = draw(figure.panel(0, 0.5), "first call; scaled by hand", true);
  const auto ours = draw(figure.panel(0.5, 1), "first call; with GradScaler", false);
  course::Table table({{"of 720 orders"}, {"by hand", "{:.0f}"}, {"GradScaler", "{:.0f}"}});
  const char* names[] = {"clipped, then stepped", "stepped, clipped nothing", "did nothing",
                         "refused with an error", "silently wrong"};
  for (const Outcome o : {Clipped, Unclipped, Nothing, Refused, Wrong})
    table.add({names[o], hand[o], ours[o]});
  table.print();
  fmt::print("\nby hand, and how far the weight 3 moves\n");
  for (const Order& order : {Order{Scale, Backward, Unscale, Clip, Step, Update},
                             {Scale, Backward, Clip, Unscale, Step, Update},
                             {Scale, Backward, Step, Unscale, Clip, Update}}) {
    for (const Call call : order) fmt::print("{:<10}", kNames[call]);
    fmt::print("{:g}\n", moved(order, true));
  }
  fmt::print("\n");
  show_accumulation();
  course::write(arguments, figure, table);
}

}  // namespace

int main(int argc, char** argv) {
  return course::run(argc, argv, "10_in_which_order", "All orders of a step's calls.",
                     course::Seed::None, body);
}
