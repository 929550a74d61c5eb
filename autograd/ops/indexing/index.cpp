#include "halftape/autograd/ops/indexing/index.h"

#include <algorithm>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/reduce.h"

namespace halftape {
namespace {

int check_index(const char* op, const Tensor& x, int64_t dim, const Tensor& index) {
  HALFTAPE_CHECK(index.dtype() == kInt64, op, ": index is ", index.dtype(), ", expected int64");
  HALFTAPE_CHECK(index.device() == x.device(), op, ": index on ", index.device(),
                 ", the tensor on ", x.device(), "; move one with .to(device)");
  HALFTAPE_CHECK(x.dim() == index.dim(), op, ": index ", index.sizes(), " and tensor ", x.sizes(),
                 " must have the same number of dimensions");
  const int d = wrap_dim(op, dim, static_cast<int>(x.dim()));
  for (int i = 0; i < x.dim(); ++i)
    HALFTAPE_CHECK(i == d || index.size(i) <= x.size(i), op, ": index ", index.sizes(),
                   " is larger than the tensor ", x.sizes(), " in dimension ", i);
  return d;
}

/// src, or the corner of it that an index of this shape reads.
Tensor check_source(const char* op, const Tensor& x, const Tensor& index, const Tensor& src) {
  HALFTAPE_CHECK(src.dtype() == x.dtype(), op, ": source is ", src.dtype(), ", the tensor ",
                 x.dtype());
  HALFTAPE_CHECK(src.device() == x.device(), op, ": source on ", src.device(), ", the tensor on ",
                 x.device(), "; move one with .to(device)");
  HALFTAPE_CHECK(src.dim() == index.dim(), op, ": source ", src.sizes(), " and index ",
                 index.sizes(), " must have the same number of dimensions");
  Tensor corner = src;
  for (int i = 0; i < index.dim(); ++i) {
    HALFTAPE_CHECK(index.size(i) <= src.size(i), op, ": index ", index.sizes(),
                   " is larger than the source ", src.sizes(), " in dimension ", i);
    if (index.size(i) < src.size(i)) corner = slice(corner, i, 0, index.size(i));
  }
  return corner;
}

/// The corner of `x` that an index of this shape reaches: all of `dim`, the index's sizes
/// elsewhere.
Array corner(const Array& x, int dim, const Shape& index) {
  Array y = x;
  for (int i = 0; i < x.dim(); ++i)
    if (i != dim) y = y.slice(i, 0, index[i]);
  return y;
}

/// g added into zeros of `shape` where it was gathered from.
Tensor gather_backward(const Tensor& g, const Shape& shape, int dim, const Tensor& index) {
  const Array y(shape, g.dtype(), g.device());
  backend(g.device()).fill(y, 0);
  backend(g.device()).scatter_add(corner(y, dim, index.sizes()), g.array(), dim, index.array());
  if (!records({&g})) return Tensor(y);
  return record("gather_backward", y, {&g},
                [dim, index = Saved(index)](Node& self, const Tensor& gg) -> Grads {
                  return {gather(gg, dim, index.tensor(self))};
                });
}

/// x reduced with src where the index points, without history.
template <class Op>
Tensor reduced_into(const Tensor& x, int dim, const Tensor& index, const Tensor& src,
                    IndexUse use = {"scatter_reduce"}) {
  const Array y = x.array().clone();
  backend(x.device())
      .scatter_reduce(ReduceOps::index<Op>(), corner(y, dim, index.sizes()), src.array(), dim,
                      index.array(), use);
  return Tensor(y);
}

/// Products. The derivative by a factor is the product of the others: that of those that are not 0,
/// times the other zeros. One such zero is the sum of them, and has a derivative itself; two are 0.
Tensor scatter_prod(const Tensor& x, int dim, const Tensor& index, const Tensor& src,
                    IndexUse use) {
  const Array y = reduced_into<formula::Prod>(x, dim, index, src, use).array();
  if (!records({&x, &src})) return Tensor(y);
  return record(
      use.op, y, {&x, &src},
      [dim, x = Saved(x), src = Saved(src), index = Saved(index)](Node& self,
                                                                  const Tensor& g) -> Grads {
        // In float64, whose range holds partial products that the result does not.
        const Tensor a = x.tensor(self).to(kFloat64), b = src.tensor(self).to(kFloat64),
                     at = index.tensor(self);
        const auto zeros = [](const Tensor& s) { return where(s == 0, s, 0); };
        const auto others = [](const Tensor& s) { return where(s == 0, 1, s); };
        const Tensor product = scatter_prod(others(a), dim, at, others(b), {"scatter_reduce"}),
                     sum = scatter_add(zeros(a), dim, at, zeros(b)),
                     count = scatter_add((a == 0).to(kInt64), dim, at, (b == 0).to(kInt64));
        const auto without = [&](const Tensor& s, const Tensor& all, const Tensor& zero_sum,
                                 const Tensor& zero_count) {
          const Tensor left = zero_count - (s == 0).to(kInt64);
          const Tensor zero = where(left == 0, 1, where(left == 1, zero_sum - zeros(s), 0));
          return all / others(s) * zero;
        };
        Grads grads(2);
        if (self.wants(0)) grads[0] = (g * without(a, product, sum, count)).to(g.dtype());
        const auto there = [&](const Tensor& t) { return gather(t, dim, at); };
        if (self.wants(1))
          grads[1] =
              (there(g) * without(b, there(product), there(sum), there(count))).to(g.dtype());
        return grads;
      });
}

/// Extremes, which share the gradient where they are equal.
template <class Op>
Tensor scatter_extremum(const Tensor& x, int dim, const Tensor& index, const Tensor& src,
                        IndexUse use) {
  Tensor best = reduced_into<Op>(x, dim, index, src, use);
  if (!records({&x, &src})) return best;
  return record(use.op, best.array(), {&x, &src},
                [dim, x = Saved(x), src = Saved(src), index = Saved(index), best = Saved(best)](
                    Node& self, const Tensor& g) -> Grads {
                  const Tensor at = index.tensor(self), y = best.tensor(self);
                  const auto hits = [&](const Tensor& from, const Tensor& top) {
                    return where(top == top, from == top, from != from).to(g.dtype());
                  };
                  const Tensor a = hits(x.tensor(self).detach(), y),
                               b = hits(src.tensor(self).detach(), gather(y, dim, at)),
                               share = g / scatter_add(a, dim, at, b);
                  return {a * share, b * gather(share, dim, at)};
                });
}

/// The start value of a reduction.
template <class Op>
Scalar start_of(Dtype dtype) {
  return visit(dtype, [](auto t) -> Scalar {
    using T = typename decltype(t)::type;
    if constexpr (std::is_integral_v<T>) return Op::template start<T>();
    return Op::template start<double>();
  });
}

/// A 0-dim tensor as one of one element.
Tensor lifted(const Tensor& x) { return x.dim() == 0 ? unsqueeze(x, 0) : x; }
Tensor lowered(const Tensor& y, const Tensor& like) {
  return like.dim() == 0 ? detail::reshaped(y, {}) : y;
}
bool any_number(std::initializer_list<const Tensor*> all) {
  return std::any_of(all.begin(), all.end(), [](auto* t) { return t->dim() == 0; });
}

/// A list of slice numbers as the index of gather and scatter: it repeats over all of a slice.
Tensor over_slices(const char* op, const Tensor& index, const Tensor& x, int dim) {
  HALFTAPE_CHECK(index.dtype() == kInt64 || index.dtype() == kInt32, op, ": index is ",
                 index.dtype(), ", expected int64 or int32");
  HALFTAPE_CHECK(index.dim() <= 1, op, ": index ", index.sizes(), " must have one dimension");
  Shape full = x.sizes(), thin = Dims::filled(full.size(), 1);
  full[dim] = thin[dim] = index.numel();
  return expand(detail::reshaped(index.to(kInt64), thin), full);
}

int dim_of(const char* op, const Tensor& x, int64_t dim) {
  return wrap_dim(op, dim, static_cast<int>(x.dim()));
}

void check_slices(const char* op, const Tensor& x, int dim, const Tensor& index,
                  const Tensor& source) {
  bool fits = source.dim() == x.dim() && source.size(dim) == index.numel();
  for (int i = 0; fits && i < x.dim(); ++i) fits = i == dim || source.size(i) == x.size(i);
  HALFTAPE_CHECK(fits, op, ": source ", source.sizes(), " for ", index.numel(),
                 " slices in dimension ", dim, " of ", x.sizes());
}

}  // namespace

Tensor detail::gather(const Tensor& x, int64_t dim, const Tensor& index, IndexUse use) {
  if (any_number({&x, &index}))
    return lowered(detail::gather(lifted(x), dim, lifted(index), use), index);
  const int d = check_index(use.op, x, dim, index);
  const Array y(index.sizes(), x.dtype(), x.device());
  backend(x.device()).gather(y, corner(x.array(), d, index.sizes()), d, index.array(), use);
  if (!records({&x})) return Tensor(y);
  return record("gather", y, {&x},
                [d, shape = x.sizes(), index = Saved(index)](Node& self, const Tensor& g) -> Grads {
                  return {gather_backward(g, shape, d, index.tensor(self))};
                });
}

namespace {
/// x with src placed, or added, where the index points.
Tensor scattered(bool add, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& whole,
                 IndexUse use) {
  if (any_number({&x, &index, &whole}))
    return lowered(scattered(add, lifted(x), dim, lifted(index), lifted(whole), use), x);
  const int d = check_index(use.op, x, dim, index);
  const Tensor src = check_source(use.op, x, index, whole);
  const Array y = x.array().clone(), to = corner(y, d, index.sizes());
  if (add)
    backend(x.device()).scatter_add(to, src.array(), d, index.array(), use);
  else
    backend(x.device()).scatter(to, src.array(), d, index.array(), use);
  if (!records({&x, &src})) return Tensor(y);
  return record(add ? "scatter_add" : "scatter", y, {&x, &src},
                [add, d, index = Saved(index)](Node& self, const Tensor& g) -> Grads {
                  Grads grads(2);
                  if (self.wants(0)) grads[0] = add ? g : scatter(g, d, index.tensor(self), 0);
                  if (self.wants(1)) grads[1] = gather(g, d, index.tensor(self));
                  return grads;
                });
}
}  // namespace

Tensor detail::scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                       IndexUse use) {
  return scattered(false, x, dim, index, src, use);
}
Tensor detail::scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                           IndexUse use) {
  return scattered(true, x, dim, index, src, use);
}

