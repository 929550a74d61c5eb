// Matrix products of training steps: forward (x·wᵀ), the input's gradient (g·w), the weight's
// (gᵀ·x), and squares. The same source builds against LibTorch (benchmarks/compare).
#include "harness.h"
#include "library.h"

int main(int argc, char** argv) {
  using lib::Tensor;
  bench::Table table(library(), argc, argv);
  lib::set_num_threads(table.threads());
  struct Product {
    const char* name;
    int64_t m, k, n;
    bool a_transposed, b_transposed;
  };
  const Product products[] = {
      {"32x64 * (64x64)^T", 32, 64, 64, false, true},
      {"32x64 * 64x64", 32, 64, 64, false, false},
      {"(32x64)^T * 32x64", 64, 32, 64, true, false},
      {"128x784 * (256x784)^T", 128, 784, 256, false, true},
      {"128x256 * 256x784", 128, 256, 784, false, false},
      {"(128x256)^T * 128x784", 256, 128, 784, true, false},
      {"512x1024 * (1024x1024)^T", 512, 1024, 1024, false, true},
      {"512x1024 * 1024x1024", 512, 1024, 1024, false, false},
      {"(512x1024)^T * 512x1024", 1024, 512, 1024, true, false},
      {"512x512 * 512x512", 512, 512, 512, false, false},
      {"1024x1024 * 1024x1024", 1024, 1024, 1024, false, false},
      {"2048x2048 * 2048x2048", 2048, 2048, 2048, false, false},
  };
  for (const Product& p : products) {
    const Tensor a = p.a_transposed ? lib::randn({p.k, p.m}).t() : lib::randn({p.m, p.k}),
                 b = p.b_transposed ? lib::randn({p.n, p.k}).t() : lib::randn({p.k, p.n});
    table.add(p.name, [a, b] { bench::keep(lib::mm(a, b)); });
  }
#ifndef HALFTAPE_BENCH_LIBTORCH
  // LibTorch 1.13 has no products of float16 on the CPU.
  for (const auto dtype : {lib::kFloat16, lib::kBFloat16}) {
    for (const Product& p : products) {
      if (p.m < 128 || p.m > 512) continue;
      const Tensor a =
          (p.a_transposed ? lib::randn({p.k, p.m}).t() : lib::randn({p.m, p.k})).to(dtype);
      const Tensor b = (p.b_transposed ? lib::randn({p.n, p.k}).to(dtype).t()
                                       : lib::randn({p.k, p.n}).to(dtype));
      table.add(std::string(p.name) + (dtype == lib::kFloat16 ? ", float16" : ", bfloat16"),
                [a, b] { bench::keep(lib::mm(a, b)); });
    }
  }
#endif
  table.run();
}
