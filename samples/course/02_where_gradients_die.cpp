// Chapter 2: which gradients does float16 lose, and where?
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "figure.h"

using namespace course;
using halftape::amp::ExponentCounts;

namespace {

struct Row {
  std::string name, stored;
  ExponentCounts exact, seen;  // of a float32 backward pass, and of the training's
};

std::vector<Row> ledger(Training& training) {
  std::vector<Row> rows;
  // One backward pass at scale 1 beside one in float32. What a layer gives is an activation; its
  // gradient is stored in float16.
  const auto trials = halftape::amp::try_scales(
      *training.model, [&] { return training.loss(); }, 0, 0);
  for (const std::string module : {"fc1", "fc2", "fc3"})
    for (size_t i = 0; i < trials.places.size(); ++i)
      if (trials.places[i].op == "linear" && trials.places[i].module == module)
        rows.push_back(
            {module + " activations", "float16", trials.float32[i], trials.reference[i]});
  // The gradients of the weights are sums over the batch, and arrive in float32.
  std::array<std::vector<ExponentCounts>, 2> counts;
  for (const bool half : {false, true}) {
    training.optimizer.zero_grad();
    training.loss(half ? halftape::kFloat16 : halftape::kFloat32).backward();
    for (const auto& p : training.model->parameters())
      if (p.dim() == 2) counts[half].push_back(halftape::amp::count_exponents(p.grad()));
  }
  for (size_t i = 0; i < 3; ++i)
    rows.push_back({fmt::format("fc{} weights", i + 1), "float32", counts[0][i], counts[1][i]});
  return rows;
}

void look(const Arguments& arguments) {
  Training training({.seed = arguments.seed});
  training.run(330);
  const std::vector<Row> rows = ledger(training);

  Table table({{"gradients of"},
               {"stored in"},
               {"numbers"},
               {"zero in float32", "{:.1f} %"},
               {"zero now", "{:.1f} %"},
               {"lost", "{:.1f} %"}});
  Table bars({{"gradients of"}, {"from 2^"}, {"share"}});
  Figure figure("Where the gradients of one batch lie, at weight 1",
                "Four histograms by powers of two. A large part of the activation gradients of fc3 "
                "and a small part of fc1's lie where float16 has only zero.",
                640);
  for (size_t i = 0; i < rows.size(); ++i) {
    const ExponentCounts &exact = rows[i].exact, &seen = rows[i].seen;
    const auto total = static_cast<double>(exact.total());
    const auto share = [&](int64_t n) { return 100.0 * static_cast<double>(n) / total; };
    const auto lost = static_cast<double>(seen.zeros() - exact.zeros());
    table.add({rows[i].name, rows[i].stored, total, share(exact.zeros()), share(seen.zeros()),
               100 * lost / static_cast<double>(exact.numbers())});
    if (i % 3 == 1) continue;  // fc2 lies between the others
    const bool half = rows[i].stored == "float16";
    const double top = half ? (i == 0 ? 0 : 0.25) : (i == 3 ? 0.5 : 0.75);
    Panel& panel = figure.panel(top, top + 0.25);
    panel.x_axis(-44, 2, i == 5 ? "size of the gradient, in float32" : "",
                 powers_of_two(-40, 0, 4));
    panel.y_axis(0, 36, "share", numbers(0, 30, 10, " %"));
    if (half) {
      panel.zone(-44, -25, Look::Purple, "float16 has only 0");
      panel.zone(-25, -14, Look::Orange, "subnormal");
    }
    for (int e = -44; e < 2; ++e) {
      if (exact.at(e) > 0)
        panel.bar(e, e + 0.9, 0, share(exact.at(e)), half ? Look::Blue : Look::Green);
      bars.add({rows[i].name, 1.0 * e, share(exact.at(e))});
    }
    panel.text(1.5, 14, rows[i].name, "end");
  }
  fmt::print("one batch of 128 digits after 330 steps, weight 1, no scale, seed {}\n",
             arguments.seed);
  table.print();
  figure.legend(Look::Blue, "activation gradients, stored in float16");
  figure.legend(Look::Green, "weight gradients, stored in float32");
  write(arguments, figure, bars);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, "02_where_gradients_die", "Which gradients does float16 lose, and where?",
             Seed::Taken, look);
}