namespace {
enum class Joined : uint8_t { Sum, Prod, Mean, Max, Min };

/// Of tensors with dimensions, in a dtype that can hold the sums.
Tensor joined(Joined how, const Tensor& x, int dim, const Tensor& index, const Tensor& src,
              bool include_self, IndexUse use) {
  const auto forget = [&](const Tensor& self, Scalar start) {
    return include_self ? self : scatter(self, dim, index, start);
  };
  switch (how) {
    case Joined::Sum:
      return detail::scatter_add(forget(x, 0), dim, index, src, use);
    case Joined::Prod:
      return scatter_prod(forget(x, 1), dim, index, src, use);
    case Joined::Max:
      return scatter_extremum<formula::Max>(forget(x, start_of<formula::Max>(x.dtype())), dim,
                                            index, src, use);
    case Joined::Min:
      return scatter_extremum<formula::Min>(forget(x, start_of<formula::Min>(x.dtype())), dim,
                                            index, src, use);
    case Joined::Mean:
      break;
  }
  HALFTAPE_CHECK(x.dtype() != kBool, use.op, ": mean of a bool tensor; convert it with ",
                 ".to(kFloat32) first");
  const Tensor sum = detail::scatter_add(forget(x, 0), dim, index, src, use),
               count = scatter_add(forget(ones_like(x), 0), dim, index, ones_like(src));
  return x.is_floating_point() ? sum / count : div(sum, count, "floor");
}

Tensor scatter_joined(Joined how, const Tensor& x, int64_t dim, const Tensor& index,
                      const Tensor& whole, bool include_self, IndexUse use) {
  if (any_number({&x, &index, &whole}))
    return lowered(
        scatter_joined(how, lifted(x), dim, lifted(index), lifted(whole), include_self, use), x);
  const int d = check_index(use.op, x, dim, index);
  const Tensor src = check_source(use.op, x, index, whole);
  const Dtype wide = compute_dtype(x.dtype());
  return joined(how, x.to(wide), d, index, src.to(wide), include_self, use).to(x.dtype());
}
}  // namespace

