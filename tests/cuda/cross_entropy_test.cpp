// cross_entropy on the GPU: the results and errors of the CPU, for rows of any length and layout.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "halftape/tests/support/arrays.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/dtypes.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/nonfinite.h"
#include "on_gpu.h"
#if defined(HALFTAPE_SIMT)
#include "settings.h"
#endif

using namespace halftape;
using halftape::testing::differ;
using halftape::testing::message;
using halftape::testing::on_gpu;
using testing::kFloats;
using testing::kInf;
using testing::normal;

namespace {

/// Classes below C; every fifth target is ignored.
Array some_classes(const Shape& shape, int64_t C, int64_t ignored) {
  const Array t(shape, kInt64, kCPU);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.data<int64_t>()[i] = i % 5 == 3 ? ignored : i * 7919 % C;
  return t;
}

/// The same call on both devices, and its results.
struct Both {
  CrossEntropy cpu, gpu;

  Both(const Array& x, const Array& target, const Array& weight, double smoothing, int64_t ignored,
       bool counted = true, bool grad = true) {
    const Dtype wide = x.dtype() == kFloat64 ? kFloat64 : kFloat32;
    const auto whole = [&](const Shape& shape,
                           bool wanted) {  // NaN shows elements that are not written
      return wanted ? full(shape, std::nan(""), wide, kCPU) : Array();
    };
    cpu = {.x = x,
           .target = target,
           .weight = weight,
           .ignored = ignored,
           .smoothing = smoothing,
           .loss = whole(target.shape(), true),
           .counted = whole(target.shape(), counted),
           .grad = whole(x.shape(), grad),
           .total = whole({}, counted),
           .mean = whole({}, counted)};
    gpu = cpu;
    for (Array* a : {&gpu.x, &gpu.target, &gpu.weight, &gpu.loss, &gpu.counted, &gpu.grad,
                     &gpu.total, &gpu.mean})
      *a = on_gpu(*a);
  }
  void run() const {
    cpu_backend().cross_entropy(cpu);
    backend(kCUDA).cross_entropy(gpu);
  }
  void compare() const {
    const auto same = [](const Array& there, const Array& here, testing::Tolerance allowed) {
      if (!here.defined()) return;
      CHECK(differ(Tensor(there.to(kCPU)), Tensor(here), allowed) == "");
    };
    same(gpu.loss, cpu.loss, {.ulps = 4, .eps = 16});
    same(gpu.counted, cpu.counted, {});
    same(gpu.grad, cpu.grad, {.ulps = 8, .eps = 2, .scale = 1});
    same(gpu.total, cpu.total, {.ulps = 8});
    same(gpu.mean, cpu.mean, {.ulps = 16, .eps = 16});
  }
};

}  // namespace

TEST_CASE("gpu: cross_entropy and its gradient are the CPU's, for rows of any length and dtype") {
  for (const int64_t C : {1, 5, 32, 33, 256, 257, 1000, 1024, 1025, 5000}) {
    for (const Dtype dtype : kFloats) {
      const Dtype wide = dtype == kFloat64 ? kFloat64 : kFloat32;
      const Array x = normal({3, 7, C}, dtype, 1, 2), t = some_classes({3, 7}, C, -100);
      const Array w = full({C}, 0.5, wide, kCPU);
      for (int64_t c = 0; c < C; c += 3) cpu_backend().fill(w.slice(0, c, c + 1), 1.75);
      for (const bool weighted : {false, true}) {
        for (const double smoothing : {0.0, 0.1}) {
          CAPTURE(C);
          CAPTURE(dtype);
          CAPTURE(weighted);
          CAPTURE(smoothing);
          const Both both(x, t, weighted ? w : Array(), smoothing, -100);
          both.run();
          both.compare();
        }
      }
    }
  }
}

