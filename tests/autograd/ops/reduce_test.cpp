// Reductions and running reductions beyond the op table: dtypes, NaN, zeros, no elements, errors.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/lists.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using testing::differ;
using testing::kInf, testing::kNaN;
using testing::leaf, testing::list;

namespace {

using List = std::vector<double>;

/// The gradient of the sum of f(x).
template <class F>
List slope(const List& x, F f) {
  const Tensor t = leaf(x);
  return autograd::grad({sum(f(t))}, {t})[0].to_vector();
}
std::string nan_equal(const List& got, const List& expected) {
  return differ(list(got), expected, {.ulps = 16});
}

}  // namespace

TEST_CASE("sums and products of integers, also running, are int64 and exact beyond 2^53") {
  const int64_t big = (int64_t{1} << 53) + 1;
  const Tensor x = tensor({big, int64_t{1}, int64_t{1}});
  CHECK(sum(x).item<int64_t>() == big + 2);
  CHECK(prod(x).item<int64_t>() == big);
  CHECK(cumsum(x, 0).to_vector<int64_t>() == std::vector<int64_t>{big, big + 1, big + 2});
  CHECK(cumprod(x, 0).to_vector<int64_t>() == std::vector<int64_t>{big, big, big});
  CHECK(max(x).item<int64_t>() == big);
  CHECK(std::get<0>(cummax(x, 0)).to_vector<int64_t>() == std::vector<int64_t>{big, big, big});
  for (const Dtype d : {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64}) {
    CAPTURE(d);
    const Tensor y = list({1, 1, 0}).to(d);
    CHECK(sum(y).dtype() == kInt64);
    CHECK(prod(y).dtype() == kInt64);
    CHECK(prod(y, 0).item<int64_t>() == 0);
    CHECK(cumsum(y, 0).dtype() == kInt64);
    CHECK(cumsum(y, 0).to_vector() == List{1, 2, 2});
    CHECK(cumprod(y, 0).dtype() == kInt64);
    CHECK(nansum(y).dtype() == kInt64);
    CHECK(max(y).dtype() == d);
    CHECK(min(y).item<int64_t>() == 0);
    CHECK(std::get<0>(max(y, 0)).dtype() == d);
    CHECK(std::get<1>(min(y, 0)).item<int64_t>() == 2);
    CHECK(any(y).item<bool>());
    CHECK_FALSE(all(y).item<bool>());
    CHECK(count_nonzero(y).item<int64_t>() == 2);
  }
  const Tensor bytes = list({250, 10}).to(kUInt8);
  CHECK(sum(bytes).item<int64_t>() == 260);
  CHECK(prod(bytes).item<int64_t>() == 2500);
  // 2^64 wraps to 0, as in PyTorch.
  CHECK(prod(full({64}, 2, kInt64)).item<int64_t>() == 0);
}

TEST_CASE("a dtype argument sets the dtype of the result") {
  CHECK(sum(list({1.5, 1.5}), kInt64).item<int64_t>() == 2);
  CHECK(sum(list({1, 2}, kFloat16), kFloat64).dtype() == kFloat64);
  CHECK(list({1, 2}, kFloat16).sum({0}, true, kFloat32).dtype() == kFloat32);
  CHECK(mean(tensor({1, 2}), kFloat32).item() == 1.5);
  CHECK(mean(tensor({1, 2}), 0, true, kFloat64).dtype() == kFloat64);
  CHECK(tensor({1, 2}).mean(kFloat16).dtype() == kFloat16);
  CHECK(prod(list({1.5, 2.5}), kInt64).item<int64_t>() == 2);
  CHECK(prod(list({1.5, 2.5}, kFloat16), 0, false, kFloat32).item() == 3.75);
  CHECK(cumsum(list({1.5, 1.5}), 0, kInt32).dtype() == kInt32);
  CHECK(norm(list({3, 4}, kFloat16), 2, kFloat64).dtype() == kFloat64);
  CHECK(norm(list({3, 4}, kFloat32), 2, 0, true, kFloat64).sizes() == Shape{1});
  CHECK_REFUSED(mean(tensor({1, 2})), "mean: of a tensor of int64");
  CHECK_REFUSED(mean(list({1, 2}), kInt64), "mean: of a tensor of int64");
  CHECK_REFUSED(nanmean(tensor({1, 2})), "nanmean: of a tensor of int64");
}

