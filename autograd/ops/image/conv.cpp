#include "halftape/autograd/ops/image/conv.h"

#include <algorithm>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/image/windows.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/product/matmul.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/binary.h"

namespace halftape {
namespace {

using detail::each_dim, detail::joined, detail::last_dims, detail::leading_dims;

struct Conv {
  Windows windows;
  int64_t groups;

  int dims() const { return windows.dims(); }
};

// The three sides of one sum, Σ y[n, o, l]·w[o, c, k]·x[n, c, l·stride + k·dilation − padding]:
// each is the derivative of the other two, up to any order. All are products of matrices, one for
// each group: of the kernels (O, C·k), of the columns of all images (C·k, n·l), which are a copy of
// the windows, and of y (O, n·l).

/// Elements of columns that exist at a time: images are taken in blocks. Of the shape alone, so
/// that the order of sums is, too.
constexpr int64_t kColumns = int64_t{1} << 21;

/// f(begin, end) for blocks of images. Where columns are the images themselves, a single large
/// image is a matrix without a copy; small ones are better joined to larger matrices.
void each_block(const Conv& c, int64_t images, int64_t channels, const Shape& lengths,
                const Shape& count, const auto& f) {
  const Windows& w = c.windows;
  const bool pointwise = numel(w.size) == 1 && lengths == count;
  const int64_t one = checked_mul(checked_mul(channels, numel(w.size)), numel(count));
  const int64_t most = pointwise && numel(count) >= 1024
                           ? 1
                           : std::max<int64_t>(1, kColumns / std::max<int64_t>(one, 1));
  for (int64_t begin = 0; begin < images; begin += most) f(begin, std::min(images, begin + most));
}

/// Channels first: (n, C, …) as (C, n, …).
Array channels_first(const Array& x) { return x.transpose(0, 1); }

/// (C, n, l…) as a matrix for each group, (groups, C/groups, n·l).
Shape matrix_shape(const Conv& c, const Array& x) {
  return {c.groups, x.size(0) / c.groups, numel(last_dims(x.shape(), x.dim() - 1))};
}
Array as_matrix(const Conv& c, const Array& x) {
  const Array turned = channels_first(x);
  return turned.reshape(matrix_shape(c, turned));
}

/// The columns (groups, C/groups·k, n·l) of images (n, C, …).
Array columns(const Conv& c, const Array& x, const Shape& count) {
  const Array view = window_view(x, c.windows, count);
  Dims order{1};
  for (int i = 0; i < c.dims(); ++i) order.push_back(2 + i);
  order.push_back(0);
  for (int i = 0; i < c.dims(); ++i) order.push_back(2 + c.dims() + i);
  return view.permute(order).reshape(
      {c.groups, x.size(1) / c.groups * numel(c.windows.size), x.size(0) * numel(count)});
}
/// Columns as (n, C, size…, count…).
Array as_windows(const Conv& c, const Array& columns, int64_t images, const Shape& count) {
  const int64_t channels = c.groups * columns.size(1) / std::max<int64_t>(1, numel(c.windows.size));
  const Array windows =
      columns.reshape(joined(joined(joined({channels}, c.windows.size), {images}), count));
  Dims order{c.dims() + 1};
  for (int i = 0; i < windows.dim(); ++i)
    if (i != c.dims() + 1) order.push_back(i);
  return windows.permute(order);
}

Array kernels(const Conv& c, const Array& w) {
  return w.reshape({c.groups, w.size(0) / c.groups, w.size(1) * numel(c.windows.size)});
}

/// to ← from + bias, one rounding. to, from: (C, …), perhaps the same; bias (C), or none.
void write(const Array& to, const Array& from, const Array& bias) {
  if (bias.defined()) {
    Array along = bias;
    for (int i = 1; i < to.dim(); ++i) along = along.unsqueeze(i);
    backend(to.device())
        .binary(BinaryOps::index<formula::Add>(), to, from, along.expand(to.shape()));
  } else if (to.buffer() != from.buffer()) {
    backend(to.device()).copy(to, from);
  }
}

/// y: (N, O, count…) of x and w.
Array outputs(const Conv& c, const Array& x, const Array& w, const Array& bias,
              const Shape& count) {
  Array y(joined({x.size(0), w.size(0)}, count), x.dtype(), x.device());
  const Array kernel = kernels(c, w);
  each_block(
      c, x.size(0), x.size(1), last_dims(x.shape(), c.dims()), count,
      [&](int64_t begin, int64_t end) {
        const Array to = channels_first(y.slice(0, begin, end));
        Array product;  // where it belongs, if it lies there as a matrix
        if (!to.try_view(matrix_shape(c, to), product) || (bias.defined() && is_narrow(y.dtype())))
          product = Array(matrix_shape(c, to), compute_dtype(y.dtype()), y.device());
        backend(y.device())
            .gemm({.d = product, .a = kernel, .b = columns(c, x.slice(0, begin, end), count)});
        write(to, product.reshape(to.shape()), bias);
      });
  return y;
}

/// x: (N, C, lengths…) of y and w, with a bias for each of its channels, or none.
Array inputs(const Conv& c, const Array& y, const Array& w, const Array& bias,
             const Shape& lengths) {
  const Shape count = last_dims(y.shape(), c.dims());
  const int64_t channels = w.size(1) * c.groups;
  Array x(joined({y.size(0), channels}, lengths), y.dtype(), y.device());
  const Array kernel = kernels(c, w).transpose(1, 2);
  each_block(c, y.size(0), channels, lengths, count, [&](int64_t begin, int64_t end) {
    const Array from = as_matrix(c, y.slice(0, begin, end)), to = x.slice(0, begin, end);
    const Array sums({c.groups, kernel.size(1), from.size(2)}, compute_dtype(y.dtype()),
                     y.device());
    backend(x.device()).gemm({.d = sums, .a = kernel, .b = from});
    const bool rounds_later = bias.defined() && is_narrow(x.dtype());
    const Array folded =
        rounds_later ? Array(to.shape(), compute_dtype(x.dtype()), x.device()) : to;
    backend(x.device()).fold(folded, as_windows(c, sums, end - begin, count), c.windows);
    write(channels_first(to), channels_first(folded), bias);
  });
  return x;
}

/// w: (O, C/groups, size…) of y and x. Blocks are added up in float32.
Array weights(const Conv& c, const Array& y, const Array& x) {
  const Shape count = last_dims(y.shape(), c.dims());
  const int64_t out = y.size(1) / c.groups, in = x.size(1) / c.groups;
  // The transpose of w, so that the product transposes y, the smaller of its factors.
  const Array sum({c.groups, in * numel(c.windows.size), out}, compute_dtype(y.dtype()),
                  y.device());
  if (y.size(0) == 0) backend(y.device()).fill(sum, 0);
  each_block(c, x.size(0), x.size(1), last_dims(x.shape(), c.dims()), count,
             [&](int64_t begin, int64_t end) {
               backend(y.device())
                   .gemm({.d = sum,
                          .a = columns(c, x.slice(0, begin, end), count),
                          .b = as_matrix(c, y.slice(0, begin, end)).transpose(1, 2),
                          .beta = begin == 0 ? 0.0 : 1.0});
             });
  const Array w(joined({y.size(1), in}, c.windows.size), y.dtype(), y.device());
  backend(y.device()).copy(kernels(c, w), sum.transpose(1, 2));
  return w;
}

Tensor sum_over_images(const Tensor& g) {
  Dims others;
  for (int d = 0; d < g.dim(); ++d)
    if (d != 1) others.push_back(d);
  return sum(g, others, false, g.dtype());
}

const Array& array_of(const Tensor& bias) {
  static const Array none;
  return bias.defined() ? bias.array() : none;
}

Tensor weights_of(const char* name, const Conv& c, const Tensor& y, const Tensor& x);

/// y of x, or `back`: x of y. lengths: of the result.
Tensor across(const char* name, const Conv& c, bool back, const Tensor& from, const Tensor& w,
              const Tensor& bias, const Shape& lengths) {
  const Array to = back ? inputs(c, from.array(), w.array(), array_of(bias), lengths)
                        : outputs(c, from.array(), w.array(), array_of(bias), lengths);
  if (!records({&from, &w, &bias})) return Tensor(to);
  return record(
      name, to, {&from, &w, &bias},
      [c, back, lengths = last_dims(from.sizes(), c.dims()),
       from = Saved::if_wanted(w.requires_grad(), from),
       w = Saved::if_wanted(from.requires_grad(), w)](Node& self, const Tensor& g) -> Grads {
        Grads d(3);
        if (self.wants(0)) d[0] = across(self.name(), c, !back, g, w.tensor(self), {}, lengths);
        if (self.wants(1))
          d[1] = back ? weights_of(self.name(), c, from.tensor(self), g)
                      : weights_of(self.name(), c, g, from.tensor(self));
        if (self.wants(2)) d[2] = sum_over_images(g);
        return d;
      });
}

Tensor weights_of(const char* name, const Conv& c, const Tensor& y, const Tensor& x) {
  const Array w = weights(c, y.array(), x.array());
  if (!records({&y, &x})) return Tensor(w);
  return record(name, w, {&y, &x},
                [c, lengths = last_dims(x.sizes(), c.dims()),
                 count = last_dims(y.sizes(), c.dims()), y = Saved::if_wanted(x.requires_grad(), y),
                 x = Saved::if_wanted(y.requires_grad(), x)](Node& self, const Tensor& g) -> Grads {
                  Grads d(2);
                  if (self.wants(0))
                    d[0] = across(self.name(), c, false, x.tensor(self), g, {}, count);
                  if (self.wants(1))
                    d[1] = across(self.name(), c, true, y.tensor(self), g, {}, lengths);
                  return d;
                });
}

/// Checks the inputs of both kinds of convolution.
void check_inputs(const char* op, int n, const Tensor& x, const Tensor& w, const Tensor& bias,
                  int64_t groups, bool transposed) {
  HALFTAPE_CHECK(w.dim() == n + 2, op, ": weight ", w.sizes(), " has ", w.dim(),
                 " dimensions; expected ", n + 2);
  HALFTAPE_CHECK(x.dim() == n + 1 || x.dim() == n + 2, op, ": input ", x.sizes(), " has ", x.dim(),
                 " dimensions; expected ", n + 2, ", or ", n + 1, " without a batch");
  detail::same_kind(op, x, w);
  HALFTAPE_CHECK(groups > 0, op, ": groups ", groups, " must be positive");
  HALFTAPE_CHECK(w.size(0) % groups == 0, op, ": weight ", w.sizes(), " has ", w.size(0),
                 " rows, which ", groups, " groups do not divide");
  int64_t channels = checked_mul(w.size(1), groups), outputs = w.size(0);
  if (transposed) std::swap(channels, outputs);
  HALFTAPE_CHECK(x.size(-n - 1) == channels, op, ": input ", x.sizes(), " has ", x.size(-n - 1),
                 " channels, weight ", w.sizes(), " in ", groups,
                 groups == 1 ? " group" : " groups", " expects ", channels);
  for (int i = 0; i < n; ++i)
    HALFTAPE_CHECK(w.size(2 + i) > 0, op, ": weight ", w.sizes(), " has an empty kernel");
  if (!bias.defined()) return;
  detail::same_kind(op, x, bias);
  HALFTAPE_CHECK(bias.sizes() == Shape{outputs}, op, ": bias ", bias.sizes(), ", weight ",
                 w.sizes(), " in ", groups, groups == 1 ? " group" : " groups", " expects ",
                 Shape{outputs});
}

/// f of x with a batch dimension, without it if x had none.
Tensor in_batches(const Tensor& x, int n, const auto& f) {
  return x.dim() == n + 2 ? f(x) : squeeze(f(unsqueeze(x, 0)), 0);
}

Tensor convolve(const CastOp& op, int n, const Tensor& x_in, const Tensor& w_in,
                const Tensor& bias_in, const Dims& stride, const ConvPadding& padding,
                const Dims& dilation, int64_t groups) {
  const auto inputs = cast_inputs<2>(op, x_in, w_in, bias_in);
  const Tensor &x = inputs[0], &w = inputs[1], &bias = inputs[2];
  check_inputs(op.name, n, x, w, bias, groups, false);
  Conv c{detail::windows_of(op.name, n, last_dims(w.sizes(), n), stride,
                            padding.rule() ? Dims{0} : padding.numbers(), dilation),
         groups};
  const Shape lengths = last_dims(x.sizes(), n);
  Shape count = lengths;
  if (padding.rule() == kSame) {
    c.windows.check_reach(op.name, lengths);
    for (int i = 0; i < n; ++i) {
      HALFTAPE_CHECK(c.windows.stride[i] == 1, op.name, ": padding \"same\" with stride ",
                     c.windows.stride, "; it needs a stride of 1");
      c.windows.padding[i] = (c.windows.span(i) - 1) / 2;
    }
  } else {
    count = detail::window_count(op.name, c.windows, lengths);
  }
  return in_batches(x, n, [&](const Tensor& images) {
    return across(op.name, c, false, images, w, bias, count);
  });
}

Tensor convolve_transposed(const CastOp& op, int n, const Tensor& x_in, const Tensor& w_in,
                           const Tensor& bias_in, const Dims& stride, const Dims& padding,
                           const Dims& output_padding, int64_t groups, const Dims& dilation) {
  const auto inputs = cast_inputs<2>(op, x_in, w_in, bias_in);
  const Tensor &x = inputs[0], &w = inputs[1], &bias = inputs[2];
  check_inputs(op.name, n, x, w, bias, groups, true);
  const Conv c{detail::windows_of(op.name, n, last_dims(w.sizes(), n), stride, padding, dilation),
               groups};
  const Dims behind = each_dim(op.name, "output_padding", output_padding, n, 0);
  const Windows& v = c.windows;
  v.check_reach(op.name, behind, last_dims(x.sizes(), n));
  Shape lengths;
  for (int i = 0; i < n; ++i) {
    HALFTAPE_CHECK(behind[i] < std::max(v.stride[i], v.dilation[i]), op.name, ": output_padding ",
                   behind, " must be smaller than stride ", v.stride, " or dilation ", v.dilation);
    const int64_t covered = (x.size(-n + i) - 1) * v.stride[i] + v.span(i) + behind[i];
    lengths.push_back(covered - 2 * v.padding[i]);
    HALFTAPE_CHECK(x.size(-n + i) > 0 && lengths[i] > 0, op.name, ": input ", x.sizes(),
                   " with kernel ", v.size, " gives ", covered, " elements in dimension ", i,
                   ", of which padding ", v.padding, " leaves none");
  }
  return in_batches(x, n, [&](const Tensor& images) {
    return across(op.name, c, true, images, w, bias, lengths);
  });
}

}  // namespace

PaddingRule ConvPadding::rule_of(std::string_view name) {
  HALFTAPE_CHECK(name == "same" || name == "valid", "padding is \"", name,
                 "\"; expected \"same\", \"valid\" or numbers");
  return name == "same" ? kSame : kValid;
}

#define HALFTAPE_CONVOLUTION(n)                                                                    \
  Tensor conv##n##d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Dims& stride, \
                    const ConvPadding& padding, const Dims& dilation, int64_t groups) {            \
    return convolve(cast_list::conv##n##d, n, x, weight, bias, stride, padding, dilation, groups); \
  }                                                                                                \
  Tensor conv_transpose##n##d(const Tensor& x, const Tensor& weight, const Tensor& bias,           \
                              const Dims& stride, const Dims& padding, const Dims& output_padding, \
                              int64_t groups, const Dims& dilation) {                              \
    return convolve_transposed(cast_list::conv_transpose##n##d, n, x, weight, bias, stride,        \
                               padding, output_padding, groups, dilation);                         \
  }
