// Matrix products as cuBLASLt describes them.
#pragma once
#include <cublasLt.h>

#include <memory>
#include <string_view>

#include "halftape/cuda/gemm/gemm.h"

namespace halftape::cuda {

/// Throws what the library answered.
void check(cublasStatus_t result, const char* what);

/// A matrix as the library describes it, by columns. Ours by rows is its transposed one.
struct Side {
  int64_t type, rows, columns, ld, next;
  int64_t turned;     // ours is ordered by columns
  int64_t alignment;  // of every row or column, in bytes
  bool operator==(const Side&) const = default;
};

/// Everything that the choice of an algorithm depends on.
struct Problem {
  Side d, a, b;
  int64_t count;
  int64_t epilogue, has_vector, aux_next;
  int64_t reduced_sums;
  bool operator==(const Problem&) const = default;
};
static_assert(std::has_unique_object_representations_v<Problem>);  // it is hashed as bytes
struct ProblemHash {
  size_t operator()(const Problem& p) const {
    return std::hash<std::string_view>()({reinterpret_cast<const char*>(&p), sizeof p});
  }
};

/// reduced_sums: partial sums of float16 may be joined in float16.
Problem problem_of(const Product& p, bool reduced_sums);
/// The vector that the epilogue adds or writes.
inline const char* vector_of(const Product& p) {
  return p.finish.bias_grad ? p.finish.bias_grad : p.bias.base;
}

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* p) const {
    (void)destroy(p);
  }
};
using Operation = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy<cublasLtMatmulDescDestroy>>;
using MatrixLayout =
    std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy<cublasLtMatrixLayoutDestroy>>;
using Preference =
    std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroy<cublasLtMatmulPreferenceDestroy>>;

template <class T>
void set(const Operation& o, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(o.get(), attribute, &value, sizeof value), "descriptor");
}
/// The library's descriptors of a product, d = alpha·a·b + beta·d with its epilogue.
Operation operation(const Problem& p);
MatrixLayout layout(const Side& s, int64_t count);
/// workspace: the most bytes of one.
Preference preference(const Problem& p, size_t workspace);

}  // namespace halftape::cuda
