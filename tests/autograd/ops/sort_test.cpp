// Sorting and its relatives beyond the op table: stability, NaN, dtypes, errors.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/lists.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using testing::differ;
using testing::kInf, testing::kNaN;
using testing::list;

namespace {

using List = std::vector<double>;

}  // namespace

TEST_CASE("NaN is sorted as greater than infinity") {
  for (const Dtype d : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    const Tensor x = list({3, kNaN, 1, -kInf, kInf}, d);
    const auto [up, from] = sort(x);
    CHECK(differ(up, {-kInf, 1, 3, kInf, kNaN}, {}) == "");
    CHECK(from.to_vector() == List{3, 2, 0, 4, 1});
    const auto [down, from_down] = sort(x, 0, true);
    CHECK(differ(down, {kNaN, kInf, 3, 1, -kInf}, {}) == "");
    CHECK(from_down.to_vector() == List{1, 4, 0, 2, 3});
    CHECK(up.dtype() == d);
    CHECK(from.dtype() == kInt64);
  }
  CHECK(std::get<1>(topk(list({3, kNaN, 1}), 2)).to_vector() == List{1, 0});
  CHECK(std::get<1>(kthvalue(list({3, kNaN, 1}), 3)).item<int64_t>() == 1);
  CHECK(differ(std::get<0>(median(list({3, kNaN, 2, kNaN}), 0)), {kNaN}, {}) == "");
  CHECK(std::get<1>(median(list({3, 5, kNaN, 4}), 0)).item<int64_t>() == 2);
  CHECK(std::get<0>(nanmedian(list({9, kNaN, 2, kNaN, 5}), 0)).item() == 5);
  CHECK(std::get<0>(nanmedian(list({9, kNaN, 2, 7, 5}), 0)).item() == 5);
  CHECK(differ(std::get<0>(nanmedian(list({kNaN, kNaN}), 0)), {kNaN}, {}) == "");
  const Tensor x = list({9, kNaN, 5, 5, kNaN}).requires_grad_();
  CHECK(nanmedian(x).item() == 5);
  CHECK(autograd::grad({x.nanmedian()}, {x})[0].to_vector() == List{0, 0, 0.5, 0.5, 0});
}

