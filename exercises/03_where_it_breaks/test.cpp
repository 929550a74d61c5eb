#include <start.h>

#include <doctest/doctest.h>
#include <support/course.h>
#include <support/training.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace {

/// Trains at 10, 1, 0.1 … until it fails: the edge is between the last two weights.
void expect(const course::Net& net, const course::Histogram& gradients) {
  const double said = breaking_weight(gradients);
  int power = 1;
  while (power > -12 && course::accuracy_in_float16(net, std::pow(10.0, power)) >= 50) --power;
  const double edge = std::pow(10.0, power + 0.5);
  const bool near = said >= edge / 10 && said <= edge * 10;
  CHECK_MESSAGE(
      near, course::text("you say ", said, "; it learns at weight 1e", power + 1, " and not at 1e",
                         power, "; ", edge / 10, " to ", edge * 10, " passes"));
}
void expect(const course::Net& net) { expect(net, course::activation_gradients(net)); }

}  // namespace

TEST_CASE("the network of the chapter breaks where you say") { expect({"the chapter's"}); }

TEST_CASE("a loss that is a sum over the batch breaks much later") {
  expect({.name = "a sum over 128 images", .factor = 128});
}

TEST_CASE("a loss that is a mean over 784 numbers as well breaks much earlier") {
  expect({.name = "a mean over 784 numbers", .factor = 1.0 / 784});
}

TEST_CASE("a deep network breaks where you say") {
  expect({.name = "five hidden layers", .hidden = {64, 64, 64, 64, 64}});
}

TEST_CASE("a network with batches of 8 breaks where you say") {
  expect({.name = "batches of 8", .hidden = {64}, .batch = 8});
}

TEST_CASE("one outlier in a thousand does not move the edge") {
  const course::Net net{"the chapter's"};
  course::Histogram gradients = course::activation_gradients(net);
  int64_t all = 0;
  size_t largest = 0;
  for (size_t i = 0; i < gradients.counts.size(); ++i) {
    all += gradients.counts[i];
    if (gradients.counts[i] > 0) largest = i;
  }
  gradients.counts[std::min(largest + 20, gradients.counts.size() - 1)] += all / 1000;
  expect(net, gradients);
}
