// Rows of one input, and those of layouts.
#pragma once
#include "halftape/tests/support/ops.h"

namespace halftape::testing {

using Reference = std::function<std::vector<double>(const std::vector<Values>&)>;

/// Adds a row of one input.
inline auto one_input(Rows& rows) {
  return [&rows](const char* name, const Shape& shape, std::function<Tensor(const Tensor&)> call,
                 Reference reference) {
    with_square(rows, {.name = name,
                       .call = [call](const TensorList& x) { return call(x[0]); },
                       .shapes = {shape},
                       .reference = std::move(reference)});
  };
}

void layout_rows(Rows& rows);

}  // namespace halftape::testing
