// Rows of the op table: picking and placing by any mixture of slices, numbers and masks.
#include "halftape/tests/support/rows/index_rows.h"

namespace halftape::testing {
namespace {

using indexing::Ellipsis;
using indexing::None;
using indexing::Slice;
using indexing::TensorIndex;

void index_get_rows(Rows& rows) {
  const auto row = inputs(rows);
  auto get = [&](const char* name, const std::vector<TensorIndex>& indices, const Shape& shape,
                 std::function<Dims(Dims)> where) {
    row(
        name, {{3, 4, 5}}, [indices](const TensorList& x) { return x[0].index(indices); },
        picked(shape, std::move(where)));
  };
  get("index by slices", {-1, None, Slice(None, None, 3), "...", Slice(-2, None)}, {1, 2, 2},
      [](Dims i) {
        return Dims{2, 3 * i[1], 3 + i[2]};
      });
  get("index by numbers", {Slice(), numbers({-1, 0, 3, 3})}, {3, 4, 5}, [](Dims i) {
    return Dims{i[0], std::vector<int64_t>{3, 0, 3, 3}[size_t(i[1])], i[2]};
  });
  get("index by pairs", {Slice(), numbers({1, -1}).unsqueeze(1), numbers({0, 2, 2})}, {3, 2, 3},
      [](Dims i) {
        return Dims{i[0], i[1] == 0 ? 1 : 3, i[2] == 0 ? 0 : 2};
      });
  get("index around a slice", {numbers({1, -1, 1}), Slice(1, 3), numbers({0, 2, 0})}, {3, 2},
      [](Dims i) {
        return Dims{i[0] == 1 ? 2 : 1, 1 + i[1], i[0] == 1 ? 2 : 0};
      });
  get("index by a mask", {some(), Slice(None, 2)}, {4, 2}, [](Dims i) {
    return Dims{1 + i[0] / 2, i[0] % 2 * 2, i[1]};
  });
  get("index by nothing", {zeros({3, 4}, kBool)}, {0, 5}, [](Dims) { return Dims{0, 0, 0}; });
}

void index_put_rows(Rows& rows) {
  const auto row = inputs(rows);
  auto set = [&](const char* name, const std::vector<TensorIndex>& indices, const Shape& values,
                 const Shape& shape, std::function<Dims(Dims)> where, bool add) {
    row(
        name, {{3, 4, 5}, values},
        [indices, add](const TensorList& x) { return index_put(x[0], indices, x[1], add); },
        placed(shape, std::move(where), add), Cast::Widest);
  };
  for (const bool add : {false, true}) {
    set(
        "index_put by slices", {-1, Slice(None, None, 3), "...", Slice(-2, None)}, {1, 2, 2},
        {2, 2},
        [](Dims i) {
          return Dims{2, 3 * i[0], 3 + i[1]};
        },
        add);
    set(
        "index_put by numbers", {Slice(), numbers({-1, 0})}, {2, 1}, {3, 2, 5},
        [](Dims i) {
          return Dims{i[0], i[1] == 0 ? 3 : 0, i[2]};
        },
        add);
    set(
        "index_put around a slice", {numbers({1, -1}), Slice(1, 3), numbers({0, 2})}, {}, {2, 2},
        [](Dims i) {
          return Dims{i[0] == 1 ? 2 : 1, 1 + i[1], i[0] == 1 ? 2 : 0};
        },
        add);
    set(
        "index_put by a mask", {some(), Slice(None, 2)}, {4, 2}, {4, 2},
        [](Dims i) {
          return Dims{1 + i[0] / 2, i[0] % 2 * 2, i[1]};
        },
        add);
    set(
        "index_put after a number", {1, Slice(), numbers({4, 0, 2})}, {4, 3}, {4, 3},
        [](Dims i) {
          return Dims{1, i[0], std::vector<int64_t>{4, 0, 2}[size_t(i[1])]};
        },
        add);
  }
  set(
      "index_put of repeated numbers", {numbers({2, 0, 2}), Ellipsis}, {3, 4, 5}, {3, 4, 5},
      [](Dims i) {
        return Dims{i[0] == 1 ? 0 : 2, i[1], i[2]};
      },
      true);
}

void written_part_rows(Rows& rows) {
  const auto row = inputs(rows);
  row(
      "slice_scatter", {{3, 4}, {3, 2}},
      [](const TensorList& x) { return slice_scatter(x[0], x[1], -1, {}, {}, 2); },
      placed({3, 2}, [](Dims i) {
        return Dims{i[0], 2 * i[1]};
      }));
  row(
      "select_scatter", {{3, 4}, {3}},
      [](const TensorList& x) { return select_scatter(x[0], x[1], 1, -1); },
      placed({3}, [](Dims i) {
        return Dims{i[0], 3};
      }));
}

}  // namespace

void indexing_rows(Rows& rows) {
  index_get_rows(rows);
  index_put_rows(rows);
  written_part_rows(rows);
}

}  // namespace halftape::testing
