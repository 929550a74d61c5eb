// What the files of the reductions' rows share.
#pragma once
#include <algorithm>
#include <limits>

#include "halftape/tests/support/ops.h"

namespace halftape::testing {

using Line = std::vector<double>;
using Reference = std::function<std::vector<double>(const std::vector<Values>&)>;

void statistics_rows(Rows& rows);
void running_rows(Rows& rows);

/// f(the elements over `dims`) for every element that is kept.
template <class F>
auto grouped(Dims dims, F f) {
  return [=](const std::vector<Values>& in) {
    const Dims over = wrap_dims("reference", dims, in[0].shape.size());
    const Shape kept = reduced_shape(in[0].shape, over, true);
    std::vector<Line> groups(static_cast<size_t>(numel(kept)));
    each_index(in[0].shape, [&](const Dims& i) {
      groups[position(kept, i)].push_back(in[0].v[position(in[0].shape, i)]);
    });
    std::vector<double> out;
    for (const Line& g : groups) out.push_back(f(g));
    return out;
  };
}

inline Line sorted(Line x, bool descending = false) {
  std::sort(x.begin(), x.end());
  if (descending) std::reverse(x.begin(), x.end());
  return x;
}

}  // namespace halftape::testing
