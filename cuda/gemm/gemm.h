// Inside the matrix product: the parts of a gemm() call, and the two ways to run them.
#pragma once
#include "halftape/core/contract/backend.h"
#include "halftape/cuda/runtime/context.h"

namespace halftape::cuda {

/// Matrices of one shape. Strides in elements.
struct Matrices {
  char* base;
  Dtype dtype;
  int64_t down, right;  // to the next row, to the next column
  int64_t next;         // to the next matrix; 0: always the same one
};

/// d = alpha·a·b + beta·d (+ bias along the columns), `count` times. d: m×n, a: m×k, b: k×n.
struct Product {
  int64_t m, n, k, count;
  Matrices d, a, b;
  struct Bias {
    const char* base;  // null for none
    Dtype dtype;
    int64_t next;
  } bias;
  double alpha, beta;
  struct Finish {
    Epilogue epilogue = Epilogue::None;
    const char* aux = nullptr;        // written by Relu and Gelu; null for none
    int64_t aux_next = 0;             // to its next row: in bits of a mask, else in elements
    const char* bias_grad = nullptr;  // is written; null for none
  } finish = {};
};

/// How a matrix lies, if its elements are neighbours one way: what the library can use. A single
/// row or column may lie both ways; then along its longer side.
enum class Order { ByRows, ByColumns, Neither };
inline Order order_of(int64_t rows, int64_t columns, int64_t down, int64_t right) {
  const bool by_rows = (right == 1 || columns == 1) && (down >= columns || rows == 1);
  const bool by_columns = (down == 1 || rows == 1) && (right >= rows || columns == 1);
  if (by_rows && (columns >= rows || !by_columns)) return Order::ByRows;
  return by_columns ? Order::ByColumns : Order::Neither;
}

/// Through cuBLASLt; false, and nothing done, where it has no algorithm. The matrices are floating
/// and lie by rows or by columns; d has the factors' dtype, or is float32. A bias is contiguous,
/// aligned to 16 bytes, of d's dtype; with it d lies by rows and is not float64, and beta is 0. The
/// same holds with anything to finish, for one matrix, and of bias_grad; aux is aligned as well,
/// and so is each of its rows. bias and bias_grad exclude each other.
bool multiply_in_library(const Queue& q, const Product& p);
/// Everything but what is to be finished, in our own kernel: correct rather than fast.
void multiply_in_kernel(const Queue& q, const Product& p);

/// MaskedRelu (core/contract/unfused.h).
void masked_relu(const Array& d, const Array& mask, bool gradient);

/// A product with all that is to be finished by the library; false, and nothing done, where it has
/// no algorithm.
using FusedGemm = bool (*)(const Queue& q, const Gemm& g);
/// Does the library finish products like g as core/contract/backend.h says, NaN and all? It is
/// asked by a small one, once for each device, dtype and epilogue. While the stream is captured,
/// and it has not been asked, the answer is no.
bool finishes_right(const Queue& q, const Gemm& g, FusedGemm multiply);
/// Forgets the answers, and the algorithms that were chosen, for tests.
void ask_library_again();
void forget_plans();  // those of multiply_in_library()

}  // namespace halftape::cuda