TEST_CASE("equal elements keep their order, ascending and descending") {
  const Tensor x = tensor({1, 0, 1, 0, 1});
  CHECK(argsort(x).to_vector() == List{1, 3, 0, 2, 4});
  CHECK(argsort(x, 0, true).to_vector() == List{0, 2, 4, 1, 3});
  CHECK(argsort(x, true, 0, true).to_vector() == List{0, 2, 4, 1, 3});
  const Tensor rows = tensor({3.0, 1.0, 2.0, 0.0}).reshape({2, 2});  // a flag is no dimension
  CHECK(argsort(rows, true).to_vector() == List{1, 0, 1, 0});
  CHECK(rows.argsort(false).to_vector() == List{1, 0, 1, 0});
  CHECK(argsort(list({0.0, -0.0, 0.0})).to_vector() == List{0, 1, 2});
  CHECK(argsort(list({kNaN, 1, kNaN})).to_vector() == List{1, 0, 2});
  const auto [values, from] = x.sort(std::optional<bool>(true), -1, true);
  CHECK(values.to_vector() == List{1, 1, 1, 0, 0});
  CHECK(from.to_vector() == List{0, 2, 4, 1, 3});
  // Many equal keys, which an unstable algorithm would reorder.
  std::vector<int64_t> many(10000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int64_t>(i * 7919 % 13);
  const Tensor keys = tensor(many), order = argsort(keys);
  const std::vector<int64_t> at = order.to_vector<int64_t>();
  int64_t wrong = 0;
  for (size_t i = 1; i < at.size(); ++i) {
    const int64_t a = many[static_cast<size_t>(at[i - 1])], b = many[static_cast<size_t>(at[i])];
    wrong += !(a < b || (a == b && at[i - 1] < at[i]));
  }
  CHECK(wrong == 0);
}

TEST_CASE("whole numbers are sorted exactly, and every dtype is kept") {
  const int64_t big = int64_t{1} << 53;
  CHECK(argsort(tensor({big + 1, big, big + 2})).to_vector() == List{1, 0, 2});
  for (const Dtype d : {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64}) {
    const Tensor x = list({1, 0, 1}).to(d);
    CHECK(std::get<0>(sort(x)).dtype() == d);
    CHECK(std::get<0>(sort(x)).to_vector() == List{0, 1, 1});
    CHECK(std::get<0>(topk(x, 1)).to_vector() == List{1});
    CHECK(std::get<0>(median(x, 0)).to_vector() == List{1});
    CHECK(median(x).dtype() == d);
  }
}

TEST_CASE("a 0-dim tensor, an empty one and a transposed matrix are sorted") {
  const auto [value, from] = sort(tensor(3.0));
  CHECK(value.item() == 3);
  CHECK(from.item<int64_t>() == 0);
  CHECK(std::get<0>(topk(tensor(3.0), 1)).item() == 3);
  CHECK(std::get<0>(kthvalue(tensor(3.0), 1)).item() == 3);
  CHECK(std::get<0>(median(tensor(3.0), 0)).item() == 3);
  CHECK(std::get<0>(sort(zeros({2, 0}))).sizes() == Shape{2, 0});
  CHECK(std::get<0>(topk(zeros({2, 3}), 0)).sizes() == Shape{2, 0});
  const Tensor x = list({3, 1, 2, 6, 5, 4}).reshape({3, 2});
  CHECK(std::get<0>(x.t().sort(1)).to_vector() == List{2, 3, 5, 1, 4, 6});
  CHECK(std::get<0>(x.sort(0)).to_vector() == List{2, 1, 3, 4, 5, 6});
}

TEST_CASE("k and dimensions out of range are refused") {
  const Tensor x = zeros({2, 3});
  CHECK_REFUSED(sort(x, 2), "sort: dimension 2 is out of range");
  CHECK_REFUSED(argsort(x, -3), "argsort: dimension -3 is out of range");
  CHECK_REFUSED(sort(Tensor()), "tensor number 1 is undefined");
  CHECK_REFUSED(topk(x, 4), "topk: k = 4 of the 3 elements of dimension 1 of");
  CHECK_REFUSED(topk(x, -1), "topk: k = -1");
  CHECK_REFUSED(topk(x, 1, 2), "topk: dimension 2");
  CHECK_REFUSED(kthvalue(x, 0), "kthvalue: k = 0 of the 3 elements");
  CHECK_REFUSED(kthvalue(x, 3, 0), "kthvalue: k = 3 of the 2 elements");
  CHECK_REFUSED(median(x, 2), "median: dimension 2");
  CHECK_REFUSED(topk(tensor(1.0), 2), "topk: k = 2 of the 1 elements");
}

TEST_CASE("_unique2 gives the values, the index of each element's value, and the counts") {
  const auto [values, inverse, counts] =
      _unique2(tensor({3, 1, 3, 2, 1, 3}).reshape({2, 3}), true, true, true);
  CHECK(values.to_vector() == List{1, 2, 3});
  CHECK(inverse.sizes() == Shape{2, 3});
  CHECK(inverse.to_vector() == List{2, 0, 2, 1, 0, 2});
  CHECK(counts.to_vector() == List{2, 1, 3});
  const auto [bools, no_inverse, no_counts] = _unique2(tensor({true, true}));
  CHECK(bools.dtype() == kBool);
  CHECK(bools.numel() == 1);
  CHECK_FALSE(no_inverse.defined());
  CHECK_FALSE(no_counts.defined());
  // No NaN equals another.
  CHECK(std::get<0>(_unique2(list({kNaN, 1, kNaN}))).numel() == 3);
  CHECK(std::get<0>(_unique2(zeros({0, 2}))).numel() == 0);
  CHECK(std::get<0>(_unique2(list({0, 0, 5}))).to_vector() == List{0, 5});
}

TEST_CASE("bucketize gives positions before equal boundaries, or with `right` after them") {
  const Tensor edges = list({1, 2, 3}), v = list({0, 1, 1.5, 9, kNaN});
  CHECK(bucketize(v, edges).to_vector() == List{0, 0, 1, 3, 3});
  CHECK(bucketize(v, edges, false, true).to_vector() == List{0, 1, 1, 3, 3});
  CHECK(bucketize(v, edges, true).dtype() == kInt32);
  const Tensor rows = list({1, 2, 3, 10, 20, 30}).reshape({2, 3});
  CHECK(searchsorted(rows, list({2, 5, 5, 25}).reshape({2, 2})).to_vector() == List{1, 3, 0, 2});
  CHECK(searchsorted(edges, tensor(2.5)).item<int64_t>() == 2);
  CHECK_REFUSED(bucketize(v, rows), "bucketize: boundaries");
  CHECK_REFUSED(searchsorted(rows, v), "searchsorted: boundaries");
  CHECK_REFUSED(searchsorted(rows, zeros({3, 2})), "differ in dimension 0");
  CHECK_REFUSED(searchsorted(tensor(1.0), v), "boundaries are a 0-dim tensor");
}

TEST_CASE("bincount counts, or adds up weights") {
  const Tensor x = tensor({1, 1, 3});
  CHECK(bincount(x).to_vector() == List{0, 2, 0, 1});
  CHECK(bincount(x).dtype() == kInt64);
  CHECK(bincount(x, list({0.5, 0.5, 1}, kFloat32)).to_vector() == List{0, 1, 0, 1});
  CHECK(bincount(x, list({1, 1, 1}, kFloat16)).dtype() == kFloat64);
  CHECK(x.bincount({}, 6).numel() == 6);
  CHECK(bincount(zeros({0}, kInt64)).numel() == 0);
  CHECK(bincount(zeros({0}, kInt64), {}, 2).to_vector() == List{0, 0});
  CHECK_REFUSED(bincount(tensor({1, -2})), "bincount: -2 is negative");
  CHECK_REFUSED(bincount(list({1})), "bincount: of a float64 tensor");
  CHECK_REFUSED(bincount(x, list({1})), "bincount: weights");
  CHECK_REFUSED(bincount(x, {}, -1), "minlength -1");
}

TEST_CASE("unique_consecutive keeps one of equal neighbours, in their order") {
  const Tensor x = tensor({1.0, 1.0, 3.0, 2.0, 2.0, 1.0}).reshape({2, 3});
  const auto [values, inverse, counts] = unique_consecutive(x, true, true);
  CHECK(values.to_vector() == std::vector<double>{1, 3, 2, 1});
  CHECK(inverse.sizes() == x.sizes());
  CHECK(inverse.to_vector<int64_t>() == std::vector<int64_t>{0, 0, 1, 2, 2, 3});
  CHECK(counts.to_vector<int64_t>() == std::vector<int64_t>{2, 1, 2, 1});
  CHECK_FALSE(std::get<1>(unique_consecutive(x)).defined());
  CHECK(std::get<0>(unique_consecutive(zeros({0}))).numel() == 0);
}

TEST_CASE("histc counts what lies in equal parts, the last of which is closed") {
  const Tensor x = tensor({-1.0, 0.0, 0.4, 0.5, 0.9, 1.0, 2.0, kNaN});
  CHECK(histc(x, 2, 0, 1).to_vector() == std::vector<double>{2, 3});
  const Tensor y = tensor({1.0, 2.0, 3.0, 5.0});
  CHECK(histc(y, 4).to_vector() == std::vector<double>{1, 1, 1, 1});
  CHECK(histc(tensor({7.0, 7.0}), 3).to_vector() == std::vector<double>{0, 2, 0});
  CHECK(histc(arange(100).to(kFloat32), 100, 0, 100).equal(ones({100})));
  CHECK(histc(zeros({0}), 2).to_vector() == std::vector<double>{0, 0});
  CHECK(histc(y.to(kFloat16), 2).dtype() == kFloat16);
  CHECK_THROWS_WITH_AS(histc(y, 0), doctest::Contains("0 bins"), Error);
  CHECK_THROWS_WITH_AS(histc(y.to(kInt64)), doctest::Contains("int64"), Error);
  CHECK_THROWS_WITH_AS(histc(y, 4, 3, 1), doctest::Contains("from 3 to 1"), Error);
}

TEST_CASE("logcumsumexp does not overflow, and terms of -inf have gradient 0") {
  const Tensor x = tensor({-kInf, -1000.0, 0.0, 1000.0, 1000.0}, kFloat64).requires_grad_();
  const Tensor y = logcumsumexp(x, 0);
  CHECK(y.to_vector() == std::vector<double>{-kInf, -1000, 0, 1000, 1000 + std::log(2.0)});
  y.slice(0, 1).sum().backward();
  CHECK(x.grad().to_vector() == std::vector<double>{0, 1, 1, 1.5, 0.5});
}
