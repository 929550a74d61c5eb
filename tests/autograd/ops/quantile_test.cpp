// quantile, erfinv, cross, renorm and the random numbers of four more distributions, beyond the op
// table: ends of ranges, NaN, infinities, errors.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include <halftape/halftape.h>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/lists.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using testing::has;
using testing::kInf, testing::kNaN;
using testing::list;
using testing::message;

namespace {

using Values = std::vector<double>;

}  // namespace

TEST_CASE("quantile puts a list of q in front, and keeps dimensions when asked") {
  const Tensor x = rand({2, 3, 4}), q = tensor({0.5f, 0.1f, 1.f});
  CHECK(quantile(x, q).sizes() == Shape{3});
  CHECK(quantile(x, q, 1).sizes() == Shape{3, 2, 4});
  CHECK(quantile(x, q, -2, true).sizes() == Shape{3, 2, 1, 4});
  CHECK(quantile(x, q, {}, true).sizes() == Shape{3, 1, 1, 1});
  CHECK(quantile(x, 0.5, 1).sizes() == Shape{2, 4});
  CHECK(quantile(x, 0.5, 1, true).sizes() == Shape{2, 1, 4});
  CHECK(quantile(x, 0.5, {}, true).sizes() == Shape{1, 1, 1});
  CHECK(quantile(x, zeros({0})).sizes() == Shape{0});
  CHECK(quantile(tensor(3.0), 0.25, 0).item() == 3);
  CHECK(quantile(tensor(3.0), q.to(kFloat64)).to_vector() == Values{3, 3, 3});
  CHECK(quantile(rand({3, 0}), 0.5, 0).sizes() == Shape{0});
  CHECK(x.quantile(0.3, 2).equal(quantile(x, tensor(0.3), 2)));
  CHECK(quantile(x.to(kFloat16), 0.5).dtype() == kFloat16);
}

TEST_CASE("quantile of NaN is NaN, nanquantile leaves NaN out, and infinities are values") {
  const Tensor x = list({3, kNaN, 1, 2});
  CHECK(std::isnan(quantile(x, 0.0).item()));
  CHECK(nanquantile(x, 0.5).item() == 2);
  CHECK(nanquantile(x, 1).item() == 3);
  CHECK(std::isnan(nanquantile(list({kNaN, kNaN}), 0.5).item()));
  CHECK(std::isnan(quantile(list({kNaN, kNaN}), 0.5).item()));
  const Tensor y = list({1, kInf, -kInf, 2, kInf});
  CHECK(quantile(y, 0).item() == -kInf);
  CHECK(quantile(y, 0.25).item() == 1);
  CHECK(quantile(y, 0.1).item() == -kInf);
  CHECK(quantile(y, 0.5).item() == 2);
  CHECK(quantile(y, 0.6).item() == kInf);
  CHECK(quantile(y, 0.9).item() == kInf);
  CHECK(quantile(full({5}, 0.1, kFloat32), 0.3).equal(tensor(0.1f)));  // what all are
}

TEST_CASE("quantile, renorm and cross give LibTorch's numbers") {
  // Printed by a program that LibTorch 1.13.1 (Debian's libtorch-dev) was linked to.
  const Tensor x = tensor({3.f, 1.f, -2.f, 7.f, 0.5f, 4.f}).reshape({2, 3});
  const Tensor q = tensor({0.f, 0.3f, 0.5f, 1.f}), with_nan = x.clone().index_put_({0, 1}, kNaN);
  struct Case {
    const char* how;
    Values rows, all, without_nan;
  };
  const Case cases[] = {
      {"linear",
       {-2, 0.5, -0.199999928, 2.60000014, 1, 4, 3, 7},
       {-2, 0.75, 2, 7},
       {-2, 0.5, -0.49999994, 2.60000014, 0.5, 4, 3, 7}},
      {"lower", {-2, 0.5, -2, 0.5, 1, 4, 3, 7}, {-2, 0.5, 1, 7}, {-2, 0.5, -2, 0.5, -2, 4, 3, 7}},
      {"higher", {-2, 0.5, 1, 4, 1, 4, 3, 7}, {-2, 1, 3, 7}, {-2, 0.5, 3, 4, 3, 4, 3, 7}},
      {"nearest", {-2, 0.5, 1, 4, 1, 4, 3, 7}, {-2, 1, 1, 7}, {-2, 0.5, -2, 4, -2, 4, 3, 7}},
      {"midpoint",
       {-2, 0.5, -0.5, 2.25, 1, 4, 3, 7},
       {-2, 0.75, 2, 7},
       {-2, 0.5, 0.5, 2.25, 0.5, 4, 3, 7}}};
  for (const Case& c : cases) {
    CAPTURE(c.how);
    CHECK(testing::differ(quantile(x, q, 1, false, c.how), c.rows, {.eps = 2}) == "");
    CHECK(testing::differ(quantile(x, q, {}, true, c.how), c.all, {.eps = 2}) == "");
    CHECK(testing::differ(nanquantile(with_nan, q, 1, true, c.how), c.without_nan, {.eps = 2}) ==
          "");
  }
  CHECK(
      testing::differ(renorm(x, 2, 0, 2.0),
                      {1.60356736, 0.534522474, -1.06904495, 1.73315644, 0.123796888, 0.990375102},
                      {.eps = 2}) == "");
  CHECK(testing::differ(renorm(x, 1, 1, 1.5), {0.450000018, 1, -0.5, 1.05000007, 0.5, 1},
                        {.eps = 2}) == "");
  CHECK(cross(x, 2 * x.flip({1})).to_vector() == Values{10, -10, 10, 3, -66, 3});
}