Tensor detail::flat_index(const TensorList& indices, const Shape& sizes, IndexUse use) {
  std::vector<Array> arrays;
  for (const Tensor& index : indices) arrays.push_back(index.array());
  const Array y({indices[0].numel()}, kInt64, indices[0].device());
  backend(y.device()).flat_index(y, arrays, sizes, use);
  return Tensor(y);
}

void detail::check_rows(const char* op, const Tensor& index, int64_t rows) {
  const Tensor column = expand(zeros({1}, TensorOptions(index.device())), {rows});
  detail::gather(column, 0, index.to(kInt64), {op});
}

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index) {
  check_defined("gather", x, index);
  return detail::gather(x, dim, index, {"gather"});
}
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  check_defined("scatter", x, index, src);
  return detail::scatter(x, dim, index, src, {"scatter"});
}
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Scalar value) {
  check_defined("scatter", x, index);
  return scatter(x, dim, index, expand(detail::number_like("scatter", x, value), index.sizes()));
}

Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                      std::string_view reduce, bool include_self) {
  const ErrorScope scope("scatter_reduce", x, index, src);
  constexpr std::pair<std::string_view, Joined> ways[] = {{"sum", Joined::Sum},
                                                          {"prod", Joined::Prod},
                                                          {"mean", Joined::Mean},
                                                          {"amax", Joined::Max},
                                                          {"amin", Joined::Min}};
  const auto* way = std::find_if(std::begin(ways), std::end(ways),
                                 [&](const auto& w) { return w.first == reduce; });
  HALFTAPE_CHECK(way != std::end(ways), "scatter_reduce: reduce is \"", reduce,
                 "\", expected \"sum\", \"prod\", \"mean\", \"amax\" or \"amin\"");
  return scatter_joined(way->second, x, dim, index, src, include_self, {"scatter_reduce"});
}

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
               std::string_view reduce) {
  const ErrorScope scope("scatter", x, index, src);
  HALFTAPE_CHECK(reduce == "add" || reduce == "multiply", "scatter: reduce is \"", reduce,
                 "\", expected \"add\" or \"multiply\"; scatter_reduce() has more");
  return scatter_joined(reduce == "add" ? Joined::Sum : Joined::Prod, x, dim, index, src, true,
                        {"scatter"});
}
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Scalar value,
               std::string_view reduce) {
  const ErrorScope scope("scatter", x, index);
  return scatter(x, dim, index, expand(detail::number_like("scatter", x, value), index.sizes()),
                 reduce);
}

