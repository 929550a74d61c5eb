// view(dtype): the same bytes as other numbers.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/counted.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using testing::has;
using testing::message;
using testing::same_bits;

TEST_CASE("view(dtype) reads the bytes of IEEE numbers") {
  const Tensor x = tensor({1.0F, -2.0F, 0.0F});
  const Tensor bits = x.view(kInt32);
  CHECK(bits.dtype() == kInt32);
  CHECK(bits.to_vector<int64_t>() == std::vector<int64_t>{0x3f800000, -0x40000000, 0});
  CHECK(same_bits(bits.view(kFloat32), x));
  // The upper half of a float32 is a bfloat16.
  const Tensor halves = x.unsqueeze(1).view(kBFloat16);
  CHECK(halves.sizes() == Shape{3, 2});
  CHECK(same_bits(halves.select(1, 1), x.to(kBFloat16)));
  CHECK(tensor({true, false}).view(kUInt8).to_vector() == std::vector<double>{1, 0});
}

TEST_CASE("view(dtype) makes the last dimension longer or shorter") {
  const Tensor x = testing::counted({3, 4});
  const Tensor rows = x.slice(0, 1);  // begins at element 4
  const Tensor small = rows.view(kFloat16), large = rows.view(kFloat64);
  CHECK(small.sizes() == Shape{2, 8});
  CHECK(small.strides() == Strides{8, 1});
  CHECK(small.storage_offset() == 8);
  CHECK(large.sizes() == Shape{2, 2});
  CHECK(large.strides() == Strides{2, 1});
  CHECK(large.storage_offset() == 2);
  CHECK(same_bits(small.view(kFloat32), rows));
  CHECK(same_bits(large.view(kFloat32), rows));
  CHECK(large.view(kUInt8).sizes() == Shape{2, 16});
  CHECK(x.t().view(kInt32).sizes() == Shape{4, 3});  // elements of one size: any strides
  CHECK(zeros({0}).view(kFloat64).sizes() == Shape{0});
  // A dimension of one element has no stride that could be wrong.
  const Tensor column = testing::counted({1, 4}).t(), halves = column.view(kFloat16);
  CHECK(halves.sizes() == Shape{4, 2});
  CHECK(same_bits(halves.view(kFloat32), column));
  CHECK(testing::counted({4, 3}).t().slice(0, 0, 1).t().view(kInt8).sizes() == Shape{4, 4});
  CHECK(ones({3, 5}).slice(0, 0, 1).slice(1, 0, 2).view(kFloat64).sizes() == Shape{1, 1});
}

TEST_CASE("view(dtype) shares the bytes and their version, and no gradient") {
  Tensor x = zeros({2});
  const Tensor bits = x.view(kInt32);
  bits.fill_(0x40000000);
  CHECK(x.to_vector() == std::vector<double>{2, 2});
  CHECK(x.version() == bits.version());
  const Tensor w = ones({2}).requires_grad_();
  CHECK_FALSE((w * 2).view(kFloat16).requires_grad());
  CHECK_FALSE((w * 2).view(kFloat32).requires_grad());
  // backward() notices a write through a view of another dtype.
  const Tensor saved = w * 2, y = saved * saved;
  saved.view(kInt32).zero_();
  CHECK_THROWS_AS(y.sum().backward(), Error);
}

TEST_CASE("view(dtype) says what is not divisible") {
  const Tensor x = ones({3, 5});
  CHECK(message([&] { x.view(kFloat64); }) ==
        "view: last size 5 of the float32 tensor [3, 5] is not a whole number of float64 elements "
        "(2 make one)");
  CHECK(message([&] { x.slice(1, 0, 2).view(kFloat64); }) ==
        "view: stride 5 of the float32 tensor [3, 2] is not a whole number of float64 elements "
        "(2 make one)");
  CHECK(message([&] {
          ones({3, 4}).slice(1, 1, 3).view(kInt64);
        }) ==
        "view: storage offset 1 of the float32 tensor [3, 2] is not a whole number of int64 "
        "elements (2 make one)");
  CHECK(message([&] { x.t().view(kFloat16); }) ==
        "view: float32 as float16 needs a stride of 1 in the last dimension, the strides are "
        "[1, 5]; call contiguous() first");
  CHECK(message([&] { tensor(1.0F).view(kFloat16); }) ==
        "view: a 0-dim float32 tensor has no dimension to become longer or shorter as float16; "
        "unsqueeze(0) gives it one");
  CHECK(message([&] { x.view(kBool); }) ==
        "view: the bytes of a float32 tensor may be no bools; compare it with 0 instead");
  CHECK_THROWS_AS(Tensor().view(kFloat16), Error);
}

TEST_CASE("a dtype that does not exist is refused wherever a dtype is an argument") {
  const auto none = static_cast<Dtype>(99);
  const Tensor x = ones({3});
  const std::string text = "dtype 99 does not exist; the last one is float64, dtype 9";
  CHECK(message([&] { x.to(none); }) == text);
  CHECK(message([&] { x.view(none); }) == text);
  CHECK(message([&] { zeros({2}, none); }) == text);
  CHECK(message([&] { empty_like(x, none); }) == text);
  CHECK(has(message([&] { randn({2}, none); }), "no dtype"));
  CHECK(has(message([&] { rand_like(x, none); }), "no dtype"));
  CHECK(has(message([&] { set_default_dtype(none); }), "no dtype"));
  CHECK(has(message([&] { amp::set_autocast_dtype(kCPU, none); }), "no dtype"));
  CHECK(has(message([&] { const amp::autocast region(kCPU, none); }), "no dtype"));
  float number = 1;
  CHECK(message([&] { from_blob(&number, {1}, TensorOptions(none).device(kCPU)); }) == text);
}