TEST_CASE("a number in place of dims means this one dimension") {
  const Tensor x = list({1, 2, 3, 4, 5, 6}).reshape({2, 3});
  CHECK(x.sum(0).to_vector() == List{5, 7, 9});
  CHECK(x.mean(-1).to_vector() == List{2, 5});
  CHECK(x.amax(1, true).sizes() == Shape{2, 1});
  CHECK(x.logsumexp(1).sizes() == Shape{2});
  CHECK(x.any(1).sizes() == Shape{2});
  static_assert(!std::is_convertible_v<bool, Dims>);  // sum(x, true) must not mean dimension 1
  static_assert(!std::is_convertible_v<double, Dims>);
}

TEST_CASE("without elements a sum is 0, a product 1, a mean NaN, and an extremum is refused") {
  const Tensor none = zeros({0}), rows = zeros({2, 0});
  CHECK(sum(none).item() == 0);
  CHECK(prod(none).item() == 1);
  CHECK(prod(rows, 1).to_vector() == List{1, 1});
  CHECK(nan_equal(mean(none).to_vector(), {kNaN}) == "");
  CHECK(nan_equal(var(none).to_vector(), {kNaN}) == "");
  CHECK(nan_equal(halftape::std(rows, {1}).to_vector(), {kNaN, kNaN}) == "");
  CHECK(logsumexp(none, 0).item() == -kInf);
  CHECK(nan_equal(median(none).to_vector(), {kNaN}) == "");
  CHECK_FALSE(any(none).item<bool>());
  CHECK(all(none).item<bool>());
  CHECK(all(rows, 1).to_vector() == List{1, 1});
  CHECK(count_nonzero(rows, 1).to_vector() == List{0, 0});
  for (const double p : {0.0, 1.0, 2.0, 3.0}) CHECK(norm(none, p).item() == 0);
  for (const double p : {-1.0, kInf, -kInf}) CHECK_REFUSED(norm(none, p), "norm: dimension 0 of");
  CHECK_REFUSED(max(none), "max: dimension 0 of");
  CHECK_REFUSED(min(none), "min: dimension 0 of");
  CHECK_REFUSED(max(rows, 1), "max: dimension 1 of");
  CHECK_REFUSED(min(rows, -1), "min: dimension 1 of");
  CHECK_REFUSED(amax(rows, {0, 1}), "amax: dimension 1 of");
  CHECK_REFUSED(aminmax(rows), "aminmax: dimension 1 of");
  CHECK_REFUSED(argmax(none), "argmax: dimension 0 of");
  CHECK_REFUSED(argmin(rows, 1), "argmin: dimension 1 of");
  CHECK_REFUSED(median(rows, 1), "median: dimension 1 of");
  CHECK_REFUSED(median(none.to(kInt64)), "median: of");
  // These need no element of the empty dimension.
  CHECK(std::get<0>(max(rows, 0)).sizes() == Shape{0});
  CHECK(argmax(zeros({0, 3}), 1, true).sizes() == Shape{0, 1});
  CHECK(amax(zeros({0, 3}), 1).sizes() == Shape{0});
  CHECK(cumsum(rows, 1).sizes() == Shape{2, 0});
  CHECK(cumprod(rows, 0).sizes() == Shape{2, 0});
  CHECK(std::get<1>(cummax(rows, 1)).sizes() == Shape{2, 0});
  CHECK(diff(none).sizes() == Shape{0});
}

TEST_CASE("a 0-dim tensor is reduced along dimension 0 or -1") {
  const Tensor x = tensor(3.0, kFloat64);
  for (const int64_t d : {0, -1}) {
    CHECK(sum(x, d).item() == 3);
    CHECK(prod(x, d).item() == 3);
    CHECK(std::get<0>(max(x, d)).item() == 3);
    CHECK(std::get<1>(min(x, d)).item<int64_t>() == 0);
    CHECK(argmax(x, d).item<int64_t>() == 0);
    CHECK(argmin(x, d, true).sizes() == Shape{});
    CHECK(cumsum(x, d).item() == 3);
    CHECK(cumprod(x, d).item() == 3);
    CHECK(std::get<0>(cummin(x, d)).item() == 3);
    CHECK(var(x, d, false).item() == 0);
    CHECK(logsumexp(x, d).item() == 3);
    CHECK(norm(x, 1, d).item() == 3);
  }
  CHECK(std::get<1>(aminmax(x)).item() == 3);
  CHECK_REFUSED(diff(x), "diff: a 0-dim tensor");
  CHECK_REFUSED(prod(x, 1), "prod: dimension 1 is out of range");
}

