// Arrays with more elements than 32 bits count. They take tens of gigabytes: run by
// scripts/gpu_check, skipped otherwise.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

using namespace halftape;

namespace {
constexpr int64_t kBeyond31 = (int64_t{1} << 31) + 77, kBeyond32 = (int64_t{1} << 32) + 77;
TensorOptions bytes() { return TensorOptions(kUInt8).device(kCUDA); }
}  // namespace

TEST_CASE("element-wise work, copies and sums beyond 2^32 elements" * doctest::skip()) {
  for (const int64_t n : {kBeyond31, kBeyond32}) {
    CAPTURE(n);
    Tensor x = zeros({n}, bytes());
    x.slice(0, n - 3).fill_(1);
    CHECK(x.sum().item<int64_t>() == 3);
    CHECK((x + 2).slice(0, n - 4).to(kInt64).cpu().to_vector() == std::vector<double>{2, 3, 3, 3});
    const Tensor every_other = x.slice(0, 0, n, 2).clone();
    CHECK(every_other.sum().item<int64_t>() == (n % 2 ? 2 : 1));
    CHECK(x.argmax(0).item<int64_t>() == n - 3);
    CHECK(x.nonzero().cpu().to_vector() ==
          std::vector<double>{double(n - 3), double(n - 2), double(n - 1)});
  }
}

TEST_CASE("half-precision values beyond 2^31 elements" * doctest::skip()) {
  const int64_t n = kBeyond31;
  Tensor x = full({n}, 0.5, TensorOptions(kFloat16).device(kCUDA));
  x.slice(0, n - 1).fill_(3);
  CHECK((x * 2).slice(0, n - 2).to(kFloat32).cpu().to_vector() == std::vector<double>{1, 6});
  CHECK(x.slice(0, 0, n, 1024).sum(kFloat64).item() == doctest::Approx((n + 1023) / 1024 * 0.5));
  Tensor index = tensor({n - 1, int64_t{0}, n - 2}, TensorOptions(kInt64).device(kCUDA));
  CHECK(x.index_select(0, index).to(kFloat32).cpu().to_vector() ==
        std::vector<double>{3, 0.5, 0.5});
}
