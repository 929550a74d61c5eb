// A hole in the region: a function from elsewhere that wants float32 runs with autocast off, on
// inputs cast by hand.
#include "recipe.h"

using namespace recipe;

namespace {

/// Σ x⁴ of each row, as a library wrote it: without autocast in mind, with its own dtype check.
Tensor imported(const Tensor& x) {
  if (x.dtype() != kFloat32) throw Error("imported: only float32");
  return (x * x * x * x).sum(1);
}

}  // namespace

int main() {
  manual_seed(1);
  const Tensor x = randn({4, 32}), w = (randn({32, 8}) * 8).requires_grad_();
  Tensor y;
  {
    const amp::autocast region(kCPU, kFloat16);
    const Tensor h = matmul(x, w);  // float16; the fourth power of 50 is beyond it
    bool refused = false;
    try {
      imported(h);
    } catch (const Error&) {
      refused = true;
    }
    expect(refused, "it does not take float16");
    {
      const amp::autocast hole(kCPU, kFloat16, /*enabled=*/false);
      y = imported(h.to(kFloat32));
    }
    expect(matmul(x, w).dtype() == kFloat16, "after the hole the region goes on");
  }
  log(y).mean().backward();
  const Tensor reference = imported(matmul(x, w)).detach();
  std::printf("largest value %.3g, float16 ends at 65504; %.1e from float32\n",
              y.max().item<double>(), distance(y.detach(), reference));
  expect(y.max().item<double>() > 65504, "the values are beyond float16");
  expect(distance(y.detach(), reference) < 5e-3, "and right");
  expect(w.grad().isfinite().all().item<bool>(), "so are the gradients");
  return verdict();
}