Tensor scatter_add(const Tensor& x_in, int64_t dim, const Tensor& index, const Tensor& src_in) {
  check_defined("scatter_add", x_in, index, src_in);
  const auto [x, src] = cast_inputs(cast_list::scatter_add, x_in, src_in);
  return detail::scatter_add(x, dim, index, src, {"scatter_add"});
}

Tensor index_select(const Tensor& in, int64_t dim, const Tensor& index) {
  const ErrorScope scope("index_select", in, index);
  HALFTAPE_CHECK(in.dim() > 0 || index.numel() == 1, "index_select: index ", index.sizes(),
                 " into a 0-dim tensor; expected one number");
  const int d = dim_of("index_select", in, dim);
  const Tensor x = lifted(in), at = over_slices("index_select", index, x, d);
  if (at.numel() == 0) detail::check_rows("index_select", index, x.size(d));
  return lowered(detail::gather(x, d, at, {"index_select"}), in);
}

Tensor index_add(const Tensor& in, int64_t dim, const Tensor& index, const Tensor& source_in,
                 Scalar alpha) {
  const ErrorScope scope("index_add", in, index, source_in);
  HALFTAPE_CHECK(in.is_floating_point() || !alpha.is_floating_point(),
                 "index_add: alpha = ", alpha.to_double(), " for an ", in.dtype(), " tensor");
  const IndexUse use{"index_add"};
  const int d = dim_of(use.op, in, dim);
  HALFTAPE_CHECK(in.dim() == source_in.dim(), "index_add: source ", source_in.sizes(),
                 " for a tensor ", in.sizes());
  const Tensor x = lifted(in), source = lifted(source_in);
  check_slices(use.op, x, d, index, source);
  const Tensor at = over_slices(use.op, index, x, d);
  if (alpha.to_double() == 1) return lowered(detail::scatter_add(x, d, at, source, use), in);
  HALFTAPE_CHECK(source.dtype() == x.dtype(), "index_add: source is ", source.dtype(),
                 ", the tensor ", x.dtype());
  // Products of halves are kept in float32, so that the sum rounds once.
  const Tensor wide = widened(x), product = widened(source) * alpha;
  return lowered(detail::scatter_add(wide, d, at, product, use).to(x.dtype()), in);
}

