// Chapter 10: all orders of the six calls of a training step, and four micro-batches in place of
// one batch, with a scale multiplied by hand and with GradScaler.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "accumulation.h"
#include "figure.h"
#include "step_calls.h"

using namespace course;
using namespace halftape;

namespace {

/// One panel: from left to right the first two calls, from top to bottom the other four.
std::array<double, 5> draw(Panel& panel, const char* title, bool by_hand) {
  constexpr Look looks[] = {Look::Green, Look::Blue, Look::Ink, Look::Purple, Look::Orange};
  constexpr double widths[] = {0.9, 0.35, 0, 0.04, 0.9};
  Ticks ticks;
  for (int i = 0; i < 6; ++i) ticks.emplace_back(5 * i + 2.5, kCallNames[i]);
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

void show_accumulation() {
  Table table({{"128 digits in four parts"}, {"off, by hand"}, {"then clipped"}, {"GradScaler"}});
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

void body(const Arguments& arguments) {
  Figure figure("720 orders of six calls; empty: nothing happens",
                "Each column is a pair of first calls, each row an order of the other four. By "
                "hand a quarter of all cells are silently wrong. GradScaler refuses nearly all "
                "orders, and none is wrong.",
                620);
  figure.legend(Look::Green, "clipped");
  figure.legend(Look::Blue, "not clipped");
  figure.legend(Look::Purple, "refused with an error");
  figure.legend(Look::Orange, "silently wrong");
  const auto hand = draw(figure.panel(0, 0.5), "first call; scaled by hand", true);
  const auto ours = draw(figure.panel(0.5, 1), "first call; with GradScaler", false);
  Table table({{"of 720 orders"}, {"by hand", "{:.0f}"}, {"GradScaler", "{:.0f}"}});
  const char* names[] = {"clipped, then stepped", "stepped, clipped nothing", "did nothing",
                         "refused with an error", "silently wrong"};
  for (const Outcome o : {Clipped, Unclipped, Nothing, Refused, Wrong})
    table.add({names[o], hand[o], ours[o]});
  table.print();
  fmt::print("\nby hand, and how far the weight 3 moves\n");
  for (const Order& order : {Order{Scale, Backward, Unscale, Clip, Step, Update},
                             {Scale, Backward, Clip, Unscale, Step, Update},
                             {Scale, Backward, Step, Unscale, Clip, Update}}) {
    for (const Call call : order) fmt::print("{:<10}", kCallNames[call]);
    fmt::print("{:g}\n", moved(order, true));
  }
  fmt::print("\n");
  show_accumulation();
  write(arguments, figure, table);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, "10_in_which_order", "All orders of a step's calls.", Seed::None, body);
}
