// Arrays of one shape with as few dimensions as possible, for kernels that walk strided operands.
#pragma once
#include <array>

#include "halftape/core/array.h"

namespace halftape {

/// One array of a walk.
struct Operand {
  char* base;
  Strides strides;  // in bytes, of the collapsed shape
  int64_t item;     // bytes of an element
};

/// N arrays of the first one's shape. Neighbouring dimensions are merged where all arrays allow it,
/// and dimensions of size 1 dropped; at least one dimension remains. Row-major order is kept.
template <size_t N>
struct CollapsedDims {
  Shape shape;
  std::array<Operand, N> operands;

  explicit CollapsedDims(const std::array<const Array*, N>& arrays) {
    const Shape& full = arrays[0]->shape();
    for (size_t a = 0; a < N; ++a)
      operands[a] = {static_cast<char*>(arrays[a]->raw()),
                     {},
                     static_cast<int64_t>(element_size(arrays[a]->dtype()))};
    for (int d = 0; d < full.size(); ++d) {
      if (full[d] == 1) continue;
      bool merges = !shape.empty();
      for (size_t a = 0; a < N && merges; ++a)
        merges = operands[a].strides.back() == arrays[a]->strides()[d] * operands[a].item * full[d];
      if (merges)
        shape[shape.size() - 1] *= full[d];
      else
        shape.push_back(full[d]);
      for (size_t a = 0; a < N; ++a) {
        const int64_t step = arrays[a]->strides()[d] * operands[a].item;
        if (merges)
          operands[a].strides[shape.size() - 1] = step;
        else
          operands[a].strides.push_back(step);
      }
    }
    if (shape.empty()) {
      shape.push_back(1);
      for (Operand& o : operands) o.strides.push_back(o.item);
    }
  }
};

}  // namespace halftape
