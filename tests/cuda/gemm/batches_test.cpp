// Products with several leading dimensions, such as attention's batch and heads: values, and calls
// of the library.
#include <doctest/doctest.h>

#if defined(HALFTAPE_SIMT)
#include <halftape/halftape.h>

#include "halftape/tests/support/arrays.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/warnings.h"
#include "libraries.h"
#include "runtime/device.h"

using namespace halftape;
using namespace halftape::testing;

namespace {

/// (B, rows, H, columns) as (B, H, rows, columns), as attention splits its heads.
Array heads(const Array& x) { return x.transpose(1, 2); }

struct BatchCase {
  Array d, a, b;  // on the CPU
  double beta = 0;
  bool biased = false;
  int64_t calls = 1;
};

/// Both devices' results; the GPU's in as few calls as the case says.
void check(const BatchCase& c, bool library_multiplies) {
  const Dtype dtype = c.d.dtype();
  const Array bias = normal({c.d.size(c.d.dim() - 1)}, dtype, 9), on_bias = bias.to(Device(kCUDA));
  const auto there = [](const Array& x) {  // in the same layout
    const auto count = static_cast<int64_t>(x.buffer()->size() / element_size(x.dtype()));
    const Array all = Array(x.buffer(), {count}, {1}, 0, x.dtype()).to(Device(kCUDA));
    return Array(all.buffer(), x.shape(), x.strides(), x.offset(), x.dtype());
  };
  const Array d = there(c.d), a = there(c.a), b = there(c.b);
  const Array exact = c.d.to(kFloat64).clone(), wide_bias = bias.to(kFloat64);
  cpu_backend().gemm({.d = exact,
                      .a = c.a.to(kFloat64),
                      .b = c.b.to(kFloat64),
                      .bias = c.biased ? &wide_bias : nullptr,
                      .beta = c.beta});
  const auto before = simt::counters().matmuls;
  backend(kCUDA).gemm(
      {.d = d, .a = a, .b = b, .bias = c.biased ? &on_bias : nullptr, .beta = c.beta});
  const auto calls = simt::counters().matmuls - before;
  // Whether the library finishes with a bias is asked by another product.
  if (library_multiplies && !c.biased) CHECK(calls == c.calls);
  CHECK(differ(Tensor(d.to(kCPU)), Tensor(exact), {.ulps = 1, .eps = 8}) == "");
}

}  // namespace

TEST_CASE("batches of heads take one call, whatever the layout and the library") {
  const Warnings expected;  // of refusals
  const int64_t batch = 6, n_heads = 5, t = 9, size = 8;
  for (const Behaviour& behaviour : behaviours()) {
    const Library library(behaviour.settings);
    CAPTURE(behaviour.name);
    for (const Dtype dtype : {kFloat16, kFloat32}) {
      CAPTURE(dtype);
      const bool multiplies = behaviour.settings.refuses.of == simt::Refusals::None ||
                              behaviour.settings.refuses.of == simt::Refusals::Epilogues;
      const Array q = heads(normal({batch, t, n_heads, size}, dtype, 1)),
                  k = heads(normal({batch, t, n_heads, size}, dtype, 2)),
                  v = heads(normal({batch, t, n_heads, size}, dtype, 3)),
                  p = normal({batch, n_heads, t, t}, dtype, 4),
                  shared = normal({1, n_heads, t, t}, dtype, 5).expand(p.shape()),
                  once = normal({1, 1, t, t}, dtype, 6).expand(p.shape());
      const Array scores = full(p.shape(), 3, dtype, kCPU);
      const auto mixed = [&] { return heads(full({batch, t, n_heads, size}, 3, dtype, kCPU)); };
      check({.d = scores.clone(), .a = q, .b = k.transpose(2, 3)}, multiplies);
      check({.d = scores.clone(), .a = q, .b = k.transpose(2, 3), .beta = 0.5}, multiplies);
      check({.d = scores.clone(), .a = q, .b = k.transpose(2, 3), .biased = true}, multiplies);
      check({.d = mixed(), .a = p, .b = v}, multiplies);
      check({.d = mixed(), .a = p, .b = v, .beta = 1}, multiplies);
      check({.d = mixed(), .a = p, .b = v, .biased = true}, multiplies);
      check({.d = mixed(), .a = p.transpose(2, 3), .b = v}, multiplies);
      check({.d = scores.clone(), .a = shared, .b = p}, multiplies);
      check({.d = scores.clone(), .a = p, .b = shared.transpose(2, 3)}, multiplies);
      check({.d = scores.clone(), .a = once, .b = p}, multiplies);
      // Few calls need no copies.
      check({.d = heads(full({2, t, 3, size}, 3, dtype, kCPU)),
             .a = normal({2, 3, t, t}, dtype, 7),
             .b = heads(normal({2, t, 3, size}, dtype, 8)),
             .calls = 2},
            multiplies);
    }
  }
}
#endif