TEST_CASE("dimensions out of range or twice are refused") {
  const Tensor x = zeros({2, 3});
  CHECK_REFUSED(prod(x, 2), "prod: dimension 2 is out of range");
  CHECK_REFUSED(max(x, -3), "max: dimension -3 is out of range");
  CHECK_REFUSED(argmin(x, 2), "argmin: dimension 2 is out of range");
  CHECK_REFUSED(any(x, {0, 0}), "dimension 0 appears twice");
  CHECK_REFUSED(var(x, {0, -2}), "var: dimension 0 appears twice");
  CHECK_REFUSED(halftape::std(x, 2, true), "std: dimension 2 is out of range");
  CHECK_REFUSED(norm(x, 2, {0, 0}), "dimension 0 appears twice");
  CHECK_REFUSED(logsumexp(x, 2), "logsumexp: dimension 2 is out of range");
  CHECK_REFUSED(cumsum(x, 2), "cumsum: dimension 2 is out of range");
  CHECK_REFUSED(cumprod(x, -3), "cumprod: dimension -3 is out of range");
  CHECK_REFUSED(cummax(x, 2), "cummax: dimension 2 is out of range");
  CHECK_REFUSED(cummin(x, 2), "cummin: dimension 2 is out of range");
  CHECK_REFUSED(diff(x, 1, 2), "diff: dimension 2 is out of range");
  CHECK_REFUSED(diff(x, -1), "diff: order -1 is negative");
  CHECK_REFUSED(cosine_similarity(x, x, 2), "dimension 2 is out of range");
  CHECK_REFUSED(dist(x, zeros({4})), "do not broadcast");
  CHECK_REFUSED(pairwise_distance(tensor(1.0), tensor(2.0)), "pairwise_distance:");
  CHECK_REFUSED(cdist(x, zeros({2, 4})), "cdist:");
  CHECK_REFUSED(cdist(x, x, -1), "cdist: p = -1");
}

TEST_CASE("undefined tensors are refused, and integers by norm, var and std") {
  const Tensor none, whole = tensor({1, 2});
  CHECK_REFUSED(prod(none), "tensor number 1 is undefined");
  CHECK_REFUSED(max(none), "tensor number 1 is undefined");
  CHECK_REFUSED(cumsum(none, 0), "tensor number 1 is undefined");
  CHECK_REFUSED(norm(none), "tensor number 1 is undefined");
  CHECK_REFUSED(any(none), "tensor number 1 is undefined");
  CHECK_REFUSED(norm(whole), "norm: of a tensor of int64");
  CHECK_REFUSED(var(whole), "var: of a tensor of int64");
  CHECK_REFUSED(halftape::std(whole), "std: of a tensor of int64");
  CHECK(differ(logsumexp(whole, 0), {2.313261687518223}, {.ulps = 2}) == "");
}

TEST_CASE("var's flag means correction 0 or 1, and a bare number is refused") {
  const Tensor x = list({1, 2, 4, 9});
  CHECK(differ(var(x, false), var(x, Dims{}, Scalar(0)), {}) == "");
  CHECK(differ(var(x, true), var(x), {}) == "");
  CHECK(differ(x.std({0}, false), x.std(Dims{0}, Scalar(0)), {}) == "");
  CHECK(x.var({0}, true, true).sizes() == Shape{1});
  CHECK(differ(std::get<1>(std_mean(x, false)), mean(x), {}) == "");
  CHECK(differ(std::get<0>(var_mean(x, {0}, false)), var(x, false), {}) == "");
  CHECK(var(x, Dims{}, Scalar(7)).item() == kInf);  // the divisor is 0
  CHECK(var(x, {0}).sizes() == Shape{});
  const auto takes = [](const auto& y, auto number) {
    return requires { y.var(number); }
    || requires { std_mean(y, number); };
  };
  CHECK(takes(x, true));
  CHECK_FALSE(takes(x, 1));  // a flag in LibTorch, a dimension in Python
  CHECK_FALSE(takes(x, int64_t{0}));
}