Tensor index_copy(const Tensor& in, int64_t dim, const Tensor& index, const Tensor& source_in) {
  const ErrorScope scope("index_copy", in, index, source_in);
  HALFTAPE_CHECK(index.dtype() == kInt64, "index_copy: index is ", index.dtype(),
                 ", expected int64");
  const int d = dim_of("index_copy", in, dim);
  const Tensor x = lifted(in), source = lifted(source_in);
  check_slices("index_copy", x, d, index, source);
  const Tensor at = over_slices("index_copy", index, x, d);
  return lowered(detail::scatter(x, d, at, source, {"index_copy"}), in);
}

Tensor index_fill(const Tensor& in, int64_t dim, const Tensor& index, const Tensor& value) {
  const ErrorScope scope("index_fill", in, index, value);
  HALFTAPE_CHECK(value.dim() == 0, "index_fill: value ", value.sizes(), " must be 0-dim");
  HALFTAPE_CHECK(index.dtype() == kInt64, "index_fill: index is ", index.dtype(),
                 ", expected int64");
  HALFTAPE_CHECK(index.dim() <= 1, "index_fill: index ", index.sizes(), " must have one dimension");
  const int d = dim_of("index_fill", in, dim);
  const Tensor x = lifted(in);
  const Tensor at = detail::flat_index({index}, {x.size(d)}, {"index_fill"}),
               none = zeros({x.size(d)}, TensorOptions(kBool).device(x.device()));
  // Each slice takes the value once, however often it is named.
  Shape thin = Dims::filled(x.sizes().size(), 1);
  thin[d] = x.size(d);
  const Tensor filled = detail::reshaped(scatter(none, 0, at, true), thin);
  return lowered(where(filled, value.to(x.dtype()), x), in);
}
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, Scalar value) {
  const ErrorScope scope("index_fill", x, index);
  return index_fill(x, dim, index, detail::number_like("index_fill", x, value));
}

Tensor take(const Tensor& x, const Tensor& index) {
  const ErrorScope scope("take", x, index);
  HALFTAPE_CHECK(index.dtype() == kInt64, "take: index is ", index.dtype(), ", expected int64");
  const Tensor at = detail::flat_index({index}, {x.numel()}, {"take"});
  return detail::reshaped(gather(detail::reshaped(x, {x.numel()}), 0, at), index.sizes());
}

Tensor take_along_dim(const Tensor& x, const Tensor& index, std::optional<int64_t> dim) {
  const ErrorScope scope("take_along_dim", x, index);
  const IndexUse use{"take_along_dim"};
  if (!dim)
    return detail::gather(detail::reshaped(x, {x.numel()}), 0,
                          detail::reshaped(index, {index.numel()}), use);
  HALFTAPE_CHECK(x.dim() == index.dim(), "take_along_dim: index ", index.sizes(), " and tensor ",
                 x.sizes(), " must have the same number of dimensions");
  const int d = dim_of(use.op, x, *dim);
  if (x.dim() == 0) return detail::gather(x, d, index, use);
  Shape from = x.sizes(), at = index.sizes();
  from[d] = at[d] = 1;
  from = at = broadcast(use.op, from, at);
  from[d] = x.size(d), at[d] = index.size(d);
  return detail::gather(expand(x, from), d, expand(index, at), use);
}

Tensor one_hot(const Tensor& classes, int64_t num_classes) {
  const ErrorScope scope("one_hot", classes);
  HALFTAPE_CHECK(classes.dtype() == kInt64, "one_hot: classes are ", classes.dtype(),
                 ", expected int64");
  HALFTAPE_CHECK(num_classes > 0 || (num_classes == -1 && classes.numel() > 0),
                 "one_hot: num_classes is ", num_classes, " for a tensor ", classes.sizes(),
                 "; expected a positive number, or -1 where there is a largest class");
  const int64_t count =
      num_classes > 0 ? num_classes : checked_add(amax(classes).item<int64_t>(), 1);
  Shape shape = classes.sizes();
  shape.push_back(std::max<int64_t>(count, 0));
  const Tensor at = unsqueeze(classes, -1);
  return detail::scatter(Tensor(full(shape, 0, kInt64, classes.device())), -1, at,
                         expand(detail::number_like("one_hot", classes, 1), at.sizes()),
                         {"one_hot", "class"});
}

}  // namespace halftape
