#include "halftape/autograd/ops/layout/shape.h"

#include <algorithm>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"

namespace halftape {
namespace {

/// Repeats each block of `block` slices of dimension d `times` times.
Tensor repeat_blocks(const Tensor& x, int d, int64_t block, int64_t times) {
  const int64_t inside = numel(x.sizes().slice(d + 1)) * block,
                blocks = inside > 0 ? x.numel() / inside : 0;
  Shape out = x.sizes();
  out[d] = checked_mul(out[d], times);
  const Tensor stacked = detail::reshaped(x, {blocks, 1, inside});
  return detail::reshaped(clone(expand(stacked, {blocks, times, inside})), out);
}

/// Moves the last `by` slices of dimension d to its start.
Tensor roll_along(const Tensor& x, int d, int64_t by) {
  const int64_t n = x.size(d);
  const Array y = empty_like(x.array());
  backend(x.device()).copy(y.slice(d, by, n), x.array().slice(d, 0, n - by));
  backend(x.device()).copy(y.slice(d, 0, by), x.array().slice(d, n - by, n));
  return record("roll", y, {&x}, [d, back = n - by](Node&, const Tensor& g) -> Grads {
    return {roll_along(g, d, back)};
  });
}

}  // namespace

Tensor repeat(const Tensor& x, const Shape& repeats) {
  const ErrorScope scope("repeat", x);
  const int lead = repeats.size() - static_cast<int>(x.dim());
  HALFTAPE_CHECK(lead >= 0, "repeat: ", repeats, " names ", repeats.size(), " of ", x.dim(),
                 " dimensions");
  for (int64_t times : repeats)
    HALFTAPE_CHECK(times >= 0, "repeat: ", times, " times in ", repeats);
  // A repeated dimension of n becomes (times, n), seen often by a stride of 0; the copy joins them.
  Shape thin, wide, joined, sizes = Dims::filled(lead, 1);
  for (int64_t n : x.sizes()) sizes.push_back(n);
  int dims = 0;
  for (int d = 0; d < sizes.size(); ++d) dims += (sizes[d] > 1) + (repeats[d] > 1);
  for (int d = 0; d < sizes.size() && dims <= kMaxDims; ++d) {
    joined.push_back(checked_mul(repeats[d], sizes[d]));
    if (repeats[d] > 1) thin.push_back(1), wide.push_back(repeats[d]);
    if (sizes[d] > 1) thin.push_back(sizes[d]), wide.push_back(sizes[d]);
  }
  if (dims <= kMaxDims && numel(joined) > 0)
    return detail::reshaped(clone(expand(detail::reshaped(x, thin), wide)), joined);
  // More dimensions than a shape holds: repeat one after the other.
  Tensor y = detail::reshaped(x, sizes);
  for (int d = 0; d < sizes.size(); ++d)
    if (repeats[d] != 1) y = repeat_blocks(y, d, sizes[d], repeats[d]);
  return y;
}

Tensor tile(const Tensor& x, const Shape& repeats) {
  const ErrorScope scope("tile", x);
  Shape all = Dims::filled(std::max(0, static_cast<int>(x.dim()) - repeats.size()), 1);
  for (int64_t times : repeats) all.push_back(times);
  return repeat(x, all);
}

Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim) {
  const ErrorScope scope("repeat_interleave", x);
  HALFTAPE_CHECK(repeats >= 0, "repeat_interleave: ", repeats, " times");
  if (!dim || x.dim() == 0) {
    if (dim) wrap_dim("repeat_interleave", *dim, 0);
    return repeat_blocks(detail::reshaped(x, {x.numel()}), 0, 1, repeats);
  }
  return repeat_blocks(x, detail::dim_of("repeat_interleave", x, *dim), 1, repeats);
}

Tensor repeat_interleave(const Tensor& repeats) {
  const ErrorScope scope("repeat_interleave", repeats);
  HALFTAPE_CHECK(repeats.dim() == 1 && (repeats.dtype() == kInt64 || repeats.dtype() == kInt32),
                 "repeat_interleave: repeats ", repeats.sizes(), " of ", repeats.dtype(),
                 "; expected one dimension of int64");
  const std::vector<int64_t> times = repeats.to_vector<int64_t>();
  int64_t count = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    HALFTAPE_CHECK(times[i] >= 0, "repeat_interleave: repeats ", times[i], " at position ", i,
                   " is negative");
    count = checked_add(count, times[i]);
  }
  const Array index(count, kInt64, Device(kCPU));
  int64_t* to = index.data<int64_t>();
  for (size_t i = 0; i < times.size(); ++i) to = std::fill_n(to, times[i], static_cast<int64_t>(i));
  return Tensor(index.to(repeats.device()));
}