TEST_CASE("reductions of NaN are NaN, extrema too; nansum and nanmean leave NaN out") {
  const Tensor x = list({1, kNaN, 3});
  for (const Tensor& y :
       {sum(x), mean(x), prod(x), max(x), min(x), amax(x), amin(x), var(x), halftape::std(x),
        norm(x), norm(x, 1), norm(x, 3), norm(x, kInf), norm(x, -kInf), logsumexp(x, 0), median(x),
        std::get<0>(max(x, 0)), std::get<0>(min(x, 0)), std::get<0>(median(x, 0))})
    CHECK(nan_equal(y.to_vector(), {kNaN}) == "");
  CHECK(std::get<1>(max(x, 0)).item<int64_t>() == 1);
  CHECK(std::get<1>(min(x, 0)).item<int64_t>() == 1);
  CHECK(argmin(x).item<int64_t>() == 1);
  CHECK(std::get<1>(median(x, 0)).item<int64_t>() == 1);
  CHECK(norm(x, 0).item() == 3);
  CHECK(nansum(x).item() == 4);
  CHECK(nanmean(x).item() == 2);
  CHECK(nansum(list({kNaN})).item() == 0);
  CHECK(nan_equal(nanmean(list({kNaN})).to_vector(), {kNaN}) == "");
  CHECK(slope({1, kNaN, 3}, [](const Tensor& t) { return nansum(t); }) == List{1, 0, 1});
  CHECK(any(list({kNaN})).item<bool>());
  CHECK(all(list({kNaN})).item<bool>());
  CHECK(nan_equal(cumsum(x, 0).to_vector(), {1, kNaN, kNaN}) == "");
  CHECK(nan_equal(cumprod(x, 0).to_vector(), {1, kNaN, kNaN}) == "");
}

TEST_CASE("cummax and cummin give the index of the last of equals, and of the last NaN") {
  const auto [top, at] = cummax(list({1, 3, 3, kNaN, 5, kNaN, 1}), 0);
  CHECK(nan_equal(top.to_vector(), {1, 3, 3, kNaN, kNaN, kNaN, kNaN}) == "");
  CHECK(at.to_vector() == List{0, 1, 2, 3, 3, 5, 5});
  const auto [low, where_low] = cummin(tensor({1, 3, 1, 0, 0}), 0);
  CHECK(low.to_vector() == List{1, 1, 1, 0, 0});
  CHECK(where_low.to_vector() == List{0, 0, 2, 3, 4});
  CHECK(slope({1, 3, 3, 2}, [](const Tensor& t) { return std::get<0>(cummax(t, 0)); }) ==
        List{1, 1, 2, 0});
}

TEST_CASE("equal extrema share the gradient; along a dimension the first one gets it") {
  CHECK(slope({1, 3, 3}, [](const Tensor& t) { return max(t); }) == List{0, 0.5, 0.5});
  CHECK(slope({1, 1, 3}, [](const Tensor& t) { return min(t); }) == List{0.5, 0.5, 0});
  CHECK(slope({1, 3, 3}, [](const Tensor& t) { return std::get<0>(max(t, 0)); }) == List{0, 1, 0});
  CHECK(slope({1, 1, 3}, [](const Tensor& t) { return std::get<0>(min(t, 0)); }) == List{1, 0, 0});
  CHECK(slope({2, 1, 2}, [](const Tensor& t) { return median(t); }) == List{0.5, 0, 0.5});
  CHECK(slope({1, kNaN, 3, kNaN}, [](const Tensor& t) { return amax(t); }) == List{0, 0.5, 0, 0.5});
  CHECK(slope({1, kNaN, 3}, [](const Tensor& t) { return median(t); }) == List{0, 1, 0});
  CHECK(slope({1, 3, 3}, [](const Tensor& t) { return norm(t, kInf); }) == List{0, 0.5, 0.5});
}

