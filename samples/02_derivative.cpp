// 2. A derivative: what the tape records, and what backward() does with it.
//
// It takes no time. Last line: square root of 2: 1.41421356
#include <halftape/halftape.h>

#include <cmath>
#include <cstdio>

using namespace halftape;

int main() {
  // Ops on a tensor that requires a gradient are written on a tape.
  const Tensor x = tensor({3.0}, kFloat64).requires_grad_();
  const Tensor y = x * x + sin(x);

  // backward() reads the tape from its end and leaves dy/dx in x.grad().
  y.sum().backward();
  std::printf("d(x² + sin x)/dx at 3: %.6f, by hand 2·3 + cos 3 = %.6f\n", x.grad().item<double>(),
              6 + std::cos(3.0));

  // grad() returns a derivative instead. With create_graph it is on the tape, too, so it can be
  // differentiated again, as often as one likes.
  const Tensor z = x.pow(3).sum();
  const Tensor first = autograd::grad({z}, {x}, {}, {}, /*create_graph=*/true)[0];
  const Tensor second = autograd::grad({first.sum()}, {x})[0];
  std::printf("x³ at 3: first derivative %.0f, second %.0f\n", first.item<double>(),
              second.item<double>());

  // Newton's method looks for a zero of f(r) = r² - 2. Each step needs f and its derivative.
  Tensor r = tensor({1.0}, kFloat64);
  for (int step = 0; step < 6; ++step) {
    r.requires_grad_();
    const Tensor f = r * r - 2;
    const Tensor slope = autograd::grad({f.sum()}, {r})[0];
    r = (r - f / slope).detach();  // detach(): the next step begins a tape of its own
  }
  std::printf("square root of 2: %.8f\n", r.item<double>());
}
