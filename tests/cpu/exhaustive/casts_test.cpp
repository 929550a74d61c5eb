// All 2^32 float32 values to float16 and bfloat16 through the library's own cast, against an
// independent reference in integers.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/tensor.h"
#include "halftape/core/bit_cast.h"
#include "halftape/core/machine/threads.h"
#include "halftape/tests/support/round16.h"

namespace halftape {
namespace {

constexpr uint32_t kBlock = 1u << 20;

/// Converts the block of floats that starts at bit pattern `first`, and counts the elements that
/// are wrong. Rounding is monotone, so the patterns that round to one value are a run: its end is
/// found by bisection with the reference, and the run is compared as a whole. NaNs are compared one
/// by one: any NaN is right.
template <class T>
int64_t wrong_in_block(uint32_t first, const Tensor& floats) {
  const Tensor lowered = floats.to(get_default_device()).to(dtype_of<T>).cpu();
  const T* got = lowered.const_data_ptr<T>();
  int64_t wrong = 0;
  for (uint32_t i = 0; i < kBlock;) {
    const uint16_t expected = testing::round16<T>(first + i);
    if (testing::is_nan16<T>(expected)) {
      wrong += !testing::is_nan16<T>(got[i++].bits);
      continue;
    }
    uint32_t last = i, beyond = kBlock;  // the run holds `last` and not `beyond`
    while (beyond - last > 1) {
      const uint32_t middle = last + (beyond - last) / 2;
      (testing::round16<T>(first + middle) == expected ? last : beyond) = middle;
    }
    for (; i < beyond; ++i) wrong += got[i].bits != expected;
  }
  return wrong;
}

}  // namespace

TEST_CASE("all 2^32 float32 values convert to float16 and bfloat16 rounded to nearest even") {
  const int threads_before = get_num_threads();
  set_num_threads(1);  // the threads here are our own, one block each
  std::atomic<uint32_t> next{0};
  std::atomic<int64_t> wrong_half{0}, wrong_bfloat{0};
  auto work = [&] {
    const Tensor floats = empty({kBlock}, kCPU);
    for (uint32_t block = 0; (block = next.fetch_add(1)) < 4096;) {
      const uint32_t first = block << 20;
      auto* bits = reinterpret_cast<uint32_t*>(floats.data_ptr<float>());
      for (uint32_t i = 0; i < kBlock; ++i) bits[i] = first + i;
      wrong_half += wrong_in_block<Half>(first, floats);
      wrong_bfloat += wrong_in_block<BFloat16>(first, floats);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
    threads.emplace_back(work);
  for (std::thread& t : threads) t.join();
  set_num_threads(threads_before);
  CHECK(wrong_half == 0);
  CHECK(wrong_bfloat == 0);
}

TEST_CASE("a cast of many keeps the bits that a cast of one keeps, those of NaN too") {
  const Tensor halves = empty({65536}, TensorOptions(kFloat16).device(kCPU));
  for (uint32_t i = 0; i < 65536; ++i)
    halves.data_ptr<Half>()[i] = Half::from_bits(static_cast<uint16_t>(i));
  const Tensor wide = halves.to(kFloat32);
  int64_t wrong = 0;
  for (uint32_t i = 0; i < 65536; ++i)
    wrong += bit_cast<uint32_t>(wide.const_data_ptr<float>()[i]) !=
             bit_cast<uint32_t>(detail::half_bits_to_float(static_cast<uint16_t>(i)));
  CHECK(wrong == 0);

  // Both signs of quiet and signalling NaN with every upper payload, and numbers between them.
  const Tensor floats = empty({65536}, kCPU);
  auto* bits = reinterpret_cast<uint32_t*>(floats.data_ptr<float>());
  for (uint32_t i = 0; i < 65536; ++i)
    bits[i] = (i & 1) << 31 | (i % 3 ? 0x7f800001u : 0x3f800000u) | (i >> 1 & 0x3ff) << 13;
  const Tensor lowered = floats.to(kFloat16), brain = floats.to(kBFloat16);
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto x = bit_cast<float>(bits[i]);
    wrong += lowered.const_data_ptr<Half>()[i].bits != detail::float_to_half_bits(x);
    wrong += brain.const_data_ptr<BFloat16>()[i].bits != detail::float_to_bfloat16_bits(x);
  }
  CHECK(wrong == 0);
}

TEST_CASE("the reference rounds the known borders of the formats") {
  using testing::round16;
  auto bits = [](float f) { return bit_cast<uint32_t>(f); };
  CHECK(round16<Half>(bits(65504.0f)) == 0x7bff);
  CHECK(round16<Half>(bits(65519.996f)) == 0x7bff);
  CHECK(round16<Half>(bits(65520.0f)) == 0x7c00);  // a tie, to the even one: infinity
  CHECK(round16<Half>(bits(0x1p-24f)) == 0x0001);
  CHECK(round16<Half>(bits(0x1p-25f)) == 0x0000);  // a tie, to the even one: zero
  CHECK(round16<Half>(bits(0x1.000002p-25f)) == 0x0001);
  CHECK(round16<Half>(bits(-0.0f)) == 0x8000);
  CHECK(round16<Half>(bits(2049.0f)) == 0x6800);  // 2048
  CHECK(round16<Half>(bits(2051.0f)) == 0x6802);  // 2052
  CHECK(round16<BFloat16>(bits(1.00390625f)) == 0x3f80);
  CHECK(round16<BFloat16>(bits(1.01171875f)) == 0x3f82);
  CHECK(round16<BFloat16>(bits(3.4028235e38f)) == 0x7f80);
}

}  // namespace halftape