TEST_CASE("the distributions draw LibTorch's numbers from its generator") {
  if (get_default_device().is_cuda()) return;
  // LibTorch 1.13.1: manual_seed(0); empty({4}, kDouble).exponential_(1.5); and so on
  set_cpu_random_engine(RandomEngine::Mt19937);
  const auto drawn = [](int64_t n, auto f) {
    manual_seed(0);
    Tensor x = empty({n}, kFloat64);
    f(x);
    return x;
  };
  const testing::Tolerance digits{.eps = 0x1p25};  // nine were printed
  CHECK(testing::differ(drawn(4, [](Tensor& x) { x.exponential_(1.5); }),
                        {2.33888412, 0.820256509, 0.410029396, 1.6900791}, digits) == "");
  CHECK(testing::differ(drawn(4, [](Tensor& x) { x.cauchy_(1, 2); }),
                        {22.1954587, 2.52953452, 0.743401316, 8.86614662}, digits) == "");
  CHECK(testing::differ(drawn(4, [](Tensor& x) { x.log_normal_(1, 0.5); }),
                        {5.87377809, 2.34734651, 0.914484563, 3.61183386}, digits) == "");
  CHECK(drawn(6, [](Tensor& x) { x.geometric_(0.3); }).to_vector() == Values{1, 1, 3, 1, 2, 1});
  set_cpu_random_engine(RandomEngine::Philox);
}

TEST_CASE("quantile differentiates by its values and by q") {
  const Tensor x = list({4, 1, 2}).requires_grad_(), q = tensor(0.75, kFloat64).requires_grad_();
  quantile(x, q).backward();
  CHECK(x.grad().to_vector() == Values{0.5, 0, 0.5});
  CHECK(q.grad().item() == 4);  // (4 − 2) for each of two steps
  const Tensor y = list({4, 1, kNaN}).requires_grad_();
  nanquantile(y, 0.5, {}, false, "higher").backward();
  CHECK(y.grad().to_vector() == Values{1, 0, 0});
}

TEST_CASE("quantile names what is wrong") {
  const Tensor x = ones({2, 3});
  for (const double q : {-0.1, 1.1, kNaN})
    CHECK(has(message([&] { quantile(x, q); }), "quantile: q is not everywhere between 0 and 1"));
  CHECK(has(message([&] { quantile(x, 0.5, {}, false, "cubic"); }),
            "\"cubic\", expected \"linear\""));
  CHECK(has(message([&] { quantile(x, ones({1, 1})); }), "quantile: q [1, 1]"));
  CHECK(has(message([&] { quantile(x, 0.5, 2); }), "quantile: dimension 2 is out of range"));
  CHECK(has(message([&] { quantile(zeros({0}), 0.5); }), "quantile: a tensor [0] has no elements"));
  CHECK(has(message([&] { nanquantile(x.to(kInt64), 0.5); }), "nanquantile"));
}