TEST_CASE("derivatives of products of any order are right where factors are 0") {
  auto all = [](const Tensor& t) { return prod(t); };
  auto running = [](const Tensor& t) { return cumprod(t, 0); };
  CHECK(slope({2, 0, 3}, all) == List{0, 6, 0});
  CHECK(slope({0, 0, 3}, all) == List{0, 0, 0});
  CHECK(slope({2, 0, 3, 0, 4}, running) == List{1, 8, 0, 0, 0});
  for (const List& x : {List{2, 0, 3}, List{0, 0, 3}, List{0, 0, 0}, List{1.5, 0, -2, 0, 0.5}}) {
    CHECK(autograd::gradcheck([&](const TensorList& t) { return prod(t[0]); }, {leaf(x)}));
    CHECK(autograd::gradgradcheck([&](const TensorList& t) { return prod(t[0]); }, {leaf(x)}));
    CHECK(autograd::gradcheck([&](const TensorList& t) { return cumprod(t[0], 0); }, {leaf(x)}));
    CHECK(
        autograd::gradgradcheck([&](const TensorList& t) { return cumprod(t[0], 0); }, {leaf(x)}));
  }
  // The third derivative of x·y·z is 1.
  const Tensor t = leaf({0, 0, 0});
  const Tensor first = autograd::grad({prod(t)}, {t}, {}, {}, true)[0][0];
  const Tensor second = autograd::grad({first}, {t}, {}, {}, true)[0][1];
  CHECK(autograd::grad({second}, {t})[0].to_vector() == List{0, 0, 1});
}

TEST_CASE("a product's gradient is right where partial products leave the range of float") {
  const Tensor x = tensor({1e30, 1e30, 1e-30, 1e-30}, kFloat32).requires_grad_();
  const Tensor g = autograd::grad({prod(x)}, {x})[0];
  CHECK(differ(g, {1e-30, 1e-30, 1e30, 1e30}, {.ulps = 4}) == "");
}

TEST_CASE("a norm's gradient is 0 where the norm is 0, and at elements that are 0") {
  for (const double p : {1.0, 2.0, 3.0, 1.5, 0.5, -1.0, kInf, -kInf}) {
    CAPTURE(p);
    auto f = [p](const Tensor& t) { return norm(t, p); };
    CHECK(norm(list({0, 0}), p).item() == 0);
    CHECK(nan_equal(slope({0, 0}, f), {0, 0}) == "");
  }
  auto at = [](double p) { return slope({0, 3, -4}, [p](const Tensor& t) { return norm(t, p); }); };
  CHECK(nan_equal(at(1), {0, 1, -1}) == "");
  CHECK(nan_equal(at(2), {0, 0.6, -0.8}) == "");
  CHECK(nan_equal(at(3), {0, 0.4448513517305356, -0.7908468475209521}) == "");
  CHECK(nan_equal(at(1.5), {0, 0.7329564758289748, -0.8463452372482761}) == "");
  CHECK(nan_equal(at(0.5), {0, 2.154700538379252, -1.8660254037844386}) == "");
  CHECK(nan_equal(at(-1), {0, 0, 0}) == "");
  CHECK(nan_equal(at(kInf), {0, 0, -1}) == "");
  CHECK(nan_equal(at(-kInf), {0, 0, 0}) == "");
  CHECK(slope({2, 2}, [](const Tensor& t) { return halftape::std(t); }) == List{0, 0});
  CHECK(nan_equal(slope({2}, [](const Tensor& t) { return halftape::std(t); }), {kNaN}) == "");
  const Tensor a = leaf({1, 2}).reshape({1, 2});
  CHECK(sum(cdist(a, a)).item() == 0);
}