TEST_CASE("gpu: cross_entropy gives no other bits for logits that lie otherwise") {
  for (const int64_t C : {5, 300, 1500}) {
    for (const Dtype dtype : kFloats) {
      CAPTURE(C);
      CAPTURE(dtype);
      const Array x = normal({6, C}, dtype, 2, 2), t = some_classes({6}, C, 1);
      const Both plain(x, t, {}, 0.1, 1);
      plain.run();
      const Array turned = x.transpose(0, 1).clone().transpose(0, 1);
      const Array all({6, 2 * C + 1}, dtype, kCPU), odd = all.slice(1, 1, 2 * C + 1, 2);
      cpu_backend().copy(odd, x);
      for (const Array& other : {turned, odd}) {
        const Both both(other, t, {}, 0.1, 1);
        both.run();
        CHECK(differ(Tensor(both.gpu.loss.to(kCPU)), Tensor(plain.gpu.loss.to(kCPU)), {}) == "");
        CHECK(differ(Tensor(both.gpu.grad.to(kCPU)), Tensor(plain.gpu.grad.to(kCPU)), {}) == "");
      }
    }
  }
}

TEST_CASE("gpu: what of cross_entropy is not wanted is not written, and nothing else changes") {
  for (const int64_t C : {10, 1500}) {
    const Array x = normal({9, C}, kFloat32, 3, 2), t = some_classes({9}, C, -1);
    for (const bool counted : {false, true}) {
      for (const bool grad : {false, true}) {
        const Both both(x, t, {}, 0, -1, counted, grad);
        both.run();
        both.compare();
        CHECK(differ(Tensor(both.gpu.x.to(kCPU)), Tensor(x), {}) == "");
      }
    }
  }
  const Both none(Array({0, 5}, kFloat32, kCPU), Array({0}, kInt64, kCPU), {}, 0, -1);
  none.run();
}

TEST_CASE("gpu: a block that works on one long row of logits after the other keeps them apart") {
  const Array x = normal({70, 1100}, kFloat32, 4, 6), t = some_classes({70}, 1100, -100);
  const Both both(x, t, {}, 0.2, -100);
  both.run();
  both.compare();
}

TEST_CASE("gpu: rows of infinities and NaN lose what they do on the CPU, ignored ones nothing") {
  for (const int64_t C : {9, 300, 1500}) {
    const Array x = normal({6, C}, kFloat32, 5, 2), t = some_classes({6}, C, 2);
    cpu_backend().fill(x.select(0, 0), -kInf);
    cpu_backend().fill(x.slice(0, 1, 2).slice(1, 3, 4), kInf);
    cpu_backend().fill(x.slice(0, 2, 3).slice(1, 4, 5), std::nan(""));
    cpu_backend().fill(x.slice(0, 3, 4), std::nan(""));  // its target is ignored
    cpu_backend().fill(x.slice(0, 5, 6).slice(1, 0, 1), -kInf);
    for (const double smoothing : {0.0, 0.1}) {
      const Both both(x, t, {}, smoothing, 2);
      both.run();
      both.compare();
    }
  }
}

TEST_CASE("gpu: a target out of range is told in the CPU's words, and the other rows are done") {
  for (const int64_t C : {5, 1500}) {
    for (const int64_t bad : {C, int64_t{-1}, C + 100000}) {
      CAPTURE(C);
      CAPTURE(bad);
      const Array x = normal({4, C}, kFloat32, 6, 2), t = some_classes({4}, C, -100);
      t.data<int64_t>()[2] = bad;
      const Both both(x, t, {}, 0, -100);
      const std::string expected = message([&] { cpu_backend().cross_entropy(both.cpu); });
      CHECK(expected == "cross_entropy: target " + std::to_string(bad) +
                            " at position 2 is out of range [0, " + std::to_string(C) + ")");
      for (double loss : Tensor(both.cpu.loss).to_vector()) CHECK(std::isnan(loss));
      CHECK(message([&] {
              backend(kCUDA).cross_entropy(both.gpu);
              backend(kCUDA).synchronize();
            }) == expected);
      CHECK(message([] { backend(kCUDA).synchronize(); }) == "");
      const auto losses = Tensor(both.gpu.loss.to(kCPU)).to_vector();
      CHECK(std::isfinite(losses[0]));
      CHECK(std::isfinite(losses[1]));
      CHECK(std::isnan(losses[2]));
      CHECK(losses[3] == 0);
    }
  }
}