TEST_CASE("erfinv is right to 2 ulp from the smallest number to the ends, and NaN beyond") {
  CHECK(erfinv(list({1, -1})).to_vector() == Values{kInf, -kInf});
  CHECK(isnan(erfinv(list({1.5, -kInf, kNaN}))).all().item<bool>());
  CHECK(std::signbit(erfinv(list({-0.0})).item()));
  CHECK(erfinv(list({5e-324})).item() == 5e-324);
  // mpmath: for x in …: print(erfinv(mpf(x)))
  const Values x = {0.5, 0.9, 1 - 0x1p-53, 1e-10, -0.999};
  const Values exact = {0.47693627620446987338, 1.1630871536766740867, 5.8635847487551675916,
                        8.8622692545275801368e-11, -2.3267537655135244948};
  for (size_t i = 0; i < x.size(); ++i) {
    CAPTURE(x[i]);
    CHECK(std::abs(erfinv(list({x[i]})).item() / exact[i] - 1) <= 0x1p-51);
    CHECK(erfinv(list({x[i]}, kFloat32)).item<float>() ==
          static_cast<float>(erfinv(list({static_cast<float>(x[i])})).item()));
  }
}

TEST_CASE("cross takes the first dimension of three, broadcasts, and keeps integers") {
  const Tensor a = tensor({1, 0, 0}), b = tensor({0, 1, 0});
  CHECK(cross(a, b).to_vector<int64_t>() == std::vector<int64_t>{0, 0, 1});
  CHECK(cross(a.to(kInt8), b.to(kUInt8)).dtype() == kInt16);
  CHECK(cross(rand({3, 4, 3}), rand({3, 4, 3})).sizes() == Shape{3, 4, 3});
  const Tensor x = rand({3, 4, 3}), y = rand({3, 4, 3});
  CHECK(cross(x, y).equal(cross(x, y, 0)));
  CHECK(linalg::cross(x, y).equal(x.cross(y, 2)));
  CHECK(cross(rand({0, 3}), rand({1, 3})).sizes() == Shape{0, 3});
  CHECK(has(message([] { cross(ones({2}), ones({2})); }), "cross: no dimension of size 3"));
  CHECK(has(message([] { cross(ones({3}), ones({1}), 0); }), "cross: inputs dimension 0"));
  CHECK(has(message([] { cross(ones({3}), ones({3}), 1); }), "cross: dimension 1 is out of range"));
  CHECK(has(message([] { linalg::cross(tensor(1.0), tensor(1.0)); }), "cross: "));
}

TEST_CASE("renorm leaves what is short enough as it is, in place too") {
  const Tensor x = list({3, 4, 0.3, 0.4, 0, 0}).reshape({3, 2});
  const Tensor y = renorm(x, 2, 0, 1);
  CHECK(y.index({1}).equal(x[1]));
  CHECK(y.index({2}).equal(x[2]));
  CHECK(testing::differ(y[0], {3 / (5 + 1e-7), 4 / (5 + 1e-7)}, {.eps = 4}) == "");
  CHECK(renorm(x, kInf, 0, 0).abs().sum().item() == 0);
  // The squares are no finite float32.
  CHECK(renorm(full({1, 4}, 1e30), 2, 0, 2).equal(ones({1, 4})));
  for (const double order : {2.0, 8.0}) {
    const Tensor table = full({1, 4}, order == 2 ? 1e30 : 1e5);
    embedding_renorm_(table, tensor({0}), 2, order);
    CHECK(table.allclose(full({1, 4}, 2 / std::pow(4, 1 / order))));
  }
  const Tensor far = full({1, 1}, 1e10);
  CHECK(cosine_embedding_loss(far, far, ones({1})).item() == 0);
  Tensor z = x.clone();
  CHECK(z.renorm_(2, 0, 1).equal(y));
  CHECK(renorm(zeros({0, 2}), 2, 0, 1).sizes() == Shape{0, 2});
  CHECK(has(message([&] { renorm(x, 0, 0, 1); }), "renorm: p = 0"));
  CHECK(has(message([&] { renorm(x, 2, 0, -1); }), "renorm: maxnorm -1"));
  CHECK(has(message([&] { renorm(x[0], 2, 0, 1); }), "renorm: input [2]"));
  CHECK(has(message([&] { renorm(x, 2, 2, 1); }), "renorm: dimension 2"));
}

