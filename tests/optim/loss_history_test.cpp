// The losses of the last steps: in their order, without a wait, called or replayed.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

using namespace halftape;
using optim::LossHistory;

namespace {
using Numbers = std::vector<double>;
}

TEST_CASE("a history keeps the last losses in the order in which they came, and counts all") {
  LossHistory losses(3);
  CHECK(losses.to_vector().empty());
  CHECK(losses.count() == 0);
  const Numbers last[] = {{0}, {0, 1}, {0, 1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4, 5}, {4, 5, 6}};
  for (int i = 0; i < 7; ++i) {
    losses.push(full({}, static_cast<double>(i)));
    CHECK(losses.to_vector() == last[i]);
    CHECK(losses.count() == i + 1);
  }
  const LossHistory moved = std::move(losses);
  CHECK(moved.to_vector() == last[6]);
  CHECK(moved.capacity() == 3);
}

TEST_CASE("a history takes a number of any floating dtype and shape as it is, NaN and inf, too") {
  LossHistory losses(8);
  losses.push(full({1, 1}, 0.1, kFloat64));
  losses.push(full({}, 0.1, kFloat32));
  losses.push(full({1}, 0.1, kFloat16));
  losses.push(full({1}, 0.1, kBFloat16).set_requires_grad(true) * 1);
  losses.push(full({}, std::numeric_limits<double>::infinity()));
  losses.push(full({}, std::numeric_limits<double>::quiet_NaN()));
  const Numbers all = losses.to_vector();
  CHECK(all[0] == 0.1);
  CHECK(all[1] == 0.1f);
  CHECK(all[2] == 0.0999755859375);
  CHECK(all[3] == 0.10009765625);
  CHECK(std::isinf(all[4]));
  CHECK(std::isnan(all[5]));
}

TEST_CASE("a history refuses what is no number of its device") {
  CHECK_THROWS_WITH_AS(LossHistory(0), doctest::Contains("capacity 0"), Error);
  LossHistory losses(2);
  CHECK_THROWS_WITH_AS(losses.push({}), doctest::Contains("one floating-point number"), Error);
  CHECK_THROWS_AS(losses.push(ones({2})), Error);
  CHECK_THROWS_AS(losses.push(ones({}, kInt64)), Error);
  CHECK(losses.count() == 0);
}

TEST_CASE("replays push their losses, and making the graph none") {
  Numbers seen[2];
  for (const bool graphed : {false, true}) {
    manual_seed(1);
    const nn::Linear model(6, 3);
    optim::SGD optimizer(model->parameters(), optim::SGDOptions(0.1));
    const Tensor x = rand({5, 6}), y = tensor({0, 1, 2, 0, 1}, kInt64);
    LossHistory losses(5), fresh(3);
    const auto step = [&](LossHistory& into) {
      optimizer.zero_grad();
      const Tensor loss = nn::functional::cross_entropy(model->forward(x), y);
      loss.backward();
      optimizer.step();
      into.push(loss);
    };
    step(losses);
    const auto two = [&] {
      step(losses);
      step(losses);
      fresh.push(full({}, 7.0));
    };
    std::optional<Graph> graph;
    if (graphed) graph.emplace(get_default_device(), two);
    CHECK(losses.count() == 1);
    CHECK(fresh.count() == 0);
    for (int i = 0; i < 4; ++i) graph ? graph->replay() : two();
    step(losses);
    CHECK(losses.count() == 10);
    CHECK(fresh.to_vector() == Numbers{7, 7, 7});
    seen[graphed] = losses.to_vector();
  }
  CHECK(seen[0].size() == 5);
  CHECK(seen[0] == seen[1]);
  CHECK(seen[0][4] < seen[0][0]);
}
