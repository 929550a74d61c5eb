// What the rows about picking and placing share.
#pragma once
#include "halftape/tests/support/rows/shape_rows.h"

namespace halftape::testing {

inline Tensor numbers(const std::vector<int64_t>& values) { return tensor(values); }

/// (3, 4): true where the column is even, but for the first row.
inline Tensor some() {
  Tensor mask = zeros({3, 4}, kBool);
  mask.index_put_(
      {indexing::Slice(1, indexing::None), indexing::Slice(indexing::None, indexing::None, 2)},
      true);
  return mask;
}

/// x (of the shape of the first input) with y[i] placed or added at where(i), in the order of i.
inline auto placed(Shape shape, std::function<Dims(Dims)> where, bool add = false,
                   double alpha = 1) {
  return [=](const std::vector<Values>& in) {
    std::vector<double> out = in[0].v;
    each_index(shape, [&](const Dims& i) {
      double& slot = out[position(in[0].shape, where(i))];
      slot = (add ? slot : 0) + alpha * in[1].v[position(in[1].shape, i)];
    });
    return out;
  };
}

/// Adds a row of these inputs.
inline auto inputs(Rows& rows) {
  return [&rows](const char* name, const std::vector<Shape>& shapes,
                 std::function<Tensor(const TensorList&)> call, Reference reference,
                 Cast cast = Cast::Keep) {
    with_square(rows, {.name = name,
                       .call = std::move(call),
                       .shapes = shapes,
                       .reference = std::move(reference),
                       .cast = cast});
  };
}

/// Rows of Tensor::index and index_put.
void indexing_rows(Rows& rows);

}  // namespace halftape::testing
