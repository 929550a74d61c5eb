// Rows of the op table: joining, cutting, repeating.
#include "halftape/tests/support/rows/shape_rows.h"

namespace halftape::testing {
namespace {

/// 3-d inputs one behind the other along `dim`.
Reference joined(int dim) {
  return [dim](const std::vector<Values>& in) {
    Shape shape = in[0].shape;
    shape[dim] = 0;
    for (const Values& x : in) shape[dim] += x.shape[dim];
    std::vector<double> out;
    each_index(shape, [&](Dims i) {
      for (const Values& x : in) {
        if (i[dim] < x.shape[dim]) {
          int64_t at = 0;
          for (int d = 0; d < i.size(); ++d) at = at * x.shape[d] + i[d];
          return out.push_back(x.v[static_cast<size_t>(at)]);
        }
        i[dim] -= x.shape[dim];
      }
    });
    return out;
  };
}

void joining_rows(Rows& rows) {
  for (const int dim : {0, 1, 2}) {
    std::vector<Shape> shapes(3, Shape{2, 3, 2});
    shapes[1][dim] = 1;
    shapes[2][dim] = 0;
    with_square(rows, {.name = "cat",
                       .call = [dim](const TensorList& x) { return cat(x, dim - 3); },
                       .shapes = shapes,
                       .reference = joined(dim)});
  }
  with_square(rows, {.name = "cat skips empty vectors",
                     .call = [](const TensorList& x) { return cat(x, 1); },
                     .shapes = {{0}, {2, 3}, {0}, {2, 1}},
                     .reference =
                         [](const std::vector<Values>& in) {
                           return joined(1)({in[1], in[3]});
                         }});
  with_square(rows, {.name = "cat of one tensor with itself",
                     .call =
                         [](const TensorList& x) {
                           return cat({x[0], x[0]});
                         },
                     .shapes = {{2, 3}},
                     .reference = picked({4, 3}, [](Dims i) {
                       return Dims{i[0] % 2, i[1]};
                     })});
  for (const int dim : {0, 1, 2})
    with_square(rows, {.name = "stack",
                       .call = [dim](const TensorList& x) { return stack(x, dim); },
                       .shapes = {{2, 3}, {2, 3}},
                       .reference =
                           [dim](const std::vector<Values>& in) {
                             Shape shape{2, 3};
                             shape.insert(dim, 2);
                             std::vector<double> out;
                             each_index(shape, [&](Dims i) {
                               const auto which = static_cast<size_t>(i[dim]);
                               i.erase(dim);
                               out.push_back(in[which].v[position({2, 3}, i)]);
                             });
                             return out;
                           }});
}

void stacking_rows(Rows& rows) {
  const Reference behind = [](const std::vector<Values>& in) {
    std::vector<double> out = in[0].v;
    out.insert(out.end(), in[1].v.begin(), in[1].v.end());
    return out;
  };
  auto join = [&](const char* name, Tensor (*call)(const TensorList&), const Shape& a,
                  const Shape& b, const Reference& reference) {
    with_square(rows, {.name = name, .call = call, .shapes = {a, b}, .reference = reference});
  };
  join(
      "stack of numbers", [](const TensorList& x) { return stack(x); }, {}, {}, behind);
  join("hstack", hstack, {3}, {}, behind);
  join("hstack", hstack, {2, 3}, {2, 1}, joined(1));
  join("vstack", vstack, {3}, {2, 3}, behind);
  join("column_stack", column_stack, {2}, {2, 1}, [](const std::vector<Values>& in) {
    return std::vector<double>{in[0].v[0], in[1].v[0], in[0].v[1], in[1].v[1]};
  });
  join(
      "cartesian_prod", [](const TensorList& x) { return cartesian_prod(x); }, {2}, {3},
      [](const std::vector<Values>& in) {
        std::vector<double> out;
        for (const double a : in[0].v)
          for (const double b : in[1].v) out.push_back(a), out.push_back(b);
        return out;
      });
  join("dstack", dstack, {2, 3}, {2, 3}, [](const std::vector<Values>& in) {
    std::vector<double> out;
    for (size_t i = 0; i < 6; ++i) out.push_back(in[0].v[i]), out.push_back(in[1].v[i]);
    return out;
  });
}

/// One part, and several parts whose gradients meet.
void cutting_rows(Rows& rows) {
  const auto row = one_input(rows);
  auto columns = [](int64_t from, int64_t to) {
    return picked({3, to - from}, [from](Dims i) { return Dims{i[0], i[1] + from}; });
  };
  row(
      "split", {3, 5}, [](const Tensor& x) { return split(x, 2, 1).at(2); }, columns(4, 5));
  row(
      "split with sizes", {3, 5},
      [](const Tensor& x) {
        return split(x, {1, 0, 4}, -1).at(2);
      },
      columns(1, 5));
  row(
      "split_with_sizes", {3, 5},
      [](const Tensor& x) {
        return split_with_sizes(x, {3, 2}, 1).at(0);
      },
      columns(0, 3));
  row(
      "chunk", {3, 5}, [](const Tensor& x) { return chunk(x, 3, 1).at(1); }, columns(2, 4));
  row(
      "tensor_split", {3, 5}, [](const Tensor& x) { return tensor_split(x, 3, 1).at(0); },
      columns(0, 2));
  row(
      "tensor_split at indices", {3, 5},
      [](const Tensor& x) {
        return tensor_split(x, {1, 4}, 1).at(1);
      },
      columns(1, 4));
  row(
      "unbind", {3, 5}, [](const Tensor& x) { return unbind(x, 1).at(4); }, picked({3}, [](Dims i) {
        return Dims{i[0], 4};
      }));
  row(
      "chunk, both parts", {3, 4},
      [](const Tensor& x) {
        const TensorList parts = chunk(x, 2, 1);
        return cat({parts.back(), parts.front()}, 1);
      },
      picked({3, 4}, [](Dims i) {
        return Dims{i[0], (i[1] + 2) % 4};
      }));
}

void repeating_rows(Rows& rows) {
  const auto row = one_input(rows);
  row(
      "repeat", {2, 3},
      [](const Tensor& x) {
        return repeat(x, {2, 2, 3});
      },
      picked({2, 4, 9}, [](Dims i) {
        return Dims{i[1] % 2, i[2] % 3};
      }));
  row(
      "repeat once", {2, 3},
      [](const Tensor& x) {
        return repeat(x, {1, 1});
      },
      same);
  row(
      "repeat of a number", {}, [](const Tensor& x) { return repeat(x, {3}); },
      picked({3}, [](Dims) { return Dims{}; }));
  row(
      "repeat to nothing", {2, 3},
      [](const Tensor& x) {
        return repeat(x, {0, 2});
      },
      picked({0, 6}, [](Dims) {
        return Dims{0, 0};
      }));
  row(
      "repeat of five dimensions", {2, 1, 2, 1, 2},
      [](const Tensor& x) {
        return repeat(x, {2, 1, 2, 2, 2});
      },
      picked({4, 1, 4, 2, 4}, [](Dims i) {
        return Dims{i[0] % 2, 0, i[2] % 2, 0, i[4] % 2};
      }));
  row(
      "repeat of more than a shape holds", {2, 2, 2, 2, 2},
      [](const Tensor& x) {
        return repeat(x, {2, 1, 2, 2, 2});
      },
      picked({4, 2, 4, 4, 4}, [](Dims i) {
        return Dims{i[0] % 2, i[1], i[2] % 2, i[3] % 2, i[4] % 2};
      }));
  row(
      "tile", {2, 3}, [](const Tensor& x) { return tile(x, {2}); }, picked({2, 6}, [](Dims i) {
        return Dims{i[0], i[1] % 3};
      }));
  row(
      "repeat_interleave", {2, 3}, [](const Tensor& x) { return repeat_interleave(x, 2, 1); },
      picked({2, 6}, [](Dims i) {
        return Dims{i[0], i[1] / 2};
      }));
  row(
      "repeat_interleave of all", {2, 3}, [](const Tensor& x) { return repeat_interleave(x, 3); },
      picked({18}, [](Dims i) {
        return Dims{i[0] / 9, i[0] / 3 % 3};
      }));
  row(
      "repeat_interleave by a list", {2, 3},
      [](const Tensor& x) {
        return repeat_interleave(x, tensor({2, 0, 1}, kInt64), -1);
      },
      picked({2, 3}, [](Dims i) {
        return Dims{i[0], i[1] < 2 ? 0 : 2};
      }));
}

}  // namespace

void shape_rows(Rows& rows) {
  joining_rows(rows);
  stacking_rows(rows);
  cutting_rows(rows);
  repeating_rows(rows);
  layout_rows(rows);
}

}  // namespace halftape::testing
