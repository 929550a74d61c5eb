// Errors of indexing, gather, scatter, masks and windows.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/counted.h"
#include "halftape/tests/support/lists.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using indexing::Ellipsis;
using indexing::None;
using indexing::Slice;
using testing::counted;
using testing::ints;
using testing::message;
using testing::same_bits;

namespace {

using Values = std::vector<double>;

}  // namespace

TEST_CASE("an index out of range names the function, the value, the position and the range") {
  const Tensor x = counted({2, 3});
  Tensor y = x.clone();
  CHECK(message([&] {
          x.index({Slice(), ints({0, 3})});
        }) == "index: index 3 at position 1 is out of range [-3, 3)");
  CHECK(message([&] {
          x.index({ints({0, -3}).unsqueeze(1)});
        }) == "index: index -3 at position 1 is out of range [-2, 2)");
  CHECK(message([&] {
          x.index({ints({0, 0}), ints({1, 7})});
        }) == "index: index 7 at position 1 is out of range [-3, 3)");
  CHECK(message([&] {
          x.index({0, 5});
        }) ==
        "index: index 5 is out of bounds for dimension 1 with size 3 of [2, 3]; expected one in "
        "[-3, 3)");
  CHECK(message([&] {
          y.index_put_({ints({0, 2})}, 1);
        }) == "index_put: index 2 at position 1 is out of range [-2, 2)");
  CHECK(message([&] { y.index_put_({-3}, 1); }) ==
        "index_put: index -3 is out of bounds for dimension 0 with size 2 of [2, 3]; expected one "
        "in [-2, 2)");
  CHECK(message([&] {
          index_select(x, 1, ints({0, 1, 3}));
        }) == "index_select: index 3 at position 2 is out of range [0, 3)");
  CHECK(message([&] { index_select(x, 0, ints({-1})); }) ==
        "index_select: index -1 at position 0 is out of range [0, 2)");
  CHECK(message([&] {
          y.index_add_(1, ints({0, 4}), ones({2, 2}));
        }) == "index_add: index 4 at position 1 is out of range [0, 3)");
  CHECK(message([&] {
          y.index_copy_(1, ints({0, 4}), ones({2, 2}));
        }) == "index_copy: index 4 at position 1 is out of range [0, 3)");
  CHECK(message([&] {
          y.index_fill_(1, ints({0, -4}), 1);
        }) == "index_fill: index -4 at position 1 is out of range [-3, 3)");
  CHECK(message([&] {
          y.scatter_(1, ints({0, -1}).unsqueeze(0), 1);
        }) == "scatter: index -1 at position 1 is out of range [0, 3)");
  CHECK(message([&] {
          y.scatter_add_(1, ints({0, 3}).unsqueeze(0), ones({1, 2}));
        }) == "scatter_add: index 3 at position 1 is out of range [0, 3)");
  CHECK(message([&] { take(x, ints({-7})); }) ==
        "take: index -7 at position 0 is out of range [-6, 6)");
  CHECK(message([&] { take_along_dim(x, ints({3}).unsqueeze(0), 1); }) ==
        "take_along_dim: index 3 at position 0 is out of range [0, 3)");
  CHECK(message([&] {
          cross_entropy(zeros({2, 3}), ints({0, 3}));
        }) == "cross_entropy: target 3 at position 1 is out of range [0, 3)");
  CHECK(message([&] {
          cross_entropy(zeros({2, 3}), ints({0, 3}), ones({3}));
        }) == "cross_entropy: target 3 at position 1 is out of range [0, 3)");
  CHECK(message([&] {
          nll_loss(zeros({2, 3}), ints({-100, -1}));
        }) == "nll_loss: target -1 at position 1 is out of range [0, 3)");
  CHECK(message([&] { take(zeros({0}), ints({0})); }) != "");
  if (x.is_cpu()) CHECK(same_bits(x, y));  // a GPU finds the bad index while it writes the others
}