TEST_CASE("cartesian_prod gives rows of one element each") {
  CHECK(cartesian_prod({tensor({1, 2}), tensor({3, 4})}).to_vector() ==
        Values{1, 3, 1, 4, 2, 3, 2, 4});
  CHECK(cartesian_prod({tensor({1, 2})}).sizes() == Shape{2});
  CHECK(cartesian_prod({tensor({1, 2}), zeros({0}, kInt64)}).sizes() == Shape{0, 2});
  CHECK(has(message([] { cartesian_prod({}); }), "cartesian_prod: of no tensors"));
  CHECK(has(message([] { cartesian_prod({ones({1, 1})}); }), "cartesian_prod: float32 [1, 1]"));
}

TEST_CASE("four more distributions in place have their medians and ranges") {
  manual_seed(11);
  const auto middle = [](const Tensor& x) { return x.median().item(); };
  const auto there = [] { return empty({20001}, kFloat64); };
  CHECK(std::abs(middle(there().exponential_(2)) - std::log(2) / 2) < 0.01);
  CHECK(std::abs(middle(there().log_normal_(1, 0.5)) - std::exp(1)) < 0.05);
  CHECK(std::abs(middle(there().cauchy_(3, 2)) - 3) < 0.1);
  const Tensor counts = there().geometric_(0.25);
  CHECK(counts.amin().item() == 1);
  CHECK(std::abs(counts.mean().item() - 4) < 0.15);
  CHECK(there().exponential_().amin().item() >= 0);
  CHECK(isfinite(empty({20001}, kFloat16).exponential_(0.5)).all().item<bool>());
  CHECK(empty({5}, kInt8).geometric_(0.5).amin().item<int>() >= 1);
  CHECK(empty({0}).cauchy_().numel() == 0);
  CHECK(has(message([&] { there().exponential_(0); }), "exponential_: the rate 0"));
  CHECK(has(message([&] { there().log_normal_(0, 0); }), "log_normal_: the standard deviation 0"));
  CHECK(has(message([&] { there().cauchy_(0, -1); }), "cauchy_: sigma -1"));
  CHECK(has(message([&] { there().geometric_(1); }), "geometric_: the probability 1"));
  CHECK(has(message([] { empty({2}, kInt64).exponential_(); }), "exponential_"));
  CHECK(has(message([] { ones({2}).requires_grad_().exponential_(); }), "exponential_: a leaf"));
}

TEST_CASE("contiguous() copies into channels-last order, which views and ops take as any layout") {
  const Tensor x = rand({2, 3, 4, 5}).requires_grad_();
  const Tensor y = x.contiguous(MemoryFormat::ChannelsLast);
  CHECK(y.sizes() == x.sizes());
  CHECK(y.strides() == Strides{60, 1, 15, 3});
  CHECK(y.is_contiguous(MemoryFormat::ChannelsLast));
  CHECK_FALSE(y.is_contiguous());
  CHECK_FALSE(x.is_contiguous(MemoryFormat::ChannelsLast));
  CHECK(y.suggest_memory_format() == MemoryFormat::ChannelsLast);
  CHECK(x.suggest_memory_format() == MemoryFormat::Contiguous);
  CHECK(y.contiguous(MemoryFormat::ChannelsLast).is_same(y));
  CHECK(y.equal(x));
  CHECK(y.contiguous().is_contiguous());
  const Tensor w = rand({6, 3, 3, 3});
  CHECK(conv2d(y, w).equal(conv2d(x, w)));
  CHECK(max_pool2d(y, 2).equal(max_pool2d(x, 2)));
  y.square().sum().backward();
  CHECK(x.grad().equal(2 * x.detach()));
  const Tensor z = rand({2, 3, 2, 4, 5}).contiguous(MemoryFormat::ChannelsLast3d);
  CHECK(z.strides() == Strides{120, 1, 60, 15, 3});
  CHECK(z.suggest_memory_format() == MemoryFormat::ChannelsLast3d);
  CHECK_FALSE(z.is_contiguous(MemoryFormat::ChannelsLast));
  CHECK(zeros({0, 3, 2, 2}).is_contiguous(MemoryFormat::ChannelsLast));
  CHECK(rand({2, 1, 3, 3}).is_contiguous(MemoryFormat::ChannelsLast));
  CHECK(rand({2, 3, 1, 1}).suggest_memory_format() == MemoryFormat::Contiguous);
  CHECK(has(message([&] {
              ones({2, 2}).contiguous(MemoryFormat::ChannelsLast);
            }),
            "contiguous: memory format ChannelsLast is of 4 dimensions"));
  CHECK(has(message([&] { x.contiguous(MemoryFormat::Preserve); }), "contiguous: memory format"));
}
