#include "halftape/autograd/ops/image/pool.h"

#include <algorithm>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/creation/listed.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/image/windows.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/tape/error_scope.h"

namespace halftape {
namespace {

using detail::each_dim, detail::joined, detail::last_dims, detail::leading_dims;

void check_rank(const char* op, const Tensor& x, int n) {
  HALFTAPE_CHECK(x.dim() == n + 1 || x.dim() == n + 2, op, ": input ", x.sizes(), " has ", x.dim(),
                 " dimensions; expected ", n + 2, ", or ", n + 1, " without a batch");
}

Windows pool_windows(const char* op, int n, const Dims& kernel_size, const Dims& stride,
                     const Dims& padding, const Dims& dilation) {
  const Windows w = detail::windows_of(op, n, kernel_size, stride.empty() ? kernel_size : stride,
                                       padding, dilation);
  w.check_reach(op, Dims::filled(n, 0));
  for (int i = 0; i < n; ++i)
    HALFTAPE_CHECK(w.padding[i] <= w.span(i) / 2, op, ": padding ", w.padding,
                   " is more than half of kernel_size ", w.size, " with dilation ", w.dilation);
  return w;
}

/// Throws where a window covers nothing but padding, as one with a large dilation may.
void check_covered(const char* op, const Windows& w, const Shape& lengths, const Shape& count) {
  for (int i = 0; i < w.dims(); ++i)
    for (int64_t l = 0; l < count[i]; ++l) {
      const int64_t begin = l * w.stride[i] - w.padding[i],
                    skipped = begin < 0 ? (-begin + w.dilation[i] - 1) / w.dilation[i] : 0;
      HALFTAPE_CHECK(skipped < w.size[i] && begin + skipped * w.dilation[i] < lengths[i], op,
                     ": window ", l, " of dimension ", i, " covers no element of the input ",
                     lengths, " (kernel_size ", w.size, ", dilation ", w.dilation, ", padding ",
                     w.padding, ')');
    }
}

/// The windows without what lies beside the input in all of them, and without distances that do not
/// matter: the work and its numbers depend on the input. Windows that begin inside the input have a
/// negative padding.
Windows trimmed(Windows w, const Shape& lengths, const Shape& count) {
  for (int i = 0; i < w.dims(); ++i) {
    const int64_t last = (count[i] - 1) * w.stride[i], d = w.dilation[i],
                  before = w.padding[i] > last ? (w.padding[i] - last - 1) / d + 1 : 0,
                  end = std::min(w.size[i], (lengths[i] + w.padding[i] - 1) / d + 1);
    w.size[i] = std::max<int64_t>(end - before, 1);
    w.padding[i] -= before * d;
    if (w.size[i] == 1) w.dilation[i] = 1;
    if (count[i] == 1) w.stride[i] = 1;
  }
  return w;
}

/// x with its last n dimensions made one.
Tensor lined(const Tensor& x, int n) {
  return detail::reshaped(x, joined(leading_dims(x.sizes(), n), {numel(last_dims(x.sizes(), n))}));
}
/// The elements of the last n dimensions at positions (…, count…).
Tensor picked(const Tensor& x, const Tensor& positions, int n) {
  return detail::reshaped(gather(lined(x, n), -1, lined(positions, n)), positions.sizes());
}

std::tuple<Tensor, Tensor> largest(const char* op, int n, const Tensor& x, const Windows& w,
                                   bool ceil_mode) {
  const Shape lengths = last_dims(x.sizes(), n);
  const Shape count = detail::window_count(op, w, lengths, ceil_mode);
  const Array index(joined(leading_dims(x.sizes(), n), count), kInt64, x.device());
  check_covered(op, w, lengths, count);
  backend(x.device()).argmax_windows(index, x.array(), trimmed(w, lengths, count));
  const Tensor positions(index);
  return {picked(x, positions, n), positions};
}

std::tuple<Tensor, Tensor> max_pool(const char* op, int n, const Tensor& x, const Dims& kernel_size,
                                    const Dims& stride, const Dims& padding, const Dims& dilation,
                                    bool ceil_mode) {
  const ErrorScope scope(op, x);
  check_rank(op, x, n);
  return largest(op, n, x, pool_windows(op, n, kernel_size, stride, padding, dilation), ceil_mode);
}

Tensor max_unpool(const char* op, int n, const Tensor& x, const Tensor& indices,
                  const Dims& output_size) {
  const ErrorScope scope(op, x, indices);
  check_rank(op, x, n);
  HALFTAPE_CHECK(indices.sizes() == x.sizes(), op, ": indices ", indices.sizes(), " for ",
                 x.sizes());
  const Shape shape =
      joined(leading_dims(x.sizes(), n), each_dim(op, "output_size", output_size, n, 1));
  const Tensor room = lined(zeros(shape, x.options()), n);
  return detail::reshaped(detail::scatter(room, -1, lined(indices, n), lined(x, n), {op, "index"}),
                          shape);
}

/// The divisor of each window of a dimension.
std::vector<double> divisors(const Windows& w, int i, int64_t length, int64_t count,
                             bool include_pad) {
  std::vector<double> all;
  const int64_t low = include_pad ? -w.padding[i] : 0,
                high = length + (include_pad ? w.padding[i] : 0);
  for (int64_t l = 0; l < count; ++l) {
    const int64_t begin = l * w.stride[i] - w.padding[i];
    all.push_back(static_cast<double>(std::min(begin + w.size[i], high) - std::max(begin, low)));
  }
  return all;
}

/// The sum of each window in the dtype that is added up in.
Tensor window_sums(const Tensor& x, const Windows& w, const Shape& count) {
  const int n = w.dims();
  const Tensor patches = detail::windows(x, w, count);
  if (numel(w.size) > 64) {  // many: added up as a tree
    Dims inside;
    for (int i = 0; i < n; ++i) inside.push_back(x.dim() - n + i);
    return sum(patches, inside, false, compute_dtype(x.dtype()));
  }
  // Windows that lie on one another, which is what a dilation of 0 says.
  const Dims zero = Dims::filled(n, 0);
  return detail::fold(patches, {w.size, Dims::filled(n, 1), zero, zero}, count,
                      compute_dtype(x.dtype()));
}

Tensor avg_pool_of(const char* op, int n, const Tensor& x, const Windows& w, bool ceil_mode,
                   bool include_pad, std::optional<int64_t> divisor) {
  const Shape lengths = last_dims(x.sizes(), n);
  const Shape count = detail::window_count(op, w, lengths, ceil_mode);
  const Tensor sums = window_sums(x, trimmed(w, lengths, count), count);
  if (divisor) return (sums / *divisor).to(x.dtype());
  std::vector<double> by{1};
  bool one = true;
  for (int i = 0; i < n; ++i) {
    const std::vector<double> along = divisors(w, i, lengths[i], count[i], include_pad);
    one = one && std::count(along.begin(), along.end(), along[0]) == count[i];
    auto product = host_room<std::vector<double>>(uint64_t{by.size()} * along.size());
    for (double a : by)
      for (double b : along) product.push_back(a * b);
    by = product;
  }
  if (one) return (sums / by[0]).to(x.dtype());
  const Tensor each = tensor(by, TensorOptions(sums.dtype()).device(x.device()));
  return (sums / detail::reshaped(each, count)).to(x.dtype());
}

Tensor avg_pool(const char* op, int n, const Tensor& x, const Dims& kernel_size, const Dims& stride,
                const Dims& padding, bool ceil_mode, bool include_pad,
                std::optional<int64_t> divisor = {}) {
  const ErrorScope scope(op, x);
  check_rank(op, x, n);
  check_floating(op, x);
  HALFTAPE_CHECK(!divisor || *divisor != 0, op, ": divisor_override must not be 0");
  return avg_pool_of(op, n, x, pool_windows(op, n, kernel_size, stride, padding, 1), ceil_mode,
                     include_pad, divisor);
}

/// The windows of adaptive pooling where they are all of one size.
std::optional<Windows> even_windows(const Shape& lengths, const Shape& count) {
  const int n = lengths.size();
  Windows w{lengths, lengths, Dims::filled(n, 1), Dims::filled(n, 0)};
  for (int i = 0; i < n; ++i) {
    if (lengths[i] % count[i] != 0) return {};
    w.size[i] = w.stride[i] = lengths[i] / count[i];
  }
  return w;
}
int64_t begin_of(int64_t i, int64_t length, int64_t count) { return i * length / count; }
int64_t end_of(int64_t i, int64_t length, int64_t count) {
  return ((i + 1) * length + count - 1) / count;
}

/// Windows of several sizes as tables (count, most): in smaller ones the last position is repeated.
struct UnevenWindows {
  int64_t length, count, most;
  UnevenWindows(int64_t from, int64_t to)
      : length(from), count(to), most(from / to + (from % to == 0 ? 0 : 2)) {}
  int64_t begin(int64_t window) const { return begin_of(window, length, count); }
  int64_t end(int64_t window) const { return end_of(window, length, count); }
  Tensor positions(Device device) const {
    const auto at = [this](int64_t k) {
      return std::min(begin(k / most) + k % most, end(k / most) - 1);
    };
    return Tensor(detail::listed<int64_t>(count * most, kInt64, at)).to(device);
  }
  /// 1/elements of the window, and 0 where a position is repeated.
  Tensor shares(Dtype dtype, Device device) const {
    const auto share = [this](int64_t k) {
      const int64_t n = end(k / most) - begin(k / most);
      return k % most < n ? 1 / static_cast<double>(n) : 0;
    };
    return Tensor(detail::listed<double>(count * most, dtype, share)).to(device);
  }
};

/// The number of windows of each dimension, checked so that the products below fit 64 bits.
Shape adaptive_count(const char* op, int n, const Tensor& x, const Dims& output_size) {
  check_rank(op, x, n);
  const Shape lengths = last_dims(x.sizes(), n),
              count = each_dim(op, "output_size", output_size, n, 1);
  for (int i = 0; i < n; ++i) {
    HALFTAPE_CHECK(lengths[i] > 0, op, ": input ", x.sizes(), " has no elements to pool");
    checked_mul(checked_add(lengths[i], 1), checked_add(count[i], 1));
  }
  detail::check_size(joined(leading_dims(x.sizes(), n), count), kInt64);
  return count;
}

Tensor adaptive_avg_pool(const char* op, int n, const Tensor& x, const Dims& output_size) {
  const ErrorScope scope(op, x);
  check_floating(op, x);
  const Shape count = adaptive_count(op, n, x, output_size), lengths = last_dims(x.sizes(), n);
  if (const auto w = even_windows(lengths, count))
    return avg_pool_of(op, n, x, *w, false, true, {});
  // A mean for each dimension. What lies outside of a window is not in its sum, even times 0: it
  // may be infinite.
  const PolicyScope as_given(nullptr);
  Tensor y = widened(x);
  for (int i = 0; i < n; ++i) {
    const UnevenWindows w(lengths[i], count[i]);
    const int64_t d = y.dim() - n + i;
    Shape thin = Dims::filled(n - i + 1, 1);
    thin[0] = w.count, thin[1] = w.most;
    const Tensor share = detail::reshaped(w.shares(y.dtype(), y.device()), thin);
    y = unflatten(index_select(y, d, w.positions(y.device())), d, {w.count, w.most});
    y = sum(where(share != 0, y * share, 0), {d + 1});
  }
  return contiguous(y.to(x.dtype()));
}

/// The largest element of each of `count` windows, and where it was. at: the positions of their
/// elements in the pooled dimensions made one, (windows, elements), perhaps for each channel.
std::tuple<Tensor, Tensor> largest_at(const Tensor& x, const Tensor& at, const Shape& count) {
  const int n = count.size();
  const Shape lead = leading_dims(x.sizes(), n);
  const Tensor places = expand(at, joined(lead, last_dims(at.sizes(), 2)));
  const Tensor seen =
      detail::reshaped(gather(lined(x.detach(), n), -1, flatten(places, -2)), places.sizes());
  const Tensor positions =
      detail::reshaped(gather(places, -1, argmax(seen, -1, true)), joined(lead, count));
  return {picked(x, positions, n), positions};
}

std::tuple<Tensor, Tensor> adaptive_max_pool(const char* op, int n, const Tensor& x,
                                             const Dims& output_size) {
  const ErrorScope scope(op, x);
  const Shape count = adaptive_count(op, n, x, output_size), lengths = last_dims(x.sizes(), n);
  if (const auto w = even_windows(lengths, count)) return largest(op, n, x, *w, false);
  Tensor at = zeros({}, TensorOptions(kInt64).device(x.device()));
  for (int i = 0; i < n; ++i) {
    const UnevenWindows w(lengths[i], count[i]);
    Shape thin = Dims::filled(2 * n, 1);
    thin[i] = w.count, thin[n + i] = w.most;
    at = at * w.length + detail::reshaped(w.positions(x.device()), thin);
  }
  const int64_t windows = numel(count);
  return largest_at(x, detail::reshaped(at, {windows, at.numel() / windows}), count);
}

/// The first element of each window of a dimension: ⌊(i + u)·α⌋ − ⌊u·α⌋, the last one at the end.
/// u: (N, C) → (N, C, count) of int64.
Tensor random_begins(const Tensor& u, int64_t length, int64_t size, int64_t count) {
  Tensor last =
      full({u.size(0), u.size(1), 1}, length - size, TensorOptions(kInt64).device(u.device()));
  if (count == 1) return last;
  const double alpha = static_cast<double>(length - size) / static_cast<double>(count - 1);
  const Tensor from = unsqueeze(widened(u), -1);  // 16 bits do not count that far
  const Tensor begin =
      floor((arange(count - 1, from.options()) + from) * alpha) - floor(from * alpha);
  return cat({begin.to(kInt64), last}, -1);
}

std::tuple<Tensor, Tensor> fractional_max_pool(const char* op, int n, const Tensor& x,
                                               const Dims& kernel_size, const Dims& output_size,
                                               const Tensor& samples) {
  const ErrorScope scope(op, x, samples);
  const PolicyScope as_given(nullptr);
  check_rank(op, x, n);
  const Shape size = each_dim(op, "kernel_size", kernel_size, n, 1),
              count = each_dim(op, "output_size", output_size, n, 1),
              lengths = last_dims(x.sizes(), n);
  for (int i = 0; i < n; ++i)
    HALFTAPE_CHECK(count[i] <= lengths[i] && size[i] - 1 <= lengths[i] - count[i], op, ": ",
                   count[i], " windows of ", size[i],
                   " elements, one apart at least, do not fit into dimension ", i, " of ", lengths);
  const int64_t batch = x.dim() == n + 2 ? x.size(0) : 1, channels = x.size(-n - 1);
  HALFTAPE_CHECK(samples.sizes() == Shape({batch, channels, n}) && samples.is_floating_point(), op,
                 ": samples ", samples.dtype(), " ", samples.sizes(),
                 "; expected numbers of shape ", Shape{batch, channels, n});
  // Positions in the pooled dimensions made one: (N, C, count…, size…).
  Tensor at = zeros({1}, TensorOptions(kInt64).device(x.device()));
  for (int i = 0; i < n; ++i) {
    const Tensor u = select(samples.detach(), -1, n == 2 ? 1 - i : i);
    Shape begins{batch, channels}, inside{1, 1};
    for (int d = 0; d < 2 * n; ++d) {
      begins.push_back(d == i ? count[i] : 1);
      inside.push_back(d == n + i ? size[i] : 1);
    }
    at = at * lengths[i] +
         detail::reshaped(random_begins(u, lengths[i], size[i], count[i]), begins) +
         detail::reshaped(arange(size[i], at.options()), inside);
  }
  return largest_at(
      x, detail::reshaped(at, joined(leading_dims(x.sizes(), n), {numel(count), numel(size)})),
      count);
}

Tensor lp_pool(const CastOp& op, int n, const Tensor& x_in, double p, const Dims& kernel_size,
               const Dims& stride, bool ceil_mode) {
  const auto [x] = cast_inputs(op, x_in);
  check_rank(op.name, x, n);
  check_floating(op.name, x);
  HALFTAPE_CHECK(p != 0, op.name, ": norm_type must not be 0");
  const Windows w = pool_windows(op.name, n, kernel_size, stride, 0, 1);
  const Tensor powers = pow(widened(x), p);
  const Tensor sums =
      avg_pool_of(op.name, n, powers, w, ceil_mode, true, {}) * static_cast<double>(numel(w.size));
  // The root of 0 has no derivative; it is given none.
  const Tensor empty = sums == 0;
  return where(empty, 0, pow(where(empty, 1, sums), 1 / p)).to(x.dtype());
}

}  // namespace

#define HALFTAPE_POOLS(n)                                                                          \
  Tensor max_pool##n##d(const Tensor& x, const Dims& kernel_size, const Dims& stride,              \
                        const Dims& padding, const Dims& dilation, bool ceil_mode) {               \
    return std::get<0>(                                                                            \
        max_pool("max_pool" #n "d", n, x, kernel_size, stride, padding, dilation, ceil_mode));     \
  }                                                                                                \
  std::tuple<Tensor, Tensor> max_pool##n##d_with_indices(const Tensor& x, const Dims& kernel_size, \
                                                         const Dims& stride, const Dims& padding,  \
                                                         const Dims& dilation, bool ceil_mode) {   \
    return max_pool("max_pool" #n "d_with_indices", n, x, kernel_size, stride, padding, dilation,  \
                    ceil_mode);                                                                    \
  }                                                                                                \
  Tensor max_unpool##n##d(const Tensor& x, const Tensor& indices, const Dims& output_size) {       \
    return max_unpool("max_unpool" #n "d", n, x, indices, output_size);                            \
  }                                                                                                \
  Tensor adaptive_avg_pool##n##d(const Tensor& x, const Dims& output_size) {                       \
    return adaptive_avg_pool("adaptive_avg_pool" #n "d", n, x, output_size);                       \
  }                                                                                                \
  std::tuple<Tensor, Tensor> adaptive_max_pool##n##d(const Tensor& x, const Dims& output_size) {   \
    return adaptive_max_pool("adaptive_max_pool" #n "d", n, x, output_size);                       \
  }                                                                                                \
  Tensor lp_pool##n##d(const Tensor& x, double norm_type, const Dims& kernel_size,                 \
                       const Dims& stride, bool ceil_mode) {                                       \
    return lp_pool(cast_list::lp_pool##n##d, n, x, norm_type, kernel_size, stride, ceil_mode);     \
  }
HALFTAPE_POOLS(1)
HALFTAPE_POOLS(2)
HALFTAPE_POOLS(3)
#undef HALFTAPE_POOLS

std::tuple<Tensor, Tensor> fractional_max_pool2d(const Tensor& x, const Dims& kernel_size,
                                                 const Dims& output_size, const Tensor& samples) {
  return fractional_max_pool("fractional_max_pool2d", 2, x, kernel_size, output_size, samples);
}
std::tuple<Tensor, Tensor> fractional_max_pool3d(const Tensor& x, const Dims& kernel_size,
                                                 const Dims& output_size, const Tensor& samples) {
  return fractional_max_pool("fractional_max_pool3d", 3, x, kernel_size, output_size, samples);
}

Tensor avg_pool1d(const Tensor& x, const Dims& kernel_size, const Dims& stride, const Dims& padding,
                  bool ceil_mode, bool count_include_pad) {
  return avg_pool("avg_pool1d", 1, x, kernel_size, stride, padding, ceil_mode, count_include_pad);
}
Tensor avg_pool2d(const Tensor& x, const Dims& kernel_size, const Dims& stride, const Dims& padding,
                  bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor_override) {
  return avg_pool("avg_pool2d", 2, x, kernel_size, stride, padding, ceil_mode, count_include_pad,
                  divisor_override);
}
Tensor avg_pool3d(const Tensor& x, const Dims& kernel_size, const Dims& stride, const Dims& padding,
                  bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor_override) {
  const auto [in] = cast_inputs(cast_list::avg_pool3d, x);
  return avg_pool("avg_pool3d", 3, in, kernel_size, stride, padding, ceil_mode, count_include_pad,
                  divisor_override);
}

}  // namespace halftape
