// Conversions, comparisons of whole tensors, and access to the numbers of a tensor.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using testing::kInf, testing::kNaN;

TEST_CASE("to() changes what it is told and gives the tensor itself when nothing changes") {
  const Tensor x = tensor({1.5, -2.5});
  const Device here = x.device();
  CHECK(x.to(kInt).dtype() == kInt32);
  CHECK(x.to(kInt).to_vector<int32_t>() == std::vector<int32_t>{1, -2});
  CHECK(x.to(kFloat).is_same(x));
  CHECK(x.to(x.options()).is_same(x));
  CHECK(x.to(TensorOptions()).is_same(x));
  CHECK(x.to(here).is_same(x));
  CHECK(x.to(x).is_same(x));
  CHECK(x.to(here, kHalf).dtype() == kFloat16);
  CHECK(x.to(kDouble, /*non_blocking=*/true).dtype() == kFloat64);
  CHECK(x.to(ones(1, kBFloat16)).dtype() == kBFloat16);
  CHECK(x.type_as(ones(1, kLong)).dtype() == kInt64);
  CHECK(x.toType(kByte).dtype() == kUInt8);
  CHECK_THROWS_AS(x.to(requires_grad()), Error);
  CHECK_THROWS_AS(x.to(Device(kCUDA, 63)), Error);
}

TEST_CASE("to() with copy gives other bytes with the same history") {
  const Tensor x = ones(2, requires_grad());
  for (const Tensor& y :
       {x.to(kFloat, false, true), x.to(x.device(), false, true), x.to(x, false, true),
        x.to(TensorOptions(), false, true), x.to(x.device(), kFloat, false, true)}) {
    CHECK(y.array().raw() != x.array().raw());
    CHECK(y.equal(x));
    CHECK(y.requires_grad());
  }
  x.to(kDouble, false, true).sum().backward();
  CHECK(x.grad().equal(ones(2)));
}

TEST_CASE("item() reads every dtype and throws where the value does not fit") {
  for (Dtype d :
       {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64}) {
    CAPTURE(d);
    const Tensor one = ones({1, 1}, d);
    CHECK(one.item() == 1);
    CHECK(one.item<float>() == 1.f);
    CHECK(one.item<int>() == 1);
    CHECK(one.item<int64_t>() == 1);
    CHECK(one.item<uint8_t>() == 1);
    CHECK(one.item<bool>());
    CHECK(one.item<Half>() == Half(1.f));
    CHECK(one.item<BFloat16>() == BFloat16(1.f));
    CHECK_FALSE(zeros(1, d).item<bool>());
  }
  CHECK(tensor(0.25).item<bool>());
  CHECK(tensor(-2.75).item<int>() == -2);
  CHECK(tensor(255).item<uint8_t>() == 255);
  CHECK_THROWS_AS(tensor(256).item<uint8_t>(), Error);
  CHECK_THROWS_AS(tensor(-1).item<uint8_t>(), Error);
  CHECK_THROWS_AS(tensor(3e9).item<int>(), Error);
  CHECK_THROWS_AS(tensor(1e30).item<int64_t>(), Error);
  CHECK_THROWS_AS(tensor(kNaN).item<int64_t>(), Error);
  CHECK_THROWS_AS(ones(2).item(), Error);
  CHECK(tensor(3).is_nonzero());
  CHECK_FALSE(is_nonzero(tensor(-0.0)));
  CHECK_THROWS_AS(ones(2).is_nonzero(), Error);
}

