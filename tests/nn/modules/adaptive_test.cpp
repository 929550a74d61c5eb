// The adaptive softmax: what its three results are to one another, and what it refuses. Its values
// are compared with PyTorch's in every_module_test.cpp.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using testing::differ;
using testing::has;
using testing::message;

namespace {

nn::AdaptiveLogSoftmaxWithLoss softmax_of_12() {
  manual_seed(3);
  nn::AdaptiveLogSoftmaxWithLoss m(
      nn::AdaptiveLogSoftmaxWithLossOptions(8, 12, {3, 7}).div_value(2).head_bias(true));
  m->to(kFloat64);
  return m;
}

}  // namespace

TEST_CASE("the adaptive softmax's probabilities sum to 1, and are those of its loss") {
  const auto m = softmax_of_12();
  const Tensor x = randn({12, 8}, kFloat64), targets = arange(12, kInt64);
  const Tensor all = m->log_prob(x);
  CHECK(all.sizes() == Shape{12, 12});
  CHECK(differ(all.exp().sum(1), ones({12}, kFloat64), {.ulps = 16}) == "");
  const nn::ASMoutput out = m(x, targets);
  CHECK(differ(out.output, all.gather(1, targets.unsqueeze(1)).squeeze(1), {.ulps = 16}) == "");
  CHECK(static_cast<double>(out.loss) == doctest::Approx(-out.output.mean().item<double>()));
  CHECK(tensor(out.loss, kFloat64).item<double>() == static_cast<double>(out.loss));
  CHECK(m->predict(x).equal(all.argmax(1)));
  // A single sample, without a batch.
  CHECK(differ(m(x[5], targets[5]).output, out.output[5], {.ulps = 16}) == "");
}

TEST_CASE("the adaptive softmax predicts frequent classes without looking at the rare ones") {
  const auto m = softmax_of_12();
  {
    const NoGradGuard no_grad;
    m->head->weight.zero_();
    m->head->bias.copy_(tensor({0.0, 9.0, 0.0, 0.0, 0.0}));
    for (const auto& p : m->tail->named_parameters()) p.value().fill_(std::nan(""));
  }
  CHECK(m->predict(ones({2, 8}, kFloat64)).equal(tensor({1, 1})));
}

TEST_CASE("the adaptive softmax trains: backward() of its loss reaches all that was used") {
  const auto m = softmax_of_12();
  const Tensor x = randn({4, 8}, kFloat64);
  m(x, tensor({0, 4, 2, 5})).loss.backward();
  CHECK(m->head->weight.grad().defined());
  CHECK(m->named_parameters()["tail.0.0.weight"].grad().defined());
  CHECK_FALSE(m->named_parameters()["tail.1.0.weight"].grad().defined());  // no target in it
}

TEST_CASE("the adaptive softmax refuses cutoffs and targets that are none") {
  const auto made = [](std::vector<int64_t> cutoffs) {
    return message([&] { nn::AdaptiveLogSoftmaxWithLoss(8, 12, cutoffs); });
  };
  CHECK(has(made({}), "no cutoffs"));
  CHECK(has(made({3, 3}), "3 follows 3 of 12 classes"));
  CHECK(has(made({0}), "sorted in an increasing order"));
  CHECK(has(made({12}), "between 1 and n_classes-1"));
  const auto m = softmax_of_12();
  const Tensor x = randn({2, 8}, kFloat64);
  CHECK(has(message([&] { m(x, tensor({1, 12})); }), "in [0, 11], but values in range [1, 12]"));
  CHECK(has(message([&] { m(x, tensor({-1, 2})); }), "values in range [-1, 2]"));
  CHECK(has(message([&] { m(x, tensor({1})); }), "input [2, 8] and target [1]"));
}

TEST_CASE("CrossMapLRN2d is its formula, with the first channel in every later sum") {
  const nn::CrossMapLRN2d m(nn::CrossMapLRN2dOptions(3).alpha(0.5).beta(0.75).k(2));
  const Tensor x = randn({1, 5, 1, 1}, kFloat64);
  const std::vector<double> v = x.to_vector();
  std::vector<double> expected;
  for (size_t c = 0; c < 5; ++c) {
    double sum = 0;
    for (size_t other = 0; other < 5; ++other)
      if (other + 1 >= c && other <= c + 1) sum += v[other] * v[other];
    if (c > 1) sum += v[0] * v[0];
    expected.push_back(v[c] * std::pow(2 + 0.5 / 3 * sum, -0.75));
  }
  CHECK(differ(m(x), expected, {.ulps = 16}) == "");
  CHECK(has(message([&] { m(x[0]); }), "expected (N, C, H, W)"));
  CHECK(has(message([&] { nn::CrossMapLRN2d(0)(x); }), "size 0 must be positive"));
}

TEST_CASE("fractional pooling is told how long its output is in just one way") {
  using Options = nn::FractionalMaxPool2dOptions;
  const auto made = [](const Options& o) { return message([&] { nn::FractionalMaxPool2d{o}; }); };
  CHECK(has(made(Options(2)), "either an output_size, or a output_ratio"));
  CHECK(has(made(Options(2).output_size(3).output_ratio(0.5)), "only one of output_size"));
  CHECK(has(made(Options(2).output_ratio(1.5)), "between 0 and 1 (got 1.5)"));
  const Tensor x = randn({2, 3, 9, 9}, kFloat64);
  const nn::FractionalMaxPool2d m(Options(2).output_ratio(0.5));
  manual_seed(1);
  const auto [y, at] = m->forward_with_indices(x);
  CHECK(y.sizes() == Shape{2, 3, 4, 4});
  CHECK(x.flatten(2).gather(2, at.flatten(2)).equal(y.flatten(2)));
  manual_seed(1);
  CHECK(m(x).equal(y));
  CHECK_FALSE(m(x).equal(y));  // other windows each time
  CHECK(has(message([&] { nn::FractionalMaxPool2d(Options(3).output_size(8))(x); }),
            "8 windows of 3 elements, one apart at least, do not fit into dimension 0 of [9, 9]"));
  CHECK(has(message([&] {
              fractional_max_pool2d(x, 2, 4, rand({2, 2, 2}));
            }),
            "expected numbers of shape [2, 3, 2]"));
}

TEST_CASE("the adaptive softmax draws its first weights in the order of its layers") {
  const auto m = softmax_of_12();
  manual_seed(3);
  const nn::Linear head(8, 5);
  CHECK(m->head->weight.equal(head->weight.to(kFloat64)));
  const int64_t sizes[] = {8, 4, 4, 8, 2, 5};
  for (size_t cluster = 0; cluster < 2; ++cluster)
    for (size_t i = 0; i < 2; ++i) {
      const int64_t* const size = sizes + 3 * cluster + i;
      const nn::Linear layer(nn::LinearOptions(size[0], size[1]).bias(false));
      const Tensor weight = m->named_parameters()["tail." + std::to_string(cluster) + "." +
                                                  std::to_string(i) + ".weight"];
      CHECK(weight.equal(layer->weight.to(kFloat64)));
    }
}