TEST_CASE("gpu: the mean of few rows and of many, and its gradient in every dtype") {
  for (const int64_t rows : {1, 31, 300, 4096, 4097, 20000}) {
    for (const Dtype dtype : kFloats) {
      CAPTURE(rows);
      CAPTURE(dtype);
      const Array x = normal({rows, 3}, dtype, 5, 2), t = some_classes({rows}, 3, -100);
      const Both both(x, t, {}, 0, -100);
      both.run();
      both.compare();
      // The mean of the written losses.
      const auto sum = [](const Array& a) {
        return read_double(Tensor(a).to(kFloat64).sum().array());
      };
      const double mean = sum(both.gpu.loss) / sum(both.gpu.counted);
      CHECK(std::abs(read_double(both.gpu.mean) - mean) <= 1e-5 * std::abs(mean));
      const Dtype wide = dtype == kFloat64 ? kFloat64 : kFloat32;
      const Array g = full({}, 512, wide, kCPU), here({rows, 3}, dtype, kCPU),
                  there({rows, 3}, dtype, kCUDA);
      cpu_backend().run(CrossEntropyGrad{here, both.cpu.grad, g, both.cpu.total});
      backend(kCUDA).run(
          CrossEntropyGrad{there, on_gpu(both.cpu.grad), on_gpu(g), on_gpu(both.cpu.total)});
      CHECK(differ(Tensor(there.to(kCPU)), Tensor(here), {}) == "");
    }
  }
}

TEST_CASE("gpu: a mean that is also scaled is so as by a call of its own") {
  for (const int64_t rows : {1, 31, 4097}) {
    for (const Dtype dtype : {kFloat16, kFloat64}) {
      for (const bool bad : {false, true}) {
        CAPTURE(rows);
        CAPTURE(dtype);
        CAPTURE(bad);
        const Array x = normal({rows, 3}, dtype, 5, 2), t = some_classes({rows}, 3, -100);
        if (bad) cpu_backend().fill(x.slice(0, rows - 1, rows), std::nan(""));
        const Both unfused(x, t, {}, 0, -100), fused(x, t, {}, 0, -100);
        const Dtype wide = dtype == kFloat64 ? kFloat64 : kFloat32;
        const auto scaling = [&](const Array& loss) {
          const auto one = [](double v, Dtype d) { return full({}, v, d, kCUDA); };
          return CheckedScale{.x = loss,
                              .y = one(5, wide),
                              .scale = one(3, kFloat32),
                              .nonfinite = one(5, kFloat32),
                              .begins = true,
                              .factor = one(5, kFloat32),
                              .inverse = one(5, kFloat32),
                              .found_inf = one(5, kFloat32),
                              .first = one(5, kInt64)};
        };
        const CheckedScale a = scaling(unfused.gpu.mean), b = scaling(fused.gpu.mean);
        backend(kCUDA).cross_entropy(unfused.gpu);
        backend(kCUDA).run(a);
        backend(kCUDA).run(fused.gpu, b);
        for (const auto& [one, other] : {std::pair{unfused.gpu.mean, fused.gpu.mean},
                                         {unfused.gpu.grad, fused.gpu.grad},
                                         {a.y, b.y},
                                         {a.nonfinite, b.nonfinite},
                                         {a.factor, b.factor},
                                         {a.inverse, b.inverse},
                                         {a.found_inf, b.found_inf},
                                         {a.first, b.first}})
          CHECK(testing::same_bits(Tensor(one), Tensor(other)));
        CHECK(read_double(b.nonfinite) == (bad ? 1 : 0));
        CHECK(read_double(b.first) == -1);
      }
    }
  }
}

#if defined(HALFTAPE_SIMT)
TEST_CASE("gpu: the block that takes the mean waits for rows that other blocks still work on") {
  simt::Settings side_by_side = simt::settings;
  side_by_side.os_threads = 2;
  const simt::With settings(side_by_side);
  for (int64_t rows = 9; rows < 40; ++rows) {
    CAPTURE(rows);
    const Array x = normal({rows, 900}, kFloat32, static_cast<uint64_t>(rows), 2),
                t = some_classes({rows}, 900, -100);
    const Both both(x, t, {}, 0, -100);
    both.run();
    both.compare();
  }
}
#endif
