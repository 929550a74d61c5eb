// The parts of a matrix product, and the two ways to run them.
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

/// The order of a matrix whose rows or columns are contiguous, as the library needs it. A single
/// row or column may have both orders; then it has the preferred one, or that of its longer side.
enum class Order { ByRows, ByColumns, Neither };
inline Order order_of(int64_t rows, int64_t columns, int64_t down, int64_t right,
                      Order preferred = Order::Neither) {
  const bool by_rows = (right == 1 || columns == 1) && (down >= columns || rows == 1);
  const bool by_columns = (down == 1 || rows == 1) && (right >= rows || columns == 1);
  if (by_rows && by_columns && preferred != Order::Neither) return preferred;
  if (by_rows && (columns >= rows || !by_columns)) return Order::ByRows;
  return by_columns ? Order::ByColumns : Order::Neither;
}
/// The order that `a` prefers: the library sums a factor's rows only if they are its columns.
inline Order order_for(const void* bias_grad) {
  return bias_grad ? Order::ByColumns : Order::Neither;
}

/// What becomes of a product that the library is asked for. Nothing is done if it has no algorithm,
/// or lacks memory, as it seems, and may do it another time.
enum class Outcome { Done, Refused, NotNow };

/// Multiplies by cuBLASLt. The matrices are floating and ordered by rows or by columns; d has the
/// factors' dtype or is float32. A bias is contiguous, aligned to 16 bytes and of d's dtype; with
/// it d is ordered by rows and not float64, and beta is 0. The same holds for anything to finish,
/// then of one matrix, and for bias_grad; aux and each of its rows are aligned as well. bias and
/// bias_grad exclude each other.
Outcome multiply_in_library(const Queue& q, const Product& p);
/// Multiplies by our own kernel, which is correct rather than fast. Ignores p.finish.
void multiply_in_kernel(const Queue& q, const Product& p);

/// EpilogueSteps (core/contract/unfused.h).
void masked_relu(const Array& d, const Array& mask, bool gradient);
void gelu_and_input(const Array& d, const Array& aux, const Array& v);

/// A product with an epilogue of the library.
using FusedGemm = Outcome (*)(const Queue& q, const Gemm& g);
/// True if the library finishes products like g as core/contract/tasks/gemm.h says, including NaN
/// and the one rounding. A smaller product finds out, once for each device, kind of product and
/// rough size. False if nobody has found out before the stream is captured, and for now if the
/// library lacks memory.
bool finishes_right(const Queue& q, const Gemm& g, FusedGemm multiply);
/// True while a Graph, or anybody else, captures the stream: nobody may wait then.
bool is_captured(cudaStream_t stream);
/// True with HALFTAPE_CUDA_LOG=1: each answer, and each product that the library is asked for, is a
/// line of JSON on standard error.
bool logs_gemm();
/// For tests: true while a smaller product finds out in this thread.
bool asks_library();
/// For tests: forgets these answers and the chosen algorithms.
void ask_library_again();
void forget_plans();  // the algorithms of multiply_in_library()

}  // namespace halftape::cuda