TEST_CASE("indexing names what is wrong") {
  const Tensor x = counted({2, 3});
  CHECK(message([&] {
          x.index({0, 0, 0});
        }) == "index: indices for 3 dimensions of a tensor [2, 3]");
  CHECK_THROWS_AS(x.index({zeros({2, 3, 1}, kBool)}), Error);
  CHECK(message([&] { x.index({"...", Ellipsis}); }) == "index: \"...\" appears 2 times");
  CHECK(message([&] { x.index({".."}); }) ==
        "index: Expected \"...\" to represent an ellipsis index, but got \"..\"");
  CHECK(message([&] { x.index({Slice(None, None, -1)}); }) ==
        "index: the step -1 of a slice must be positive; use flip()");
  CHECK(message([&] {
          x.index({Slice(), tensor({true, false})});
        }) == "index: mask [2] at dimension 1 of [2, 3]: 2 against 3");
  CHECK(message([&] { x.index({tensor({0.0})}); }) ==
        "index: an index tensor is float32, expected int64, int32 or bool");
  CHECK(message([&] {
          x.index({ints({0, 1}), ints({0, 1, 2})});
        }).find("index: shapes [2] and [3]") == 0);
  CHECK(message([&] { tensor(1.0).index({0}); }) ==
        "index: invalid index: indices for 1 dimensions of a tensor []");
  CHECK(message([&] {
          zeros({2, 0}).index({Slice(), ints({0})});
        }) == "index: an index is out of bounds for dimension with size 0 of [2, 0]");
  CHECK(zeros({2, 0}).index({Slice(), zeros({0}, kInt64)}).sizes() == Shape{2, 0});
  CHECK(message([&] { x.index({zeros({1}, kInt8)}); }) ==
        "index: an index tensor is int8, expected int64, int32 or bool");
  CHECK_THROWS_AS(x.index({Tensor()}), Error);
  CHECK_THROWS_AS(Tensor().index({0}), Error);
  CHECK(message([&] { index_put(x, {ints({0})}, ones({2})); }) ==
        "index_put: shape mismatch: values [2] do not broadcast to the indexed shape [1, 3]");
  CHECK(message([&] { index_put(x, {0}, ones({2})); }) ==
        "index_put: shape mismatch: values [2] do not broadcast to the indexed shape [3]");
  CHECK(message([&] { index_put(x, {ints({0})}, ones({3}, kFloat64)); }) ==
        "index_put: values are float64, the tensor float32; convert them with .to(dtype)");
  CHECK(message([&] { gather(x, 0, ints({0})); }) ==
        "gather: index [1] and tensor [2, 3] must have the same number of dimensions");
  CHECK(message([&] {
          gather(x, 0, zeros({1, 4}, kInt64));
        }) == "gather: index [1, 4] is larger than the tensor [2, 3] in dimension 1");
  CHECK(message([&] {
          gather(x, 0, zeros({1, 1}));
        }) == "gather: index is float32, expected int64");
  CHECK(message([&] {
          scatter(x, 1, zeros({2, 2}, kInt64), ones({2, 1}));
        }) == "scatter: index [2, 2] is larger than the source [2, 1] in dimension 1");
  CHECK(message([&] {
          scatter(x, 1, zeros({2, 1}, kInt64), ones({2, 1}, kFloat64));
        }) == "scatter: source is float64, the tensor float32");
  CHECK_THROWS_AS(scatter(x, 1, zeros({2, 1}, kInt64), ones({2})), Error);
  CHECK(message([&] {
          index_select(x, 0, zeros({1, 1}, kInt64));
        }) == "index_select: index [1, 1] must have one dimension");
  CHECK(message([&] {
          index_select(tensor(1.0), 0, ints({0, 0}));
        }) == "index_select: index [2] into a 0-dim tensor; expected one number");
}

