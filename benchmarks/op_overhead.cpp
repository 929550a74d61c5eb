// What one call costs before any arithmetic: tiny tensors, one thread. The same source builds
// against LibTorch (benchmarks/compare), so that both are measured in the same way.
#include "harness.h"
#include "library.h"

int main(int argc, char** argv) {
  using lib::Tensor;
  const Tensor a = lib::ones({1}), b = lib::ones({1});
  const Tensor x = lib::ones({1}).set_requires_grad(true),
               y = lib::ones({1}).set_requires_grad(true);
  const Tensor m = lib::ones({8, 8}), n = lib::ones({8, 8});
  Tensor c = lib::ones({1});

  bench::Table table(library(), argc, argv);
  lib::set_num_threads(table.threads());
  table.add("empty({1})", [&] { bench::keep(lib::empty({1})); });
  table.add("a + b, nothing recorded", [&] { bench::keep(a + b); });
  table.add("x + y, recorded", [&] { bench::keep(x + y); });
  table.add("x + y, under NoGradGuard", [&] {
    const lib::NoGradGuard no_grad;
    bench::keep(x + y);
  });
  table.add("a * 2", [&] { bench::keep(a * 2); });
  table.add("c.add_(a)", [&] { c.add_(a); });
  table.add("relu(a)", [&] { bench::keep(lib::relu(a)); });
  table.add("m.t()", [&] { bench::keep(m.t()); });
  table.add("matmul, 8x8", [&] { bench::keep(lib::matmul(m, n)); });
  table.add("ten products, recorded, and backward", [&] {
    Tensor z = x;
    for (int i = 0; i < 10; ++i) z = z * a;
    z.backward();
  });
  table.run();
}
