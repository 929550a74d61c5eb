// Subnormal numbers as 0: in which threads, and what stays as it was.
#include "halftape/core/machine/flush_denormal.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "halftape/core/bit_cast.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/binary.h"
#include "halftape/core/formula/unary.h"
#include "halftape/cpu/runtime/parallel.h"
#include "halftape/halftape.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/thread_ranks.h"

using namespace halftape;
using testing::same_bits;

namespace {

bool has_it() { return set_flush_denormal(false); }

/// Of this thread, for a scope.
struct Flush {
  explicit Flush(bool on = true) { set_flush_denormal(on); }
  ~Flush() { set_flush_denormal(false); }
  Flush(const Flush&) = delete;
  Flush& operator=(const Flush&) = delete;
};

/// a·b by the machine, and its bits: a comparison may flush, too.
uint32_t product(float a, float b) {
  volatile float x = a, y = b;
  return bit_cast<uint32_t>(x * y);
}
bool flushes_results() { return product(0x1p-126f, 0.5f) == 0; }
bool flushes_operands() { return product(0x1p-140f, 0x1p20f) == 0; }
bool flushes() { return flushes_results() && flushes_operands(); }

/// Every number of a 16-bit dtype.
Array all_of(Dtype dtype) {
  const Array a({1 << 16}, dtype, kCPU);
  for (int i = 0; i < 1 << 16; ++i) static_cast<uint16_t*>(a.raw())[i] = static_cast<uint16_t>(i);
  return a;
}
template <class F>
Array flushed(const F& f) {
  const Flush flush;
  return f();
}
bool same(const Array& a, const Array& b) { return same_bits(Tensor(a), Tensor(b)); }

class Ones : public data::datasets::Dataset<Ones, bool> {
 public:
  bool get(size_t) override { return flushes(); }
  std::optional<size_t> size() const override { return 8; }
};

}  // namespace

TEST_CASE("the calling thread flushes results and operands, keeps their sign, and stops") {
  CHECK(!flushes_results());
  CHECK(!flushes_operands());
#if defined(__x86_64__) || defined(__aarch64__)
  CHECK(has_it());
#endif
  for (int round = 0; round < 2; ++round) {
    const bool has = set_flush_denormal(true);
    CHECK(flushes_results() == has);
    CHECK(flushes_operands() == has);
    CHECK(product(-0x1p-126f, 0.5f) == (has ? 0x80000000u : 0x80400000u));
    CHECK(product(0x1p-125f, 0.5f) == bit_cast<uint32_t>(0x1p-126f));
    std::thread([] { set_flush_denormal(false); }).join();
    CHECK(flushes() == has);
    CHECK(set_flush_denormal(false) == has);
    CHECK(!flushes_results());
    CHECK(!flushes_operands());
  }
}