TEST_CASE("index_add, index_copy, masks and windows name what is wrong") {
  const Tensor x = counted({2, 3});
  CHECK(message([&] {
          index_add(x, 0, ints({0}), ones({2, 3}));
        }) == "index_add: source [2, 3] for 1 slices in dimension 0 of [2, 3]");
  CHECK_THROWS_AS(index_add(x.to(kInt64), 0, ints({0}), ones({1, 3}, kInt64), 0.5), Error);
  CHECK_THROWS_AS(index_add(x, 0, ints({0}), ones({3})), Error);
  CHECK(message([&] {
          index_copy(x, 0, ints({0}), ones({1, 2}));
        }) == "index_copy: source [1, 2] for 1 slices in dimension 0 of [2, 3]");
  CHECK(message([&] {
          index_copy(x, 0, ints({0}).to(kInt32), ones({1, 3}));
        }) == "index_copy: index is int32, expected int64");
  CHECK(message([&] { index_fill(x, 0, ints({0}), ones({1})); }) ==
        "index_fill: value [1] must be 0-dim");
  CHECK(message([&] {
          masked_fill(x, ones({2, 3}), 0);
        }) == "masked_fill: the mask is float32, expected bool (compare it with something)");
  CHECK(message([&] { masked_fill(x, x > 1, ones({1})); }) ==
        "masked_fill: value [1] must be 0-dim");
  CHECK_THROWS_AS(masked_fill(x, tensor({true, false}), 0), Error);
  Tensor narrow = ones({2});
  CHECK_THROWS_AS(narrow.masked_fill_(tensor({{1.0, 0.0}, {1.0, 0.0}}) > 0, 1), Error);
  CHECK(narrow.to_vector() == Values{1, 1});
  CHECK_THROWS_AS(masked_select(x, ones({3})), Error);
  CHECK(message([&] { masked_scatter(x, x > 1, ones({2})); }) ==
        "masked_scatter: the mask is true 4 times, source [2] has 2 elements");
  CHECK_THROWS_AS(masked_scatter(x, x > 1, ones({9}, kFloat64)), Error);
  CHECK(message([&] {
          slice_scatter(x, ones({2, 1}), 1, 0, 2);
        }) == "slice_scatter: source [2, 1] in the place of [2, 2]");
  CHECK(message([&] { select_scatter(x, ones({2}), 1, 3); }) ==
        "select_scatter: index 3 is out of bounds for dimension 1 with size 3 of [2, 3]; expected "
        "one in [-3, 3)");
  CHECK_THROWS_AS(slice_scatter(tensor(1.0), tensor(1.0)), Error);
  CHECK_THROWS_AS(take(x, tensor({0.0})), Error);
  CHECK_THROWS_AS(take_along_dim(x, ints({0}), 0), Error);
  CHECK(message([&] { x.index({ints({0, 1, 2})}); }) != "");
}

TEST_CASE("an index out of range is an error where the rows have no elements, too") {
  const Tensor x = zeros({3, 0});
  CHECK(message([&] {
          index_select(x, 0, ints({2, 5}));
        }) == "index_select: index 5 at position 1 is out of range [0, 3)");
  CHECK(message([&] { index_select(x, 0, ints({-7}).to(kInt32)); }) ==
        "index_select: index -7 at position 0 is out of range [0, 3)");
  CHECK(message([&] {
          index_select(zeros({0, 2, 0}), 0, ints({0}));
        }) == "index_select: index 0 at position 0 is out of range [0, 0)");
  CHECK(message([&] { embedding(x, ints({5})); }) ==
        "embedding: index 5 at position 0 is out of range [0, 3)");
  CHECK(index_select(x, 0, ints({2, 0})).sizes() == Shape{2, 0});
  CHECK(index_select(x, 1, ints({}).to(kInt64)).sizes() == Shape{3, 0});
  CHECK(index_select(zeros({0, 2}), 0, ints({}).to(kInt64)).sizes() == Shape{0, 2});
  CHECK(embedding(x, ints({2, 0})).sizes() == Shape{2, 0});
}
