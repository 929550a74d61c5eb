// Tensors of a plain interpreter: numbers in shared lists, and windows on them.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "halftape/core/dtype.h"

namespace halftape::fuzz {

using Index = std::vector<int64_t>;

/// One value of the dtype `from` as this dtype stores it: halves by way of float32; integers wrap,
/// but what comes from a float stops at the ends of the range.
double stored(double value, Dtype dtype, Dtype from = kInt64);

int64_t product(const Index& sizes);

/// Calls f with every index of a tensor of these sizes, in row-major order.
void for_each_index(const Index& sizes, const std::function<void(const Index&)>& f);

/// A tensor as the interpreter sees it: a window on shared numbers.
struct Plain {
  std::shared_ptr<std::vector<double>> storage;
  Dtype dtype = kFloat32;
  Index sizes, strides;
  int64_t offset = 0;

  Plain() = default;
  /// Fresh and row-major.
  Plain(Dtype of, const Index& shape)
      : storage(std::make_shared<std::vector<double>>(product(shape))),
        dtype(of),
        sizes(shape),
        strides(shape.size()) {
    int64_t stride = 1;
    for (size_t d = strides.size(); d-- > 0;) {
      strides[d] = stride;
      stride *= shape[d];
    }
  }
  int64_t dim() const { return static_cast<int64_t>(sizes.size()); }
  int64_t at(const Index& index) const {
    return std::inner_product(index.begin(), index.end(), strides.begin(), offset);
  }
  /// The value at an index of a shape to which this one is broadcast.
  double value(const Index& index) const {
    int64_t position = offset;
    for (size_t d = 0; d < sizes.size(); ++d)
      if (sizes[d] != 1) position += strides[d] * index[index.size() - sizes.size() + d];
    return (*storage)[position];
  }
};

/// f of the index, as a new tensor.
Plain computed(Dtype dtype, const Index& sizes, const std::function<double(const Index&)>& f);

/// The shape of both together; none if they do not fit.
std::optional<Index> broadcast(const Index& a, const Index& b);

/// The dtype of an op on two: tensors without dimensions count when their kind is higher.
Dtype result_dtype(const Plain& a, const Plain& b);

}  // namespace halftape::fuzz
