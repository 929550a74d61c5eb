// Chapter 8: which ops autocast runs in which type, and what happens to a sum, an exponential and a
// loss that are kept in 16 bits all the same.
#include <fmt/format.h>

#include <cmath>

#include "figure.h"

using namespace halftape;
using course::Look;

namespace {

/// The ops of one forward pass, and the type in which autocast runs each.
void explain_a_step() {
  nn::Linear first{64, 64}, second{64, 10};
  nn::LayerNorm norm{nn::LayerNormOptions({64})};
  const Tensor x = rand({8, 64}), labels = arange(0, 8, kInt64);
  const amp::CastPlan plan = amp::explain([&] {
    const amp::autocast region(kCPU, kFloat16);
    const Tensor h = relu(first->forward(x));
    const Tensor scores = second->forward(norm->forward(h));
    const Tensor loss = nn::functional::cross_entropy(scores, labels) + h.sum() * 1e-6;
    const Tensor shares = softmax(scores, 1);
  });
  course::Table table({{"op"}, {"runs in"}, {"why"}, {"tensors cast", "{:.0f}"}});
  for (const auto& step : plan.steps) {
    double casts = 0;
    for (const auto& input : step.inputs) casts += input.given != input.used;
    table.add({step.op, std::string(name(step.dtype)), step.why, casts});
  }
  table.print();
}

/// 0.01 added n times in a type, at the n of `at`; the sum is a number of that type each time.
std::vector<double> running_sums(Dtype type, const std::vector<int>& at) {
  Tensor sum = zeros({}, type);
  const Tensor little = full({}, 0.01, type);
  std::vector<double> sums;
  for (int n = 1; n <= at.back(); ++n) {
    sum = sum + little;
    if (n == at[sums.size()]) sums.push_back(sum.item<double>());
  }
  return sums;
}

}  // namespace

int main(int argc, char** argv) {
  return course::run(
      argc, argv, "08_which_op_in_which_type", "Which op runs in which type, and why.",
      course::Seed::None, [](const course::Arguments& arguments) {
        explain_a_step();

        fmt::print("\n0.01 added again and again\n");
        std::vector<int> at;
        for (int n = 100; n <= 10000; n += 100) at.push_back(n);
        const auto wide = running_sums(kFloat32, at), half = running_sums(kFloat16, at),
                   brain = running_sums(kBFloat16, at);
        course::Table shown({{"times"}, {"float32", "{:.4f}"}, {"float16"}, {"bfloat16"}});
        course::Table all = shown;
        for (size_t i = 0; i < at.size(); ++i) {
          const std::vector<course::Table::Cell> row{1.0 * at[i], wide[i], half[i], brain[i]};
          if (at[i] <= 100 || at[i] % 2000 == 0) shown.add(row);
          all.add(row);
        }
        shown.print();
        fmt::print("sum() of 10000 times 0.01 in float16, in one op: {:g}\n",
                   full({10000}, 0.01, kFloat16).sum().item<double>());

        const auto h = [](double x) { return full({}, x, kFloat16); };
        fmt::print("\nin float16\n");
        fmt::print("exp(11)                    {:g}\n", exp(h(11)).item<double>());
        fmt::print("exp(12)                    {:g}\n", exp(h(12)).item<double>());
        fmt::print("exp(12) / (exp(12) + 1)    {:g}\n",
                   std::abs((exp(h(12)) / (exp(h(12)) + 1)).item<double>()));
        fmt::print("softmax of 12 and 0        {:g}\n",
                   softmax(tensor({12.0, 0.0}).to(kFloat16), 0).select(0, 0).item<double>());
        fmt::print("a loss of 2.3              {:g}\n", h(2.3).item<double>());
        fmt::print("the same times 2^16        {:g}\n", (h(2.3) * 65536).item<double>());

        course::Figure figure("0.01, added ten thousand times",
                              "The sum in float32 rises in a straight line to 100. In float16 it "
                              "stops at 32, in bfloat16 at 4, and stays there.");
        auto& panel = figure.panel();
        panel.x_axis(0, 10000, "additions", course::numbers(0, 10000, 2000));
        panel.y_axis(0, 104, "sum", course::numbers(0, 100, 20));
        const auto curve = [&](const std::vector<double>& sums, Look look, const char* type) {
          report::Points points{{0, 0}};
          for (size_t i = 0; i < at.size(); ++i) points.emplace_back(at[i], sums[i]);
          panel.line(points, look, type, false);
        };
        curve(wide, Look::Ink, "float32");
        curve(half, Look::Blue, "float16");
        curve(brain, Look::Orange, "bfloat16");
        course::write(arguments, figure, all);
      });
}
