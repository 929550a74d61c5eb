// Rows of the op table: turning, framing, views, diagonals.
#include "halftape/tests/support/rows/shape_rows.h"

namespace halftape::testing {
namespace {

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

void turning_rows(Rows& rows) {
  const auto row = one_input(rows);
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
}

void framing_rows(Rows& rows) {
  const auto row = one_input(rows);
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
}

void moving_rows(Rows& rows) {
  const auto row = one_input(rows);
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
}

void diagonal_rows(Rows& rows) {
  const auto row = one_input(rows);
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
}

void broadcasting_rows(Rows& rows) {
  const auto row = one_input(rows);
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

}  // namespace

void layout_rows(Rows& rows) {
  turning_rows(rows);
  framing_rows(rows);
  moving_rows(rows);
  diagonal_rows(rows);
  broadcasting_rows(rows);
}

}  // namespace halftape::testing
