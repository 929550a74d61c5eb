// 1. Tensors: numbers in a grid, and what one does with them.
//
// It takes no time. Last line: one third: 0.333333 in float32, 0.333252 in float16
#include <halftape/halftape.h>

#include <cstdio>
#include <iostream>

using namespace halftape;

int main() {
  // A tensor has a shape, a dtype and a device. In braces, numbers with a point give a float32
  // tensor on the CPU, whole numbers an int64 one.
  const Tensor x = tensor({{1.f, 2.f, 3.f}, {4.f, 5.f, 6.f}});
  std::cout << "x:\n" << x << "\n\n";

  // Ops work element by element. A smaller shape is stretched over the larger one.
  const Tensor row = tensor({10.f, 20.f, 30.f});
  std::cout << "x + row:\n" << x + row << "\n\n";

  // Reductions take away a dimension; matmul() is the product of matrices: (2, 3) by (3, 2).
  std::cout << "sums of rows:\n" << x.sum(1) << "\n\n";
  std::cout << "x times its transpose:\n" << matmul(x, x.t()) << "\n\n";

  // Indexing by a number gives a view: it shares the numbers of y, so a change through it is a
  // change of y.
  const Tensor y = x.clone();
  y.index({1}).fill_(0);
  std::cout << "y, a copy of x, with its second row zeroed:\n" << y << "\n\n";

  // float16 has 11 significant bits where float32 has 24, and half the bytes. Ops read 16 bits,
  // compute in float32, and round once.
  const Tensor third = tensor({1.f}) / 3;
  std::printf("one third: %.6f in float32, %.6f in float16\n", third.item<double>(),
              third.to(kFloat16).item<double>());
}
