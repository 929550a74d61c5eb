// Ops of several steps compute narrow inputs in float32 and round once; they compute integers as
// integers, or refuse them.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/autograd/ops/layout/view.h"

using namespace halftape;

TEST_CASE("widened() converts narrow tensors to float32 and leaves all others alone") {
  for (Dtype d :
       {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64}) {
    CAPTURE(d);
    const Tensor x = ones({2, 3}, d), y = widened(x);
    CHECK(y.dtype() == compute_dtype(d));
    CHECK((y.data_ptr() == x.data_ptr()) == !is_narrow(d));
  }
}

TEST_CASE("sums, windows and index_add are exact for integers that float32 cannot hold") {
  const int64_t odd = (int64_t{1} << 24) + 1;
  const TensorOptions integers(kInt64);
  const Tensor x = full({1, 1, 2, 2}, Scalar(odd), integers);
  CHECK(x.sum().item<int64_t>() == 4 * odd);
  CHECK(x.cumsum(3).amax().item<int64_t>() == 2 * odd);
  CHECK(x.prod(3).amax().item<int64_t>() == odd * odd);
  CHECK(max_pool2d(x, 2).item<int64_t>() == odd);
  const Tensor row = full({1}, Scalar(odd), integers), at = zeros({1}, integers);
  CHECK(row.index_add(0, at, row, 2).item<int64_t>() == 3 * odd);
}

TEST_CASE("means, normalisations and convolutions refuse integers") {
  const Tensor x = ones({2, 4}, TensorOptions(kInt64)), none;
  CHECK_THROWS_AS(x.mean(), Error);
  CHECK_THROWS_AS(layer_norm(x, {4}, none, none), Error);
  CHECK_THROWS_AS(rms_norm(x, {4}), Error);
  CHECK_THROWS_AS(group_norm(x, 2, none, none), Error);
  CHECK_THROWS_AS(batch_norm(x, none, none, none, none, true), Error);
  CHECK_THROWS_AS(conv1d(x, ones({2, 2, 1}, TensorOptions(kInt64))), Error);
}