TEST_CASE("a tensor knows its layout and size in bytes") {
  const Tensor x = zeros({2, 3, 4}, kFloat16), y = x.transpose(0, 2)[1];
  CHECK(x.element_size() == 2);
  CHECK(x.itemsize() == 2);
  CHECK(x.nbytes() == 48);
  CHECK(x.ndimension() == 3);
  CHECK(y.ndimension() == 2);
  CHECK(tensor(1.0).ndimension() == 0);
  CHECK_FALSE(x.is_complex());
  CHECK(x.stride(-1) == 1);
  CHECK(x.stride(0) == 12);
  CHECK(x.size(-2) == 3);
  CHECK_THROWS_AS(x.size(3), Error);
  for (const int64_t d : {-1, 0}) {
    CHECK_THROWS_AS(tensor(1.0).size(d), Error);
    CHECK_THROWS_AS(tensor(1.0).stride(d), Error);
  }
  CHECK(y.storage_offset() == 1);
  CHECK(y.sizes() == std::vector<int64_t>{3, 2});
  CHECK(y.array().raw() == static_cast<char*>(x.array().raw()) + 2);
  CHECK(x.layout() == kStrided);
  if (get_default_device().is_cpu()) {
    CHECK(y.data_ptr() == x.data_ptr<Half>() + 1);
    CHECK(x.get_device() == -1);
    CHECK(x.is_cpu());
  } else {
    CHECK_THROWS_AS(x.data_ptr<Half>(), Error);
    CHECK(x.get_device() == 0);
    CHECK(x.is_cuda());
  }
  CHECK(x.is_signed());
  CHECK_FALSE(ones(1, kUInt8).is_signed());
  CHECK(x.is_same_size(zeros({2, 3, 4})));
  CHECK_FALSE(is_same_size(x, y));
  CHECK(is_floating_point(x));
  CHECK(x.output_nr() == 0);
  CHECK_THROWS_AS(x.stride(3), Error);
}

TEST_CASE("an accessor reads and writes elements wherever the strides lead") {
  const Tensor x = arange(6.0, kCPU).view({2, 3}), y = x.t();  // in the host's memory
  auto a = y.accessor<float, 2>();
  CHECK(a.size(0) == 3);
  CHECK(a.stride(0) == 1);
  CHECK(a.sizes() == y.sizes());
  CHECK(a[2].size(0) == 2);
  CHECK(a[2][1] == 5);
  const uint64_t before = x.version();
  y.accessor<float, 2>()[0][1] = 7;
  CHECK(x[1][0].item() == 7);
  CHECK(x.version() > before);
  const uint64_t read = x.version();
  CHECK(x.accessor<const float, 2>()[1][0] == 7);
  CHECK(x.version() == read);
  CHECK_THROWS_AS((x.accessor<float, 1>()), Error);
  CHECK_THROWS_AS((x.accessor<double, 2>()), Error);
}

TEST_CASE("a pointer to write through counts as a write, and is of the tensor's dtype") {
  const Tensor x = zeros({2, 2}, kCPU), y = x[1];
  const uint64_t before = x.version();
  y.mutable_data_ptr<float>()[1] = 3;
  CHECK(x.to_vector() == std::vector<double>{0, 0, 0, 3});
  CHECK(x.version() > before);
  CHECK_THROWS_AS(x.mutable_data_ptr<double>(), Error);
}