TEST_CASE("threads of the pool compute as their caller does, loop by loop") {
  const bool has = has_it();
  const int before = get_num_threads();
  set_num_threads(3);
  for (const bool on : {false, true, false, true}) {  // the threads are the same ones
    const Flush flush(on);
    std::mutex mutex;
    std::set<std::thread::id> seen;
    std::atomic<int> wrong{0};
    cpu::parallel_for(60, [&](int64_t) {
      wrong += flushes() != (on && has);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
    CHECK(wrong == 0);
    CHECK(seen.size() > 1);
    CHECK(flushes() == (on && has));
  }
  set_num_threads(before);
}

TEST_CASE("with flushing, too, any number of threads gives the same bits") {
  const Tensor x = randn({300, 1000}, TensorOptions().device(kCPU)) * 1e-37;
  const auto results = [&](int threads) {
    set_num_threads(threads);
    const Tensor y = x * 0.03;
    return std::vector<Tensor>{y, y.sum({0}), softmax(x, 1) * 1e-36, x.matmul(x.t() * 1e36)};
  };
  const int before = get_num_threads();
  const Tensor plain = results(1)[0];
  set_flush_denormal(true);
  const auto one = results(1), three = results(3);
  set_flush_denormal(false);
  set_num_threads(before);
  for (size_t i = 0; i < one.size(); ++i) CHECK(same_bits(one[i], three[i]));
  CHECK(same_bits(one[0], plain) == !has_it());
}

TEST_CASE("float16 stays right to the bit, subnormal numbers too") {
  const Array halves = all_of(kFloat16);
  for (const Dtype wide : {kFloat32, kFloat64}) {
    const Array expected = halves.to(wide);
    CHECK(same(flushed([&] { return halves.to(wide); }), expected));
    CHECK(same(flushed([&] { return expected.to(kFloat16); }), expected.to(kFloat16)));
  }
  for (OpId op = 0; op < static_cast<OpId>(UnaryOps::size); ++op) {
    CAPTURE(op);
    const auto map = [&] {
      const Array y(halves.shape(), kFloat16, kCPU);
      cpu_backend().unary(op, y, halves, {Scalar(0.75), Scalar(1.5)});
      return y;
    };
    CHECK(same(flushed(map), map()));
  }
  for (const int shift : {1, 77, 1023}) {  // with other numbers, near and far
    CAPTURE(shift);
    for (const OpId op : {BinaryOps::index<formula::Add>(), BinaryOps::index<formula::Sub>(),
                          BinaryOps::index<formula::Mul>(), BinaryOps::index<formula::Div>()}) {
      CAPTURE(op);
      const auto map = [&] {
        const Array y({(1 << 16) - shift}, kFloat16, kCPU);
        cpu_backend().binary(op, y, halves.slice(0, 0, (1 << 16) - shift),
                             halves.slice(0, shift, 1 << 16));
        return y;
      };
      CHECK(same(flushed(map), map()));
    }
  }
  const TensorOptions options = TensorOptions().dtype(kFloat16).device(kCPU);
  const Tensor small = full({64, 48}, 0x1p-24, options), one = ones({64, 48}, options);
  const auto sums = [&] { return small.matmul(one.t()).array(); };
  CHECK(same(flushed(sums), sums()));
  CHECK(Tensor(flushed(sums)).index({0, 0}).item<double>() == 48 * 0x1p-24);
}

TEST_CASE("of bfloat16, functions change where a number or a result is tiny alone") {
  const Array x = all_of(kBFloat16);
  // Up to 2^-118: silu(-89) is 89 times a subnormal number.
  const auto tiny = [](const Array& a, int64_t i) {
    return (static_cast<const uint16_t*>(a.raw())[i] & 0x7fff) <= (127 - 118) << 7;
  };
  for (OpId op = 0; op < static_cast<OpId>(UnaryOps::size); ++op) {
    CAPTURE(op);
    const auto map = [&] {
      const Array y(x.shape(), kBFloat16, kCPU);
      cpu_backend().unary(op, y, x, {Scalar(0.75), Scalar(1.5)});
      return y;
    };
    const Array plain = map(), with = flushed(map);
    int64_t changed = 0;
    for (int64_t i = 0; i < 1 << 16; ++i)
      if (static_cast<uint16_t*>(plain.raw())[i] != static_cast<uint16_t*>(with.raw())[i])
        changed += !tiny(x, i) && !(tiny(plain, i) && tiny(with, i));
    CHECK(changed == 0);
  }
}

TEST_CASE("an AsyncOptimizer's thread computes as the one that steps does") {
  const bool has = has_it();
  const Tensor w = zeros({3}, TensorOptions().device(kCPU)).set_requires_grad(true);
  optim::AsyncOptimizer optimizer(
      std::make_unique<optim::SGD>(std::vector<Tensor>{w}, optim::SGDOptions(0.5)));
  for (const bool on : {true, false, true}) {  // its thread was started without
    {
      const NoGradGuard no_grad;
      w.zero_();
    }
    w.mutable_grad() = full({3}, 0x1p-126, TensorOptions().device(kCPU));
    {
      const Flush flush(on);
      optimizer.step({.is_async = false});
    }
    CHECK(w.detach().index({0}).item<double>() == (on && has ? 0 : -0x1p-127));
  }
}

TEST_CASE("workers of a DataLoader compute as the thread that asks for the batch does") {
  const bool has = has_it();
  auto loader = data::make_data_loader(Ones(), data::DataLoaderOptions(2).workers(2));
  for (const bool on : {true, false}) {
    const Flush flush(on);
    for (const auto& batch : *loader)
      for (const bool flushed_there : batch) CHECK(flushed_there == (on && has));
  }
}

TEST_CASE("sums of a process group are those of the thread that asks for them") {
  const bool has = has_it();
  testing::on_ranks(2, [&](const auto& group) {
    for (const bool on : {true, false, true}) {  // its thread was started without
      Tensor x = full({5}, 0x1p-128, TensorOptions().device(kCPU));
      const Flush flush(on);
      group->all_reduce(x);
      set_flush_denormal(false);
      CHECK(x.index({0}).template item<double>() == (on && has ? 0 : 0x1p-127));
    }
  });
}
