// Rows of the op table: picking and placing by number and by condition.
#include "halftape/tests/support/rows/index_rows.h"

namespace halftape::testing {
namespace {

using indexing::None;
using indexing::Slice;

bool in_some(const Dims& i) { return i[0] > 0 && i[1] % 2 == 0; }

/// x with a number where `inside` says so.
auto filled(std::function<bool(Dims)> inside, double value) {
  return [=](const std::vector<Values>& in) {
    std::vector<double> out;
    each_index(in[0].shape, [&](const Dims& i) {
      out.push_back(inside(i) ? value : in[0].v[position(in[0].shape, i)]);
    });
    return out;
  };
}

/// (3, 3): where along the second dimension of (3, 4) the elements of a row go.
Tensor meeting() { return numbers({3, 0, 3, 1, 1, 1, 2, 0, 2}).reshape({3, 3}); }

/// (3, 4) with what the elements of (3, 3) make of those they meet there.
auto met(const std::string& how, bool include_self) {
  return [=](const std::vector<Values>& in) {
    std::vector<double> out = in[0].v, count(out.size(), include_self ? 1 : 0);
    const std::vector<int64_t> at = meeting().to_vector<int64_t>();
    for (size_t i = 0; i < at.size(); ++i) {
      const size_t place = i / 3 * 4 + static_cast<size_t>(at[i]);
      double &slot = out[place], s = in[1].v[i];
      if (count[place]++ == 0)
        slot = s;
      else
        slot = how == "prod"   ? slot * s
               : how == "amax" ? std::max(slot, s)
               : how == "amin" ? std::min(slot, s)
                               : slot + s;
    }
    for (size_t i = 0; how == "mean" && i < out.size(); ++i) out[i] /= std::max(count[i], 1.0);
    return out;
  };
}

/// A row of an in-place form, on a copy: the history goes through it.
auto in_place_form(Rows& rows) {
  return [row = inputs(rows)](const char* name, const std::vector<Shape>& shapes,
                              std::function<Tensor(Tensor&, const TensorList&)> write,
                              Reference reference) {
    row(
        name, shapes,
        [write](const TensorList& x) {
          Tensor y = made(x[0], clone);
          return write(y, x);
        },
        std::move(reference));
  };
}

void scatter_rows(Rows& rows) {
  const auto row = inputs(rows);
  row(
      "gather of a number", {{}},
      [](const TensorList& x) {
        return gather(x[0], 0, numbers({0, 0}));
      },
      picked({2}, [](Dims) { return Dims{}; }));
  row(
      "gather to a number", {{3}},
      [](const TensorList& x) { return gather(x[0], 0, tensor(2, kInt64)); },
      picked({}, [](Dims) { return Dims{2}; }));
  row(
      "scatter", {{3, 4}, {2, 3}},
      [](const TensorList& x) {
        return scatter(x[0], 1, numbers({3, 0, 1, 2, 3, 0}).reshape({2, 3}), x[1]);
      },
      placed({2, 3}, [](Dims i) {
        return Dims{i[0], std::vector<int64_t>{3, 0, 1, 2, 3, 0}[size_t(i[0] * 3 + i[1])]};
      }));
  row(
      "scatter of a corner", {{3, 4}, {3, 3}},
      [](const TensorList& x) {
        return scatter(x[0], 0, numbers({2, 0}).reshape({1, 2}), x[1]);
      },
      placed({1, 2}, [](Dims i) {
        return Dims{2 - 2 * i[1], i[1]};
      }));
  row(
      "scatter of a value", {{3, 4}},
      [](const TensorList& x) {
        return scatter(x[0], 0, numbers({2, 0, 2, 2}).reshape({2, 2}), 1.5);
      },
      filled([](Dims i) { return (i[0] == 2 && i[1] < 2) || (i[0] == 0 && i[1] == 1); }, 1.5));
  row(
      "scatter_add of a corner", {{3, 4}, {3, 3}},
      [](const TensorList& x) {
        return scatter_add(x[0], 1, numbers({3, 3, 0, 3}).reshape({2, 2}), x[1]);
      },
      placed(
          {2, 2},
          [](Dims i) {
            return Dims{i[0], std::vector<int64_t>{3, 3, 0, 3}[size_t(2 * i[0] + i[1])]};
          },
          true),
      Cast::Widest);
}

void scatter_reduce_rows(Rows& rows) {
  const auto row = inputs(rows);
  for (const char* how : {"sum", "prod", "mean", "amax", "amin"})
    for (const bool include_self : {true, false})
      row(
          "scatter_reduce", {{3, 4}, {3, 3}},
          [=](const TensorList& x) {
            return scatter_reduce(x[0], 1, meeting(), x[1], how, include_self);
          },
          met(how, include_self));
  row(
      "scatter, added", {{3, 4}, {3, 3}},
      [](const TensorList& x) { return scatter(x[0], 1, meeting(), x[1], "add"); },
      met("sum", true));
  row(
      "scatter, multiplied", {{3, 4}, {3, 3}},
      [](const TensorList& x) { return scatter(x[0], 1, meeting(), x[1], "multiply"); },
      met("prod", true));
}

void slice_rows(Rows& rows) {
  const auto row = inputs(rows);
  for (const int dim : {0, 1, 2}) {
    auto along = [dim](int64_t count, auto to) {
      Shape shape{3, 4, 3};
      shape[dim] = count;
      return std::pair{shape, std::function<Dims(Dims)>([dim, to](Dims i) {
                         i[dim] = to(i[dim]);
                         return i;
                       })};
    };
    const auto [doubled, twice] = along(5, [](int64_t i) {
      return std::vector<int64_t>{2, 0, 2, 1, 2}[size_t(i)];
    });
    const auto [single, once] = along(2, [](int64_t i) { return 2 - 2 * i; });
    row(
        "index_select", {{3, 4, 3}},
        [dim](const TensorList& x) {
          return index_select(x[0], dim, numbers({2, 0, 2, 1, 2}).to(kInt32));
        },
        picked(doubled, twice));
    row(
        "index_add", {{3, 4, 3}, doubled},
        [dim](const TensorList& x) {
          return index_add(x[0], dim, numbers({2, 0, 2, 1, 2}), x[1]);
        },
        placed(doubled, twice, true));
    row(
        "index_add of multiples", {{3, 4, 3}, doubled},
        [dim](const TensorList& x) {
          return index_add(x[0], dim, numbers({2, 0, 2, 1, 2}), x[1], 2.5);
        },
        placed(doubled, twice, true, 2.5));
    row(
        "index_copy", {{3, 4, 3}, single},
        [dim](const TensorList& x) {
          return index_copy(x[0], dim, numbers({2, 0}), x[1]);
        },
        placed(single, once));
    row(
        "index_fill", {{3, 4, 3}},
        [dim](const TensorList& x) {
          return index_fill(x[0], dim, numbers({-1, 0}), 1.5);
        },
        filled([dim](Dims i) { return i[dim] == 0 || i[dim] == (dim == 1 ? 3 : 2); }, 1.5));
  }
}

void take_rows(Rows& rows) {
  const auto row = inputs(rows);
  row(
      "index_fill with a tensor", {{3, 4}, {}},
      [](const TensorList& x) {
        return index_fill(x[0], 1, numbers({-1, 0}), x[1]);
      },
      [](const std::vector<Values>& in) {
        return filled([](Dims i) { return i[1] == 0 || i[1] == 3; }, in[1].v[0])(in);
      });
  row(
      "index_select of nothing", {{3, 4}},
      [](const TensorList& x) { return index_select(x[0], 0, zeros({0}, kInt64)); },
      picked({0, 4}, [](Dims) {
        return Dims{0, 0};
      }));
  row(
      "take", {{3, 4}},
      [](const TensorList& x) {
        return take(x[0], numbers({-1, 0, 5, 5}).reshape({2, 2}));
      },
      picked({2, 2}, [](Dims i) {
        const int64_t at = std::vector<int64_t>{11, 0, 5, 5}[size_t(2 * i[0] + i[1])];
        return Dims{at / 4, at % 4};
      }));
  row(
      "take_along_dim", {{3, 1, 2}},
      [](const TensorList& x) {
        return take_along_dim(x[0], numbers({2, 0, 1, 2}).reshape({1, 4, 1}).transpose(0, 1), 0);
      },
      picked({1, 4, 2}, [](Dims i) {
        return Dims{std::vector<int64_t>{2, 0, 1, 2}[size_t(i[1])], 0, i[2]};
      }));
  row(
      "take_along_dim of all", {{2, 2}},
      [](const TensorList& x) {
        return take_along_dim(x[0], numbers({3, 1, 3}).unsqueeze(0));
      },
      picked({3}, [](Dims i) {
        return Dims{i[0] == 1 ? 0 : 1, 1};
      }));
}

void mask_rows(Rows& rows) {
  const auto row = inputs(rows);
  row(
      "masked_fill", {{3, 4}}, [](const TensorList& x) { return masked_fill(x[0], some(), -1.5); },
      filled(in_some, -1.5));
  row(
      "masked_fill with a tensor", {{3, 4}, {}},
      [](const TensorList& x) { return masked_fill(x[0], some(), x[1]); },
      [](const std::vector<Values>& in) { return filled(in_some, in[1].v[0])(in); });
  row(
      "masked_fill by a wider mask", {{4}},
      [](const TensorList& x) { return masked_fill(x[0], some(), 2); },
      [](const std::vector<Values>& in) {
        std::vector<double> out;
        each_index({3, 4},
                   [&](const Dims& i) { out.push_back(in_some(i) ? 2 : in[0].v[size_t(i[1])]); });
        return out;
      });
  row(
      "masked_select", {{3, 1}}, [](const TensorList& x) { return masked_select(x[0], some()); },
      picked({4}, [](Dims i) {
        return Dims{1 + i[0] / 2, 0};
      }));
  row(
      "masked_scatter", {{3, 4}, {5}},
      [](const TensorList& x) { return masked_scatter(x[0], some(), x[1]); },
      placed({4}, [](Dims i) {
        return Dims{1 + i[0] / 2, i[0] % 2 * 2};
      }));
}

Dims second(const Dims& i) { return {i[0], 2 * i[1]}; }

void in_place_slice_rows(Rows& rows) {
  const auto in_place = in_place_form(rows);
  in_place(
      "index_put_", {{3, 4}, {3, 2}},
      [](Tensor& y, const TensorList& x) {
        return y.index_put_({Slice(), Slice(None, None, 2)}, x[1]);
      },
      placed({3, 2}, second));
  in_place(
      "index_copy_", {{3, 4}, {3, 2}},
      [](Tensor& y, const TensorList& x) {
        return y.index_copy_(1, numbers({0, 2}), x[1]);
      },
      placed({3, 2}, second));
  in_place(
      "index_add_", {{3, 4}, {3, 2}},
      [](Tensor& y, const TensorList& x) {
        return y.index_add_(1, numbers({0, 2}), x[1]);
      },
      placed({3, 2}, second, true));
  in_place(
      "index_fill_", {{3, 4}},
      [](Tensor& y, const TensorList&) {
        return y.index_fill_(1, numbers({0, 2}), 3);
      },
      filled([](Dims i) { return i[1] % 2 == 0; }, 3));
}

void in_place_scatter_rows(Rows& rows) {
  const auto in_place = in_place_form(rows);
  in_place(
      "scatter_", {{3, 4}, {3, 2}},
      [](Tensor& y, const TensorList& x) {
        return y.scatter_(1, numbers({0, 2}).unsqueeze(0).expand({3, 2}), x[1]);
      },
      placed({3, 2}, second));
  in_place(
      "scatter_add_", {{3, 4}, {3, 2}},
      [](Tensor& y, const TensorList& x) {
        return y.scatter_add_(1, numbers({0, 2}).unsqueeze(0).expand({3, 2}), x[1]);
      },
      placed({3, 2}, second, true));
  in_place(
      "scatter_reduce_", {{3, 4}, {3, 3}},
      [](Tensor& y, const TensorList& x) { return y.scatter_reduce_(1, meeting(), x[1], "prod"); },
      met("prod", true));
  in_place(
      "scatter_ with a product", {{3, 4}, {3, 3}},
      [](Tensor& y, const TensorList& x) { return y.scatter_(1, meeting(), x[1], "multiply"); },
      met("prod", true));
  in_place(
      "masked_fill_", {{3, 4}},
      [](Tensor& y, const TensorList&) { return y.masked_fill_(some(), -1.5); },
      filled(in_some, -1.5));
  in_place(
      "masked_scatter_", {{3, 4}, {5}},
      [](Tensor& y, const TensorList& x) { return y.masked_scatter_(some(), x[1]); },
      placed({4}, [](Dims i) {
        return Dims{1 + i[0] / 2, i[0] % 2 * 2};
      }));
  in_place(
      "tril_", {{3, 4}}, [](Tensor& y, const TensorList&) { return y.tril_(-1); },
      filled([](Dims i) { return i[1] >= i[0]; }, 0));
  in_place(
      "triu_", {{3, 4}}, [](Tensor& y, const TensorList&) { return y.triu_(1); },
      filled([](Dims i) { return i[1] <= i[0]; }, 0));
}

}  // namespace

void index_rows(Rows& rows) {
  scatter_rows(rows);
  scatter_reduce_rows(rows);
  slice_rows(rows);
  take_rows(rows);
  mask_rows(rows);
  indexing_rows(rows);
  in_place_slice_rows(rows);
  in_place_scatter_rows(rows);
}

}  // namespace halftape::testing
