// Methods of Tensor equal the functions of autograd/ops. ops/elementwise_forms_test.cpp tests the
// element-wise ones.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/counted.h"

using namespace halftape;
using testing::counted;
using testing::same_bits;

TEST_CASE("methods equal the functions of the same name") {
  const Tensor x = sin(counted({3, 4}));
  const Tensor before = x.narrow(1, 0, 1) - 1, after = x.narrow(1, 0, 2) + 1;
  CHECK(same_bits(x.logcumsumexp(1), logcumsumexp(x, 1)));
  CHECK(same_bits(x.diff(2, 1, before, after), diff(x, 2, 1, before, after)));
  CHECK(same_bits(x.diff(1, 1, {}, after), diff(x, 1, 1, {}, after)));
  CHECK(same_bits(x.histc(4, -0.5, 0.75), histc(x, 4, -0.5, 0.75)));
  CHECK(same_bits(x.histc(), histc(x)));
  CHECK(same_bits(x.negative(), neg(x)));
  CHECK(same_bits(x.clone().negative_(), neg(x)));
  CHECK(same_bits(x.moveaxis(0, 1), movedim(x, 0, 1)));
  CHECK(same_bits(x.moveaxis({0, 1}, {1, 0}), movedim(x, {0, 1}, {1, 0})));
  CHECK(same_bits(x.as_strided({2, 2}, {4, 2}, 1), as_strided(x, {2, 2}, {4, 2}, 1)));
  CHECK(same_bits(x.as_strided_scatter(ones({2, 2}), {2, 2}, {4, 2}, 1),
                  as_strided_scatter(x, ones({2, 2}), {2, 2}, {4, 2}, 1)));
  const TensorList places = (x > 0).nonzero_numpy(), expected = nonzero_numpy(x > 0);
  REQUIRE(places.size() == 2);
  for (size_t i = 0; i < 2; ++i) CHECK(same_bits(places[i], expected[i]));
}

TEST_CASE("sum_to_size sums over what was broadcast, and refuses what was not") {
  const Tensor x = counted({2, 3}).requires_grad_();
  CHECK(x.sum_to_size({1, 3}).to_vector() == std::vector<double>{3, 5, 7});
  CHECK(x.sum_to_size({3}).sizes() == Shape{3});
  CHECK(same_bits(autograd::grad({x.sum_to_size({3}).sum()}, {x})[0], ones({2, 3})));
  CHECK_THROWS_WITH_AS(x.sum_to_size({2}),
                       "sum_to_size: [2] does not broadcast to the tensor's "
                       "[2, 3]",
                       Error);
}

TEST_CASE("view_as and expand_as give a view in the other tensor's shape") {
  const Tensor x = counted({3, 4}), wide = x.view_as(zeros({2, 6}, kInt64));
  CHECK(wide.sizes() == Shape{2, 6});
  CHECK(wide.dtype() == kFloat32);
  CHECK(wide.array().raw() == x.array().raw());
  CHECK_THROWS_AS(x.view_as(zeros({5})), Error);
  const Tensor row = x.narrow(0, 1, 1).expand_as(zeros({2, 4}));
  CHECK(row.to_vector() == std::vector<double>{4, 5, 6, 7, 4, 5, 6, 7});
  CHECK(row.strides() == Strides{0, 1});
  CHECK_THROWS_AS(x.expand_as(zeros({2, 4})), Error);
}

TEST_CASE("a function with two names does the same under both") {
  const Tensor x = sin(counted({3, 4}));
  CHECK(same_bits(concat({x, x}, 1), cat({x, x}, 1)));
  CHECK(same_bits(negative(x), neg(x)));
  CHECK(same_bits(ravel(x), flatten(x)));
  CHECK(same_bits(swapdims(x, 0, 1), transpose(x, 0, 1)));
  CHECK(same_bits(moveaxis(x, 0, 1), movedim(x, 0, 1)));
  CHECK(same_bits(linalg_vector_norm(x, 3, {1}), norm(x, 3, {1})));
}

TEST_CASE("reset() makes one handle undefined and leaves other handles alone") {
  Tensor x = counted({3});
  const Tensor same = x;
  x.reset();
  CHECK_FALSE(x.defined());
  CHECK(same.sum().item() == counted({3}).sum().item());
}

TEST_CASE("random methods draw the same numbers as their functions") {
  const Tensor p = full({50}, 0.3);
  const auto twice = [](auto method, auto function) {
    manual_seed(7);
    const Tensor a = method();
    manual_seed(7);
    return same_bits(a, function());
  };
  CHECK(twice([&] { return p.bernoulli(); }, [&] { return bernoulli(p); }));
  CHECK(twice([&] { return p.bernoulli(0.9); }, [&] { return bernoulli(p, 0.9); }));
  CHECK(twice([&] { return p.multinomial(9, true); }, [&] { return multinomial(p, 9, true); }));
  CHECK(twice([&] { return p.multinomial(50); }, [&] { return multinomial(p, 50); }));
}

TEST_CASE("new_empty_strided has the layout asked for and the dtype of the tensor") {
  const Tensor y = ones({1}, kFloat16).new_empty_strided({2, 3}, {1, 2});
  CHECK(y.strides() == Strides{1, 2});
  CHECK(y.dtype() == kFloat16);
  CHECK(y.new_empty_strided({2}, {1}, kInt64).dtype() == kInt64);
}

TEST_CASE("item throws where its type cannot hold the number, and rounds what it can") {
  const Tensor large = full({1}, 1e300, kFloat64), whole = tensor({(int64_t{1} << 54) + 1});
  CHECK_THROWS_AS(large.item<float>(), Error);
  CHECK_THROWS_AS(large.item<int64_t>(), Error);
  CHECK_THROWS_AS(full({1}, 70000.).item<Half>(), Error);
  CHECK(large.item<double>() == 1e300);
  CHECK(full({1}, INFINITY).item<Half>().bits == 0x7c00);
  CHECK(std::isnan(full({1}, NAN).item<float>()));
  CHECK(full({1}, 0.1, kFloat64).item<float>() == 0.1f);
  CHECK(whole.item<float>() == 0x1p54f);
  CHECK(tensor({true}).item<float>() == 1);
}