Tensor repeat_interleave(const Tensor& in, const Tensor& repeats, std::optional<int64_t> dim) {
  const ErrorScope scope("repeat_interleave", in, repeats);
  const Tensor x = dim && in.dim() > 0 ? in : detail::reshaped(in, {in.numel()});
  const int d = wrap_dim("repeat_interleave", dim.value_or(0), static_cast<int>(x.dim()));
  HALFTAPE_CHECK(repeats.dim() <= 1 && (repeats.numel() == 1 || repeats.numel() == x.size(d)),
                 "repeat_interleave: repeats ", repeats.sizes(), " for the ", x.size(d),
                 " slices of dimension ", d, " of ", x.sizes());
  const Tensor each_one = expand(detail::reshaped(repeats, {repeats.numel()}), {x.size(d)});
  return index_select(x, d, repeat_interleave(each_one));
}

Tensor flip(const Tensor& x, const Dims& dims) {
  check_defined("flip", x);
  const int rank = static_cast<int>(x.dim());
  const Dims turned = dims.empty() ? dims : wrap_dims("flip", dims, rank);
  // Backwards is a stride below zero, counted from the last element.
  Strides strides = x.strides();
  int64_t offset = x.array().offset();
  for (int64_t d : turned) {
    const int i = static_cast<int>(d);
    offset += std::max<int64_t>(x.size(i) - 1, 0) * strides[i];
    strides[i] = -strides[i];
  }
  return record("flip", x.array().as_strided(x.sizes(), strides, offset).clone(), {&x},
                [turned](Node&, const Tensor& g) -> Grads { return {flip(g, turned)}; });
}
Tensor fliplr(const Tensor& x) {
  const ErrorScope scope("fliplr", x);
  HALFTAPE_CHECK(x.dim() >= 2, "fliplr: of a tensor ", x.sizes(), "; expected two dimensions");
  return flip(x, {1});
}
Tensor flipud(const Tensor& x) {
  const ErrorScope scope("flipud", x);
  HALFTAPE_CHECK(x.dim() >= 1, "flipud: of a 0-dim tensor");
  return flip(x, {0});
}

Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims) {
  const ErrorScope scope("roll", x);
  if (dims.empty() && shifts.size() == 1)
    return detail::reshaped(roll(detail::reshaped(x, {x.numel()}), shifts, {0}), x.sizes());
  HALFTAPE_CHECK(shifts.size() == dims.size() && !shifts.empty(), "roll: shifts ", shifts,
                 " for dimensions ", dims);
  Tensor y = x;
  for (int i = 0; i < dims.size(); ++i) {
    const int d = detail::dim_of("roll", x, dims[i]);
    const int64_t n = x.size(d), by = n == 0 ? 0 : (shifts[i] % n + n) % n;
    y = roll_along(y, d, by);
  }
  return y;
}
Tensor roll(const Tensor& x, int64_t shift, std::optional<int64_t> dim) {
  const ErrorScope scope("roll", x);
  return roll(x, Dims{shift}, dim ? Dims{*dim} : Dims());
}

Tensor rot90(const Tensor& x, int64_t k, const Dims& dims) {
  const ErrorScope scope("rot90", x);
  HALFTAPE_CHECK(dims.size() == 2 && x.dim() >= 2, "rot90: dimensions ", dims, " of ", x.sizes(),
                 "; expected two");
  const int a = detail::dim_of("rot90", x, dims[0]), b = detail::dim_of("rot90", x, dims[1]);
  HALFTAPE_CHECK(a != b, "rot90: dimension ", a, " appears twice in ", dims);
  switch ((k % 4 + 4) % 4) {
    case 1:
      return transpose(flip(x, {b}), a, b);
    case 2:
      return flip(x, {a, b});
    case 3:
      return transpose(flip(x, {a}), a, b);
    default:
      return clone(x);
  }
}

}  // namespace halftape
