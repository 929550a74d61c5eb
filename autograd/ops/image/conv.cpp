#include "halftape/autograd/ops/image/conv.h"

#include <algorithm>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/image/conv_products.h"
#include "halftape/autograd/ops/image/windows.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/product/matmul.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/tape/record.h"

namespace halftape {
namespace {

using detail::Conv, detail::each_dim, detail::joined, detail::last_dims, detail::leading_dims;

Tensor sum_over_images(const Tensor& g) {
  Dims others;
  for (int d = 0; d < g.dim(); ++d)
    if (d != 1) others.push_back(d);
  return sum(g, others, false, g.dtype());
}

const Array& array_of(const Tensor& bias) {
  static const auto& none = *new Array;  // NOLINT: for convolutions of dying statics
  return bias.defined() ? bias.array() : none;
}

Tensor weights_of(const char* name, const Conv& c, const Tensor& y, const Tensor& x);

/// y of x, or `back`: x of y. lengths: of the result.
Tensor across(const char* name, const Conv& c, bool back, const Tensor& from, const Tensor& w,
              const Tensor& bias, const Shape& lengths) {
  const Array to = back ? detail::conv_inputs(c, from.array(), w.array(), array_of(bias), lengths)
                        : detail::conv_outputs(c, from.array(), w.array(), array_of(bias), lengths);
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
  const Array w = detail::conv_weights(c, y.array(), x.array());
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
  return detail::reshaped(
      patches, joined(leading_dims(x.sizes(), 3), {x.size(-3) * numel(w.size), numel(count)}));
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
  return detail::fold(detail::reshaped(columns, joined(joined(lead, w.size), count)), w, lengths);
}

}  // namespace halftape
