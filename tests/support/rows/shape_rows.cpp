// Rows of the op table: joining, cutting, repeating, turning, framing.
#include "halftape/tests/support/ops.h"

namespace halftape::testing {
namespace {

using Reference = std::function<std::vector<double>(const std::vector<Values>&)>;

/// out[i] = x[where(i)], 0 where that is empty.
Reference picked_or_zero(Shape shape, std::function<std::optional<Dims>(Dims)> where,
                         double otherwise = 0) {
  return [=](const std::vector<Values>& in) {
    std::vector<double> out;
    each_index(shape, [&](const Dims& i) {
      const std::optional<Dims> at = where(i);
      out.push_back(at ? in[0].v[position(in[0].shape, *at)] : otherwise);
    });
    return out;
  };
}

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

}  // namespace

void shape_rows(std::vector<OpRow>& rows) {
  auto row = [&](const char* name, const Shape& shape, std::function<Tensor(const Tensor&)> call,
                 Reference reference) {
    with_square(rows, {.name = name,
                       .call = [call](const TensorList& x) { return call(x[0]); },
                       .shapes = {shape},
                       .reference = std::move(reference)});
  };

  // Joining.
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
  join("dstack", dstack, {2, 3}, {2, 3}, [](const std::vector<Values>& in) {
    std::vector<double> out;
    for (size_t i = 0; i < 6; ++i) out.push_back(in[0].v[i]), out.push_back(in[1].v[i]);
    return out;
  });

  // Cutting: one part, and several parts whose gradients meet.
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

  // Repeating.
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

  // Turning.
  row(
      "flip", {2, 3, 4},
      [](const Tensor& x) {
        return flip(x, {0, -1});
      },
      picked({2, 3, 4}, [](Dims i) {
        return Dims{1 - i[0], i[1], 3 - i[2]};
      }));
  row(
      "flip nothing", {2, 3}, [](const Tensor& x) { return flip(x, Dims{}); }, same);
  row(
      "flip of a number", {}, [](const Tensor& x) { return flip(x, {0}); }, same);
  row(
      "flip of an empty tensor", {2, 0}, [](const Tensor& x) { return flip(x, {1}); }, same);
  row("fliplr", {2, 3}, fliplr, picked({2, 3}, [](Dims i) { return Dims{i[0], 2 - i[1]}; }));
  row("flipud", {2, 3}, flipud, picked({2, 3}, [](Dims i) { return Dims{1 - i[0], i[1]}; }));
  row(
      "roll", {3, 4},
      [](const Tensor& x) {
        return roll(x, {1, -6}, {0, 1});
      },
      picked({3, 4}, [](Dims i) {
        return Dims{(i[0] + 2) % 3, (i[1] + 2) % 4};
      }));
  row(
      "roll of all", {2, 3}, [](const Tensor& x) { return roll(x, 2); }, picked({2, 3}, [](Dims i) {
        const int64_t at = (i[0] * 3 + i[1] + 4) % 6;
        return Dims{at / 3, at % 3};
      }));
  row(
      "rot90", {2, 3}, [](const Tensor& x) { return rot90(x); }, picked({3, 2}, [](Dims i) {
        return Dims{i[1], 2 - i[0]};
      }));
  row(
      "rot90 twice", {2, 3}, [](const Tensor& x) { return rot90(x, -2); },
      picked({2, 3}, [](Dims i) {
        return Dims{1 - i[0], 2 - i[1]};
      }));
  row(
      "rot90 back", {2, 3}, [](const Tensor& x) { return rot90(x, -1); },
      picked({3, 2}, [](Dims i) {
        return Dims{1 - i[1], i[0]};
      }));

  // Framing.
  row(
      "pad", {2, 3},
      [](const Tensor& x) {
        return pad(x, {1, 2, 0, 1}, kConstant, 1.5);
      },
      picked_or_zero(
          {3, 6},
          [](Dims i) -> std::optional<Dims> {
            if (i[0] > 1 || i[1] < 1 || i[1] > 3) return {};
            return Dims{i[0], i[1] - 1};
          },
          1.5));
  row(
      "pad with less", {2, 5},
      [](const Tensor& x) {
        return pad(x, {-1, 1, 1, -1});
      },
      picked_or_zero({2, 5}, [](Dims i) -> std::optional<Dims> {
        if (i[0] == 0 || i[1] == 4) return {};
        return Dims{0, i[1] + 1};
      }));
  row(
      "pad reflect", {4, 3},
      [](const Tensor& x) {
        return pad(x, {2, 1, 3, -1}, "reflect");
      },
      picked({6, 6}, [](Dims i) {
        return Dims{std::abs(i[0] - 3), std::vector<int64_t>{2, 1, 0, 1, 2, 1}[size_t(i[1])]};
      }));
  row(
      "pad replicate", {2, 3},
      [](const Tensor& x) {
        return pad(x, {2, 4}, "replicate");
      },
      picked({2, 9}, [](Dims i) {
        return Dims{i[0], std::min<int64_t>(std::max<int64_t>(i[1] - 2, 0), 2)};
      }));
  row(
      "pad circular", {2, 3},
      [](const Tensor& x) {
        return pad(x, {3, 1, 1, 0}, "circular");
      },
      picked({3, 7}, [](Dims i) {
        return Dims{(i[0] + 1) % 2, i[1] % 3};
      }));
  row(
      "pad circular with less", {5},
      [](const Tensor& x) {
        return pad(x, {-1, 2}, "circular");
      },
      picked({6}, [](Dims i) { return Dims{1 + i[0] % 4}; }));

  // Views.
  row(
      "squeeze of dims", {1, 2, 1, 1},
      [](const Tensor& x) {
        return x.squeeze({0, -1, 1});
      },
      same);
  row(
      "movedim", {2, 3, 4},
      [](const Tensor& x) {
        return movedim(x, {0, 1}, {2, 0});
      },
      picked({3, 4, 2}, [](Dims i) {
        return Dims{i[2], i[0], i[1]};
      }));
  row(
      "swapaxes", {2, 3}, [](const Tensor& x) { return swapaxes(x, 0, -1); },
      picked({3, 2}, [](Dims i) {
        return Dims{i[1], i[0]};
      }));
  row(
      "unflatten", {2, 6},
      [](const Tensor& x) {
        return unflatten(x, 1, {3, -1});
      },
      same);
  row(
      "broadcast_to", {3, 1},
      [](const Tensor& x) {
        return broadcast_to(x, {2, 3, 2});
      },
      picked({2, 3, 2}, [](Dims i) {
        return Dims{i[1], 0};
      }));
  row(
      "unfold", {2, 7, 2}, [](const Tensor& x) { return unfold(x, 1, 3, 2); },
      picked({2, 3, 2, 3}, [](Dims i) {
        return Dims{i[0], 2 * i[1] + i[3], i[2]};
      }));
  row(
      "unfold that overlaps much", {6}, [](const Tensor& x) { return unfold(x, 0, 4, 1); },
      picked({3, 4}, [](Dims i) { return Dims{i[0] + i[1]}; }));
  row(
      "unfold with gaps", {7}, [](const Tensor& x) { return unfold(x, 0, 2, 4); },
      picked({2, 2}, [](Dims i) { return Dims{4 * i[0] + i[1]}; }));
  row(
      "unfold of a number", {}, [](const Tensor& x) { return unfold(x, 0, 1, 1); }, same);
  for (const int64_t offset : {0, 1, -1}) {
    row(
        "diagonal", {3, 2, 4}, [=](const Tensor& x) { return diagonal(x, offset, 2, 0); },
        picked({2, 3 - std::abs(offset) + (offset == -1)}, [=](Dims i) {
          return Dims{i[1] + std::max<int64_t>(offset, 0), i[0],
                      i[1] + std::max<int64_t>(-offset, 0)};
        }));
    const int64_t n = 3 + std::abs(offset);
    row(
        "diag_embed", {2, 3}, [=](const Tensor& x) { return diag_embed(x, offset, 0, 1); },
        picked_or_zero({n, n, 2}, [=](Dims i) -> std::optional<Dims> {
          if (i[1] - i[0] != offset) return {};
          return Dims{i[2], std::min(i[0], i[1])};
        }));
    row(
        "diag", {3}, [=](const Tensor& x) { return diag(x, offset); },
        picked_or_zero({n, n}, [=](Dims i) -> std::optional<Dims> {
          if (i[1] - i[0] != offset) return {};
          return Dims{std::min(i[0], i[1])};
        }));
    for (const bool upper : {false, true})
      row(
          upper ? "triu" : "tril", {2, 3, 4},
          [=](const Tensor& x) { return upper ? triu(x, offset) : tril(x, offset); },
          picked_or_zero({2, 3, 4}, [=](Dims i) -> std::optional<Dims> {
            const int64_t above = i[2] - i[1] - offset;
            if (upper ? above < 0 : above > 0) return {};
            return i;
          }));
  }
  row(
      "diagonal outside", {2, 3}, [](const Tensor& x) { return diagonal(x, 7); },
      picked({0}, [](Dims) {
        return Dims{0, 0};
      }));
  row(
      "diag of a matrix", {3, 3}, [](const Tensor& x) { return diag(x); }, picked({3}, [](Dims i) {
        return Dims{i[0], i[0]};
      }));
  for (const bool xy : {false, true})
    with_square(rows, {.name = "meshgrid",
                       .call =
                           [xy](const TensorList& x) {
                             const TensorList grid = meshgrid(x, xy ? "xy" : "ij");
                             return grid[0] + 2 * grid[1];
                           },
                       .shapes = {{2}, {3}},
                       .reference =
                           [xy](const std::vector<Values>& in) {
                             std::vector<double> out;
                             each_index(xy ? Shape{3, 2} : Shape{2, 3}, [&](const Dims& i) {
                               out.push_back(in[0].v[size_t(i[xy])] + 2 * in[1].v[size_t(i[!xy])]);
                             });
                             return out;
                           },
                       .one_kernel = false});
  with_square(rows, {.name = "broadcast_tensors",
                     .call =
                         [](const TensorList& x) {
                           const TensorList all = broadcast_tensors(x);
                           return all[0] + 2 * all[1];
                         },
                     .shapes = {{3, 1}, {2}},
                     .reference = elementwise2([](double a, double b) { return a + 2 * b; })});
  row("atleast_3d", {2, 3}, atleast_3d, same);
  row("atleast_2d", {3}, atleast_2d, same);
  row("atleast_1d", {}, atleast_1d, same);
}

}  // namespace halftape::testing
