// Rows of the op table: convolutions, and windows as columns.
#include "halftape/tests/support/windows_reference.h"

namespace halftape::testing {
namespace {

struct ConvUse {
  const char* name;
  Shape x, weight;
  bool bias = true;
  Dims stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;
  Dims output_padding = 0;
};

Dims for_all(const Dims& given, int n) {
  return given.size() == n ? given : Dims::filled(n, given[0]);
}
Windows windows_of(const ConvUse& u, int n) {
  return {last_of(u.weight, n), for_all(u.stride, n), for_all(u.dilation, n),
          for_all(u.padding, n)};
}
std::vector<Shape> shapes_of(const ConvUse& u, int64_t outputs) {
  std::vector<Shape> shapes{u.x, u.weight};
  if (u.bias) shapes.push_back({outputs});
  return shapes;
}
std::vector<double> bias_of(const std::vector<Values>& in) {
  return in.size() > 2 ? in[2].v : std::vector<double>{};
}
/// An image without a batch as a batch of one.
Values batched(const Values& x, int n) {
  return x.shape.size() == n + 2 ? x : Values{shape_of({1}, x.shape), x.v};
}

void conv_row(Rows& rows, const ConvUse& u) {
  const int n = u.weight.size() - 2;
  const Windows w = windows_of(u, n);
  rows.push_back({.name = u.name,
                  .call =
                      [=](const TensorList& x) {
                        const Tensor bias = x.size() > 2 ? x[2] : Tensor();
                        const auto f = n == 1 ? conv1d : n == 2 ? conv2d : conv3d;
                        return f(x[0], x[1], bias, u.stride, u.padding, u.dilation, u.groups);
                      },
                  .shapes = shapes_of(u, u.weight[0]),
                  .reference =
                      [=](const std::vector<Values>& in) {
                        const Values x = batched(in[0], n);
                        return conv_reference(x, in[1], bias_of(in), w, u.groups,
                                              count_windows(w, last_of(x.shape, n)));
                      },
                  .cast = Cast::Lower,
                  .needed = 2});
}

void conv_transpose_row(Rows& rows, const ConvUse& u) {
  const int n = u.weight.size() - 2;
  const Windows w = windows_of(u, n);
  rows.push_back({.name = u.name,
                  .call =
                      [=](const TensorList& x) {
                        const Tensor bias = x.size() > 2 ? x[2] : Tensor();
                        const auto f = n == 1   ? conv_transpose1d
                                       : n == 2 ? conv_transpose2d
                                                : conv_transpose3d;
                        return f(x[0], x[1], bias, u.stride, u.padding, u.output_padding, u.groups,
                                 u.dilation);
                      },
                  .shapes = shapes_of(u, u.weight[1] * u.groups),
                  .reference =
                      [=](const std::vector<Values>& in) {
                        const Values x = batched(in[0], n);
                        Shape lengths;
                        for (int i = 0; i < n; ++i)
                          lengths.push_back((x.shape[2 + i] - 1) * w.stride[i] + w.span(i) -
                                            2 * w.padding[i] + for_all(u.output_padding, n)[i]);
                        return conv_transpose_reference(x, in[1], bias_of(in), w, u.groups,
                                                        lengths);
                      },
                  .cast = Cast::Lower,
                  .needed = 2});
}

void convolution_rows(Rows& rows) {
  conv_row(rows, {.name = "conv1d", .x = {2, 3, 7}, .weight = {4, 3, 3}});
  conv_row(rows, {.name = "conv1d, strided, padded, dilated, in groups",
                  .x = {2, 4, 8},
                  .weight = {2, 2, 3},
                  .bias = false,
                  .stride = 2,
                  .padding = 2,
                  .dilation = 2,
                  .groups = 2});
  conv_row(rows, {.name = "conv2d", .x = {2, 2, 4, 5}, .weight = {3, 2, 2, 3}});
  conv_row(rows, {.name = "conv2d without bias",
                  .x = {1, 2, 4, 4},
                  .weight = {2, 2, 3, 3},
                  .bias = false,
                  .padding = 1});
  conv_row(rows, {.name = "conv2d, strided, padded, dilated",
                  .x = {2, 2, 5, 6},
                  .weight = {2, 2, 2, 3},
                  .stride = {2, 1},
                  .padding = {1, 2},
                  .dilation = {1, 2}});
  conv_row(
      rows,
      {.name = "conv2d of each channel", .x = {2, 3, 4, 4}, .weight = {6, 1, 2, 2}, .groups = 3});
  conv_row(rows, {.name = "conv2d of one element", .x = {2, 3, 3, 2}, .weight = {2, 3, 1, 1}});
  conv_row(rows, {.name = "conv2d without a batch", .x = {2, 4, 4}, .weight = {2, 2, 2, 2}});
  conv_row(rows, {.name = "conv2d of no images", .x = {0, 2, 4, 4}, .weight = {3, 2, 2, 2}});
  conv_row(rows, {.name = "conv3d",
                  .x = {1, 2, 3, 3, 3},
                  .weight = {2, 2, 2, 1, 2},
                  .stride = 2,
                  .padding = {1, 0, 1}});

  conv_transpose_row(rows, {.name = "conv_transpose1d", .x = {2, 3, 4}, .weight = {3, 2, 3}});
  conv_transpose_row(rows, {.name = "conv_transpose1d, in groups",
                            .x = {2, 4, 3},
                            .weight = {4, 1, 3},
                            .stride = 3,
                            .padding = 1,
                            .groups = 2,
                            .output_padding = 2});
  conv_transpose_row(rows, {.name = "conv_transpose2d", .x = {2, 2, 3, 3}, .weight = {2, 3, 2, 3}});
  conv_transpose_row(rows, {.name = "conv_transpose2d, strided, padded, dilated",
                            .x = {1, 2, 3, 2},
                            .weight = {2, 2, 3, 2},
                            .bias = false,
                            .stride = {2, 3},
                            .padding = {1, 0},
                            .dilation = {1, 2},
                            .output_padding = {1, 0}});
  conv_transpose_row(rows,
                     {.name = "conv_transpose3d", .x = {1, 2, 2, 2, 2}, .weight = {2, 1, 2, 2, 1}});
}

void column_rows(Rows& rows) {
  const Windows w{{2, 3}, {2, 1}, {1, 2}, {1, 1}};
  const Shape lengths{4, 6};
  const Shape count = count_windows(w, lengths);
  const int64_t columns = numel(count);
  const auto im2col_of = [=](const Tensor& x) {
    return im2col(x, w.size, w.dilation, w.padding, w.stride);
  };
  // Element (c, k, l) of the columns is the one of the image on which it lies, or 0.
  const auto each_pair = [=](int64_t images, int64_t channels, const auto& f) {
    each_index({images, channels, columns}, [&](const Dims& i) {
      each_in_window(
          w, lengths, {i[2] / count[1], i[2] % count[1]}, [&](const Dims& k, const Dims& s) {
            f(position({images, channels * 6, columns}, {i[0], i[1] * 6 + k[0] * 3 + k[1], i[2]}),
              position({images, channels, 4, 6}, {i[0], i[1], s[0], s[1]}));
          });
    });
  };
  for (const Shape& lead : {Shape{2, 2}, Shape{2}}) {
    const int64_t images = lead.size() == 2 ? lead[0] : 1;
    with_square(rows, {.name = "im2col",
                       .call = [=](const TensorList& x) { return im2col_of(x[0]); },
                       .shapes = {shape_of(lead, lengths)},
                       .reference =
                           [=](const std::vector<Values>& in) {
                             std::vector<double> y(static_cast<size_t>(images * 12 * columns), 0);
                             each_pair(images, 2,
                                       [&](size_t to, size_t from) { y[to] = in[0].v[from]; });
                             return y;
                           }});
    Shape given{12, columns};
    if (lead.size() == 2) given.insert(0, images);
    with_square(rows, {.name = "col2im",
                       .call =
                           [=](const TensorList& x) {
                             return col2im(x[0], lengths, w.size, w.dilation, w.padding, w.stride);
                           },
                       .shapes = {given},
                       .reference =
                           [=](const std::vector<Values>& in) {
                             std::vector<double> y(static_cast<size_t>(images * 2 * 24), 0);
                             each_pair(images, 2,
                                       [&](size_t from, size_t to) { y[to] += in[0].v[from]; });
                             return y;
                           }});
  }
}

}  // namespace

void conv_rows(Rows& rows) {
  convolution_rows(rows);
  column_rows(rows);
}

}  // namespace halftape::testing
