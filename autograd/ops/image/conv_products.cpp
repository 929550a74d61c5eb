#include "halftape/autograd/ops/image/conv_products.h"

#include <algorithm>
#include <bit>

#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/binary.h"

namespace halftape::detail {
namespace {

/// True if the columns of an image are its own channels.
bool are_columns(const Conv& c, const Shape& lengths, const Shape& count) {
  const Windows& w = c.windows;
  bool same = lengths == count;
  for (int i = 0; i < w.dims(); ++i)
    same = same && w.size[i] == 1 && w.padding[i] == 0 && (w.stride[i] == 1 || count[i] == 1);
  return same;
}

/// f(begin, end) for blocks of the images x, whose columns exist at a time. On a GPU each block
/// costs launches; on a CPU it lies in the second cache, and has rows of whole registers. Blocks
/// are larger where their order is that of a sum, `summed`, or where the edges of a product have
/// other bits, as in float64: of the shape alone. Where columns are the images themselves, a single
/// large image is a matrix without a copy; on a CPU small ones are better joined to larger
/// matrices.
void each_block(const Conv& c, const Array& x, const Shape& count, bool summed, const auto& f) {
  const Windows& w = c.windows;
  const Device device = x.device();
  const Shape lengths = last_dims(x.shape(), c.dims());
  const int64_t images = x.size(0);
  const bool pointwise = numel(w.size) == 1 && lengths == count;
  const int64_t depth = checked_mul(x.size(1), numel(w.size)),
                one = checked_mul(depth, numel(count));
  const bool small = device.is_cpu() && !summed && x.dtype() != kFloat64;
  int64_t elements = int64_t{1} << (device.is_cuda() ? 27 : 21);
  if (small) elements = std::clamp(1024 * std::min(depth, elements), elements >> 3, elements);
  int64_t most = std::max<int64_t>(1, elements / std::max<int64_t>(one, 1));
  if (small) most = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(most)));
  if (device.is_cuda() && are_columns(c, lengths, count)) {
    most = std::max<int64_t>(1, images);
  } else if (device.is_cuda()) {  // blocks of one size, for which products are planned once
    const int64_t blocks = std::max<int64_t>(1, (images + most - 1) / most);
    most = std::max<int64_t>(1, (images + blocks - 1) / blocks);
  } else if (pointwise && numel(count) >= 1024) {
    most = 1;
  }
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

/// The columns (groups, C/groups·k, n·l) of images (n, C, …).
Array columns(const Conv& c, const Array& x, const Shape& count) {
  if (x.device().is_cuda() && are_columns(c, last_dims(x.shape(), c.dims()), count))
    return as_matrix(c, x);
  if (x.device().is_cuda()) {
    Array y({c.groups, x.size(1) / c.groups * numel(c.windows.size), x.size(0) * numel(count)},
            x.dtype(), x.device());
    backend(x.device()).unfold(as_windows(c, y, x.size(0), count), x, c.windows);
    return y;
  }
  const Array view = window_view(x, c.windows, count);
  Dims order{1};
  for (int i = 0; i < c.dims(); ++i) order.push_back(2 + i);
  order.push_back(0);
  for (int i = 0; i < c.dims(); ++i) order.push_back(2 + c.dims() + i);
  return view.permute(order).reshape(
      {c.groups, x.size(1) / c.groups * numel(c.windows.size), x.size(0) * numel(count)});
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

/// True if a GPU multiplies image by image. Otherwise rows of columns would be shorter than the
/// tiles of a product, or begin at addresses that it cannot read 16 bytes at a time.
bool multiplies_apart(const Conv& c, Device device, const Shape& lengths, const Shape& count) {
  const int64_t l = numel(count);
  return device.is_cuda() && (are_columns(c, lengths, count) || (l >= 64 && l % 8 == 0));
}

/// Images (n, C, …) as matrices (n, groups, C/groups, l).
Array matrices_apart(const Conv& c, const Array& x) {
  return x.reshape(
      {x.size(0), c.groups, x.size(1) / c.groups, numel(last_dims(x.shape(), c.dims()))});
}
/// The columns (n, groups, C/groups·k, l) of images (n, C, …).
Array columns_apart(const Conv& c, const Array& x, const Shape& count) {
  if (are_columns(c, last_dims(x.shape(), c.dims()), count)) return matrices_apart(c, x);
  const Array y(joined(joined({x.size(0), x.size(1)}, c.windows.size), count), x.dtype(),
                x.device());
  backend(x.device()).unfold(y, x, c.windows);
  return y.reshape(
      {x.size(0), c.groups, x.size(1) / c.groups * numel(c.windows.size), numel(count)});
}
/// to (n, groups, rows, l) ← kernel (groups, rows, depth)·from (n, groups, depth, l), with a bias
/// for each row, or none. One rounding.
void multiply_apart(const Array& to, const Array& kernel, const Array& from, const Array& bias) {
  const Shape batch{to.size(0), kernel.size(0), kernel.size(1), kernel.size(2)};
  const Array sums = bias.defined() && is_narrow(to.dtype())
                         ? Array(to.shape(), compute_dtype(to.dtype()), to.device())
                         : to;
  backend(to.device()).gemm({.d = sums, .a = kernel.unsqueeze(0).expand(batch), .b = from});
  if (bias.defined())
    backend(to.device())
        .binary(BinaryOps::index<formula::Add>(), to, sums,
                bias.reshape({1, to.size(1), to.size(2), 1}).expand(to.shape()));
}

/// If strides are 1, x is a convolution of y, with kernels that are turned round. It rounds once
/// what its product gives, and needs no sums of columns in float32, but has the columns of y: true
/// if a GPU moves fewer bytes so.
bool turns(const Conv& c, const Array& y, const Array& w) {
  bool can = y.device().is_cuda();
  for (int i = 0; i < c.dims(); ++i)
    can = can && c.windows.stride[i] == 1 && c.windows.padding[i] < c.windows.span(i);
  const auto bytes = [](int64_t channels, Dtype d) {
    return checked_mul(channels, static_cast<int64_t>(element_size(d)));
  };
  return can &&
         bytes(w.size(0), y.dtype()) <= bytes(w.size(1) * c.groups, compute_dtype(y.dtype()));
}
Conv turned(Conv c) {
  for (int i = 0; i < c.dims(); ++i)
    c.windows.padding[i] = c.windows.span(i) - 1 - c.windows.padding[i];
  return c;
}
/// w (O, C/groups, size…) as (C, O/groups, size…), from its last position to its first.
Array turned_kernels(const Conv& c, const Array& w) {
  const Array each = w.reshape({c.groups, w.size(0) / c.groups, w.size(1), numel(c.windows.size)});
  Strides strides = each.strides();
  const int64_t last = (each.size(3) - 1) * strides[3];
  strides[3] = -strides[3];
  return each.as_strided(each.shape(), strides, each.offset() + last)
      .transpose(1, 2)
      .clone()
      .reshape(joined({w.size(1) * c.groups, w.size(0) / c.groups}, c.windows.size));
}

}  // namespace

Array conv_outputs(const Conv& c, const Array& x, const Array& w, const Array& bias,
                   const Shape& count) {
  Array y(joined({x.size(0), w.size(0)}, count), x.dtype(), x.device());
  const Array kernel = kernels(c, w);
  const Shape lengths = last_dims(x.shape(), c.dims());
  const bool apart = multiplies_apart(c, y.device(), lengths, count),
             rounds =
                 y.device().is_cuda() && !bias.defined();  // the product does, where a copy would
  each_block(c, x, count, false, [&](int64_t begin, int64_t end) {
    const Array images = x.slice(0, begin, end), result = y.slice(0, begin, end);
    if (apart)
      return multiply_apart(matrices_apart(c, result), kernel, columns_apart(c, images, count),
                            bias);
    const Array to = channels_first(result);
    Array product;  // where it belongs, if it lies there as a matrix
    if (!to.try_view(matrix_shape(c, to), product) || (bias.defined() && is_narrow(y.dtype())))
      product =
          Array(matrix_shape(c, to), rounds ? y.dtype() : compute_dtype(y.dtype()), y.device());
    backend(y.device()).gemm({.d = product, .a = kernel, .b = columns(c, images, count)});
    write(to, product.reshape(to.shape()), bias);
  });
  return y;
}

Array conv_inputs(const Conv& c, const Array& y, const Array& w, const Array& bias,
                  const Shape& lengths) {
  const Shape count = last_dims(y.shape(), c.dims());
  const bool apart = multiplies_apart(c, y.device(), lengths, count),
             folds = !are_columns(c, lengths, count);
  if (folds && turns(c, y, w))
    return conv_outputs(turned(c), y, turned_kernels(c, w), bias, lengths);
  const int64_t channels = w.size(1) * c.groups;
  Array x(joined({y.size(0), channels}, lengths), y.dtype(), y.device());
  const Array kernel = kernels(c, w).transpose(1, 2);
  each_block(c, x, count, false, [&](int64_t begin, int64_t end) {
    const Array given = y.slice(0, begin, end), to = x.slice(0, begin, end);
    if (apart && !folds)
      return multiply_apart(matrices_apart(c, to), kernel, matrices_apart(c, given), bias);
    Array sums, spread;  // the columns' gradients, as matrices and as (n, C, size…, count…)
    if (apart) {
      sums = Array({end - begin, c.groups, kernel.size(1), numel(count)}, compute_dtype(y.dtype()),
                   y.device());
      multiply_apart(sums, kernel, matrices_apart(c, given), {});
      spread = sums.reshape(joined(joined({end - begin, channels}, c.windows.size), count));
    } else {
      const Array from = as_matrix(c, given);
      sums = Array({c.groups, kernel.size(1), from.size(2)}, compute_dtype(y.dtype()), y.device());
      backend(x.device()).gemm({.d = sums, .a = kernel, .b = from});
      spread = as_windows(c, sums, end - begin, count);
    }
    const bool rounds_later = bias.defined() && is_narrow(x.dtype());
    const Array folded =
        rounds_later ? Array(to.shape(), compute_dtype(x.dtype()), x.device()) : to;
    backend(x.device()).fold(folded, spread, c.windows);
    write(channels_first(to), channels_first(folded), bias);
  });
  return x;
}

// Blocks are added up in float32.
Array conv_weights(const Conv& c, const Array& y, const Array& x) {
  const Shape count = last_dims(y.shape(), c.dims());
  const int64_t out = y.size(1) / c.groups, in = x.size(1) / c.groups;
  Array w(joined({y.size(1), in}, c.windows.size), y.dtype(), y.device());
  // The transpose of w, so that the product transposes y, the smaller of its factors.
  Array sum;
  each_block(c, x, count, true, [&](int64_t begin, int64_t end) {
    if (begin == 0)  // on a GPU a product of all images can round by itself
      sum = y.device().is_cuda() && end == x.size(0)
                ? kernels(c, w).transpose(1, 2)
                : Array({c.groups, in * numel(c.windows.size), out}, compute_dtype(y.dtype()),
                        y.device());
    backend(y.device())
        .gemm({.d = sum,
               .a = columns(c, x.slice(0, begin, end), count),
               .b = as_matrix(c, y.slice(0, begin, end)).transpose(1, 2),
               .beta = begin == 0 ? 0.0 : 1.0});
  });
  if (!sum.defined())
    backend(y.device()).fill(w, 0);
  else if (sum.buffer() != w.buffer())
    backend(y.device()).copy(kernels(c, w), sum.transpose(1, 2));
  return w;
}

}  // namespace halftape::detail