TEST_CASE("logsumexp is finite where its terms overflow, and has gradient 0 in a row of -inf") {
  CHECK(differ(logsumexp(list({1000, 1000}), 0), {1000.6931471805599}, {.ulps = 1}) == "");
  CHECK(differ(logsumexp(list({-1000, -1000}), 0), {-999.3068528194401}, {.ulps = 1}) == "");
  CHECK(logsumexp(list({kInf, 1}), 0).item() == kInf);
  const Tensor rows = list({-kInf, -kInf, 0, -kInf}).reshape({2, 2});
  CHECK(logsumexp(rows, 1).to_vector() == List{-kInf, 0});
  CHECK(slope({-kInf, -kInf}, [](const Tensor& t) { return logsumexp(t, 0); }) == List{0, 0});
  CHECK(slope({0, -kInf}, [](const Tensor& t) { return logsumexp(t, 0); }) == List{1, 0});
}

TEST_CASE("reductions of halves neither overflow nor lose digits if half can hold the result") {
  for (const Dtype d : {kFloat16, kBFloat16}) {
    CAPTURE(d);
    CHECK(mean(full({100}, 1024, d)).item() == 1024);  // the sum is beyond float16
    CHECK(norm(full({4}, 300, d)).item() == tensor(600.0, d).item());
    CHECK(halftape::std(full({4}, 40000, d)).item() == 0);
    CHECK(var(list({-200, 200}, d), false).item() == tensor(40000.0, d).item());
    CHECK(logsumexp(full({2}, 1000, d), 0).item() == tensor(1000.6931471805599, d).item());
    CHECK(prod(list({1024, 1024, 1.0 / 1024}, d)).item() == 1024);
    // A running sum of ones would stop growing at 2048 in float16, at 256 in bfloat16.
    const Tensor run = cumsum(full({4096}, 1, d), 0);
    CHECK(run[4095].item() == 4096);
    CHECK(run.dtype() == d);
  }
}

TEST_CASE("running sums of a million tenths are right to the last digit of float") {
  const Tensor y = cumsum(full({1000000}, 0.1, kFloat32), 0);
  const double exact = 1000000 * static_cast<double>(0.1f);
  CHECK(y[999999].item() == static_cast<double>(static_cast<float>(exact)));
}

TEST_CASE("diff of bool says where it changes, and n differences of n + 1 elements leave one") {
  CHECK(diff(tensor({true, false, false})).dtype() == kBool);
  CHECK(diff(tensor({true, false, false})).to_vector() == List{1, 0});
  CHECK(diff(tensor({1, 4, 9, 16}), 3).to_vector() == List{0});
  CHECK(diff(list({1, 2}), 5).sizes() == Shape{0});
  CHECK(diff(list({1, 2}), 0).to_vector() == List{1, 2});
}

TEST_CASE("distances are right for equal, zero and empty vectors") {
  CHECK(dist(list({1, 2}), list({1, 2})).item() == 0);
  CHECK(cosine_similarity(list({0, 0}), list({1, 2}), 0).item() == 0);
  CHECK(cosine_similarity(list({2, 0}), list({5, 0}), 0).item() == 1);
  CHECK(cdist(zeros({2, 0}), zeros({3, 0})).to_vector() == List(6, 0));
  CHECK(cdist(zeros({2, 0}), zeros({3, 0}), kInf).to_vector() == List(6, 0));
  CHECK(cdist(zeros({2, 1, 5, 3}), zeros({4, 6, 3})).sizes() == Shape{2, 4, 5, 6});
  namespace F = nn::functional;
  const Tensor a = list({1, 2, 3, 4}).reshape({2, 2}), b = zeros({2, 2}, kFloat64);
  CHECK(F::pairwise_distance(a, b, F::PairwiseDistanceFuncOptions().p(1).keepdim(true)).sizes() ==
        Shape{2, 1});
  CHECK(F::cosine_similarity(a, a, F::CosineSimilarityFuncOptions().dim(0)).sizes() == Shape{2});
}

TEST_CASE("under autocast an explicit dtype wins over the category") {
  const Tensor x = list({1, 2}, kFloat16);
  const amp::autocast region(get_default_device().type(), kFloat16);
  CHECK(prod(x).dtype() == kFloat32);
  CHECK(prod(x, kFloat16).dtype() == kFloat16);
  CHECK(cumsum(x, 0, kFloat16).dtype() == kFloat16);
  CHECK(norm(x, 2, kFloat16).dtype() == kFloat16);
  CHECK(var(x).dtype() == kFloat16);
  Tensor y = x.clone();
  CHECK(y.cumsum_(0).dtype() == kFloat16);
}