HALFTAPE_CONVOLUTION(1)
HALFTAPE_CONVOLUTION(2)
HALFTAPE_CONVOLUTION(3)
#undef HALFTAPE_CONVOLUTION

Tensor im2col(const Tensor& x, const Dims& kernel_size, const Dims& dilation, const Dims& padding,
              const Dims& stride) {
  const ErrorScope scope("im2col", x);
  HALFTAPE_CHECK(x.dim() == 3 || x.dim() == 4, "im2col: input ", x.sizes(), " has ", x.dim(),
                 " dimensions; expected 4, or 3 without a batch");
  const Windows w = detail::windows_of("im2col", 2, kernel_size, stride, padding, dilation);
  const Shape count = detail::window_count("im2col", w, last_dims(x.sizes(), 2));
  const Tensor patches = detail::windows(x, w, count);
  return reshape(patches,
                 joined(leading_dims(x.sizes(), 3), {x.size(-3) * numel(w.size), numel(count)}));
}

Tensor col2im(const Tensor& columns, const Dims& output_size, const Dims& kernel_size,
              const Dims& dilation, const Dims& padding, const Dims& stride) {
  const ErrorScope scope("col2im", columns);
  HALFTAPE_CHECK(columns.dim() == 2 || columns.dim() == 3, "col2im: columns ", columns.sizes(),
                 ": Input Error: Only unbatched (2D) or batched (3D) input Tensors are supported ",
                 "(got ", columns.dim(), "D)");
  const Windows w = detail::windows_of("col2im", 2, kernel_size, stride, padding, dilation);
  const Shape lengths = each_dim("col2im", "output_size", output_size, 2, 1);
  const Shape count = detail::window_count("col2im", w, lengths);
  HALFTAPE_CHECK(columns.size(-2) % numel(w.size) == 0, "col2im: columns ", columns.sizes(), " of ",
                 columns.size(-2), " elements, which are no channels of windows of ", numel(w.size),
                 ", as kernel_size ", w.size, " says");
  HALFTAPE_CHECK(columns.size(-1) == numel(count), "col2im: ", columns.size(-1), " columns in ",
                 columns.sizes(), ", output_size ", lengths, " has ", numel(count), " windows");
  const Shape lead = joined(leading_dims(columns.sizes(), 2), {columns.size(-2) / numel(w.size)});
  return detail::fold(reshape(columns, joined(joined(lead, w.size), count)), w, lengths);
}

}  // namespace halftape