TEST_CASE("a storage is an alias of those of all views of one memory, and of no other") {
  const Tensor x = ones({2, 3}), y = x.clone();
  CHECK(x.storage().is_alias_of(x.storage()));
  for (const int64_t n : {0, 4, 8176, 8177, 20'000})  // not those of the allocator's blocks
    CHECK(zeros({n}).storage().nbytes() == static_cast<size_t>(4 * n));
  CHECK(x.storage().is_alias_of(x.t()[1].storage()));
  CHECK_FALSE(x.storage().is_alias_of(y.storage()));
  y.set_data(x);
  CHECK(x.storage().is_alias_of(y.storage()));
}

TEST_CASE("tensor_data and variable_data are the same bytes without history") {
  const Tensor x = ones({2}, requires_grad()), y = x * 2;
  for (const Tensor& t : {x, y}) {
    for (const Tensor& data : {t.tensor_data(), t.variable_data()}) {
      CHECK_FALSE(data.requires_grad());
      CHECK(data.is_leaf());
      CHECK(data.array().raw() == t.array().raw());
      data.add_(1);
    }
  }
  CHECK(x.equal(full({2}, 3.0)));
  CHECK(y.equal(full({2}, 4.0)));
  CHECK(x.requires_grad());
}

TEST_CASE("equal wants the same shape, dtype and values") {
  const Tensor x = tensor({1.0, 2.0});
  CHECK(equal(x, x.clone()));
  CHECK_FALSE(equal(x, x.to(kDouble)));
  CHECK_FALSE(equal(x, x.view({1, 2})));
  CHECK_FALSE(equal(x, tensor({1.0, 2.5})));
  CHECK_FALSE(equal(full(1, kNaN), full(1, kNaN)));
  CHECK(equal(zeros({0, 2}), zeros({0, 2})));
}

TEST_CASE("with tolerances of 0 neighbours beyond 2^53 are not close") {
  const Tensor a = tensor({int64_t{1} << 60, int64_t{7}});
  CHECK_FALSE(allclose(a, a + 1, 0, 0));
  CHECK(allclose(a, a, 0, 0));
  CHECK_FALSE(allclose(tensor({std::nan("")}), tensor({std::nan("")}), 0, 0));
  CHECK(allclose(tensor({std::nan("")}), tensor({std::nan("")}), 0, 0, true));
}

TEST_CASE("isclose and allclose follow the tolerances, infinities and NaN") {
  const Tensor a = tensor({1.0, 1.0, kInf, kInf, kNaN, 1.0, -kInf}),
               b = tensor({1.0001, 1.1, kInf, -kInf, kNaN, kInf, 1.0});
  CHECK(isclose(a, b, 1e-3).to_vector<int64_t>() == std::vector<int64_t>{1, 0, 1, 0, 0, 0, 0});
  CHECK(isclose(a, b, 1e-3, 0, true).to_vector<int64_t>() ==
        std::vector<int64_t>{1, 0, 1, 0, 1, 0, 0});
  CHECK(isclose(a, b).dtype() == kBool);
  CHECK(allclose(ones({2, 3}), ones(3)));
  CHECK(allclose(tensor({1, 2}), tensor({1.0, 2.0})));
  CHECK_FALSE(allclose(tensor({1.0}), tensor({1.001})));
  CHECK(allclose(tensor({1.0}), tensor({1.001}), 0, 0.01));
  // A number that was rounded to float32 is as far as it was before.
  CHECK(allclose(full(1, 0.1), zeros(1), 0, 0.1));
  CHECK_FALSE(allclose(full(1, 0.1, kFloat64) + 1e-9, zeros(1, kFloat64), 0, 0.1));
  CHECK(allclose(zeros(0), zeros(0)));
  CHECK_THROWS_AS(isclose(a, b, -1), Error);
  CHECK_THROWS_AS(isclose(ones(2), ones(3)), Error);
}

TEST_CASE("set_data gives a leaf other bytes, and the leaf still receives gradients") {
  const Tensor x = ones(2, requires_grad()), y = tensor({2.0, 3.0}), wide = zeros({3}, kFloat64);
  x.set_data(y);
  CHECK(x.array().raw() == y.array().raw());
  (x * x).sum().backward();
  CHECK(x.grad().equal(y * 2));
  x.mutable_grad() = Tensor();
  x.set_data(wide);
  CHECK(x.requires_grad());
  x.sum().backward();
  CHECK(x.grad().equal(ones(3, kFloat64)));
  CHECK_THROWS_AS(x.set_data(ones(2, kInt64)), Error);
  CHECK_THROWS_AS((x * 2).set_data(wide), Error);
}

TEST_CASE("assigning to a part of a tensor writes into it, assigning to a variable does not") {
  Tensor x = zeros({2, 2});
  const Tensor first = x[0];
  x[0] = 5;
  x[1] = tensor({1.0, 2.0});
  CHECK(x.to_vector() == std::vector<double>{5, 5, 1, 2});
  x[1][1] = x[0][1];
  x.select(1, 0) = 7.5;
  CHECK(x.to_vector() == std::vector<double>{7.5, 5, 7.5, 5});
  CHECK(first.to_vector() == std::vector<double>{7.5, 5});
  CHECK_THROWS_AS(x[0] = ones(3), Error);
  Tensor y = x;
  y = ones(1);
  CHECK(x.sizes() == Shape{2, 2});
  Tensor flags = empty(2, kBool);
  flags[0] = true;
  flags[1] = false;
  CHECK(flags.equal(tensor({true, false})));
}
