#include "halftape/autograd/indexing.h"

#include <cstring>
#include <utility>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/mask.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/machine/warn.h"

namespace halftape {

using indexing::Ellipsis;
using indexing::EllipsisIndexType;
using indexing::None;
using indexing::Slice;
using indexing::TensorIndex;

TensorIndex::TensorIndex(const char* dots) : value_(Ellipsis) {
  HALFTAPE_CHECK(std::strcmp(dots, "...") == 0,
                 "index: Expected \"...\" to represent an ellipsis index, but got \"", dots, "\"");
}

namespace indexing {

std::ostream& operator<<(std::ostream& out, const Slice& slice) {
  return out << slice.start() << ':' << slice.stop() << ':' << slice.step();
}

std::ostream& operator<<(std::ostream& out, const TensorIndex& index) {
  if (index.is_none()) return out << "None";
  if (index.is_ellipsis()) return out << "...";
  if (index.is_integer()) return out << index.integer();
  if (index.is_boolean()) return out << (index.boolean() ? "true" : "false");
  if (index.is_slice()) return out << index.slice();
  return out << index.tensor();
}

std::ostream& operator<<(std::ostream& out, const std::vector<TensorIndex>& indices) {
  const char* between = "(";
  for (const TensorIndex& index : indices) out << std::exchange(between, ", ") << index;
  return out << (indices.empty() ? "()" : ")");
}

}  // namespace indexing

namespace {

/// The part of an index that gives a view: numbers, slices and None, one per dimension.
using Basic = std::vector<TensorIndex>;

/// Indices of one shape into dimensions of the view.
struct Picks {
  Dims dims;
  TensorList indices;
};

struct Plan {
  Basic basic;
  Picks picks;
};

bool is_mask(const Tensor& t) { return t.dtype() == kBool || t.dtype() == kUInt8; }

/// The number of dimensions that an index consumes.
int64_t consumed(const TensorIndex& i) {
  if (const auto* t = std::get_if<Tensor>(&i.value())) return is_mask(*t) ? t->dim() : 1;
  return std::holds_alternative<int64_t>(i.value()) || std::holds_alternative<Slice>(i.value());
}

/// Reads the indices from left to right, as PyTorch does: `from` counts dimensions of x, `at` those
/// of the view.
class Reader {
 public:
  Reader(const char* op, const Tensor& x) : op_(op), x_(x) {}

  Plan read(const std::vector<TensorIndex>& indices) {
    int64_t named = 0, dots = 0;
    for (const TensorIndex& i : indices) {
      named += consumed(i);
      dots += std::holds_alternative<EllipsisIndexType>(i.value());
    }
    HALFTAPE_CHECK(named <= x_.dim(), op_, x_.dim() == 0 ? ": invalid index:" : ":",
                   " indices for ", named, " dimensions of a tensor ", x_.sizes());
    HALFTAPE_CHECK(dots <= 1, op_, ": \"...\" appears ", dots, " times");
    rest_ = x_.dim() - named;
    for (const TensorIndex& i : indices) std::visit([&](const auto& v) { take(v); }, i.value());
    Shape common;
    for (const Tensor& t : plan_.picks.indices) common = broadcast(op_, common, t.sizes());
    for (Tensor& t : plan_.picks.indices) t = expand(t, common);
    return std::move(plan_);
  }

 private:
  void take(std::nullopt_t) { add(None); }
  void take(EllipsisIndexType) {
    for (int64_t i = 0; i < rest_; ++i) take(Slice());
  }
  void take(int64_t number) {
    const int64_t n = x_.size(from_);
    HALFTAPE_CHECK(number >= -n && number < n, op_, ": index ", number,
                   " is out of bounds for dimension ", from_, " with size ", n, " of ", x_.sizes(),
                   "; expected one in [", -n, ", ", n, ")");
    plan_.basic.emplace_back(number);
    ++from_;
  }
  void take(bool yes) {  // a new dimension, of which it picks one element or none
    pick(Tensor(full({yes ? 1 : 0}, 0, kInt64, x_.device())));
    add(None);
  }
  void take(const Slice& s) {
    HALFTAPE_CHECK(s.step() > 0, op_, ": the step ", s.step(),
                   " of a slice must be positive; use flip()");
    add(s);
    ++from_;
  }
  void take(const Tensor& t) {
    if (t.dtype() == kUInt8)
      warn(std::string(op_) + ": indexing with dtype torch.uint8 is now deprecated, please use a " +
           "dtype torch.bool instead");
    if (is_mask(t) && t.dim() == 0) return take(t.item<int64_t>() != 0);
    if (is_mask(t)) return take_mask(t);
    if (t.dim() == 0 && !t.is_floating_point()) return take(t.item<int64_t>());
    HALFTAPE_CHECK(t.dtype() == kInt64 || t.dtype() == kInt32, op_, ": an index tensor is ",
                   t.dtype(), ", expected int64, int32 or bool");
    pick(t.to(x_.device()).to(kInt64));
    take(Slice());
  }
  void take_mask(const Tensor& mask) {
    for (int d = 0; d < mask.dim(); ++d)
      HALFTAPE_CHECK(mask.size(d) == x_.size(from_ + d), op_, ": mask ", mask.sizes(),
                     " at dimension ", from_, " of ", x_.sizes(), ": ", mask.size(d), " against ",
                     x_.size(from_ + d));
    for (const Tensor& column : where(mask.to(x_.device()))) {
      pick(column);
      take(Slice());
    }
  }
  void add(const TensorIndex& i) {
    plan_.basic.push_back(i);
    ++at_;
  }
  void pick(const Tensor& index) {
    plan_.picks.dims.push_back(at_);
    plan_.picks.indices.push_back(index);
  }

  const char* op_;
  const Tensor& x_;
  int64_t from_ = 0, at_ = 0, rest_ = 0;
  Plan plan_;
};

Tensor view_of(const Tensor& x, const Basic& basic) {
  Tensor y = x;
  int64_t d = 0;
  for (const TensorIndex& i : basic) {
    if (const auto* number = std::get_if<int64_t>(&i.value())) {
      y = select(y, d, *number);
    } else if (const auto* s = std::get_if<Slice>(&i.value())) {
      if (!s->is_full()) y = slice(y, d, s->start(), s->stop(), s->step());
      ++d;
    } else {
      y = unsqueeze(y, d++);
    }
  }
  return y;
}

/// x with its view replaced by v.
Tensor put_view(const Tensor& x, const Basic& basic, const Tensor& v) {
  const Array y = x.array().clone();
  backend(x.device()).copy(view_of(Tensor(y), basic).array(), v.array());
  return record("index_put", y, {&x, &v},
                [basic, shape = v.sizes()](Node& self, const Tensor& g) -> Grads {
                  Grads grads(2);
                  if (self.wants(0)) grads[0] = put_view(g, basic, zeros(shape, g.options()));
                  if (self.wants(1)) grads[1] = view_of(g, basic);
                  return grads;
                });
}

/// A tensor laid out for picking: the picked dimensions side by side from `at` on, merged into one.
struct Rows {
  Dims order;      // of the dimensions; empty: unchanged
  int at = 0;      // the picked dimension
  Shape unmerged;  // the shape before the picked dimensions became one
  Tensor rows;     // the tensor after that
  Tensor numbers;  // of the rows to pick, one-dimensional
  Shape picked;    // the shape of the result

  Rows(const char* op, const Tensor& x, const Picks& picks) {
    const int count = picks.dims.size();
    at = static_cast<int>(picks.dims.front());
    if (picks.dims.back() - at != count - 1) {
      order = picks.dims;
      for (int d = 0; d < x.dim(); ++d)
        if (!picks.dims.contains(d)) order.push_back(d);
      at = 0;
    }
    const Tensor turned = order.empty() ? x : permute(x, order);
    unmerged = turned.sizes();
    Shape one, sizes;
    for (int d = 0; d < unmerged.size(); ++d) {
      const bool inside = d >= at && d < at + count;
      if (inside) sizes.push_back(unmerged[d]);
      if (inside && d > at)
        one[at] = checked_mul(one[at], unmerged[d]);
      else
        one.push_back(unmerged[d]);
    }
    rows = detail::reshaped(turned, one);
    HALFTAPE_CHECK(numel(sizes) > 0 || picks.indices[0].numel() == 0, op, ": an index is out of ",
                   "bounds for dimension with size 0 of ", x.sizes());
    numbers = detail::flat_index(picks.indices, sizes, {op});
    picked = with(picks.indices[0].sizes());
  }

  /// The shape of the rows with others in the place of the picked dimension.
  Shape with(const Shape& middle) const {
    Shape shape;
    for (int d = 0; d < rows.dim(); ++d) {
      if (d != at) shape.push_back(rows.size(d));
      if (d == at)
        for (int64_t n : middle) shape.push_back(n);
    }
    return shape;
  }
};

Tensor pick(const Tensor& x, const Picks& picks) {
  const Rows r("index", x, picks);
  return detail::reshaped(index_select(r.rows, r.at, r.numbers), r.picked);
}

/// The values of an assignment in the shape of their places; they may have leading ones too many.
Tensor fitted(const Tensor& values, const Shape& places) {
  Shape sizes = values.sizes();
  while (sizes.size() > places.size() && sizes[0] == 1) sizes.erase(0);
  HALFTAPE_CHECK(broadcasts_to(sizes, places), "index_put: shape mismatch: values ", sizes,
                 " do not broadcast to the indexed shape ", places);
  return expand(detail::reshaped(values, sizes), places);
}

Tensor put(const Tensor& x, const Picks& picks, const Tensor& values, bool accumulate) {
  const Rows r("index_put", x, picks);
  const Tensor lined = detail::reshaped(fitted(values, r.picked), r.with({r.numbers.numel()}));
  Tensor y = detail::reshaped(accumulate ? index_add(r.rows, r.at, r.numbers, lined)
                                         : index_copy(r.rows, r.at, r.numbers, lined),
                              r.unmerged);
  if (r.order.empty()) return y;
  Dims back = r.order;
  for (int d = 0; d < back.size(); ++d) back[static_cast<int>(r.order[d])] = d;
  return contiguous(permute(y, back));
}

}  // namespace

Tensor index(const Tensor& x, const std::vector<TensorIndex>& indices) {
  const ErrorScope scope("index", x);
  const Plan plan = Reader("index", x).read(indices);
  Tensor y = view_of(x, plan.basic);
  if (y.is_same(x) && plan.picks.indices.empty())  // a view of its own, not x itself
    y = record(
        "view", x.array(), {&x}, [](Node&, const Tensor& g) -> Grads { return {g}; }, &x);
  return plan.picks.indices.empty() ? y : pick(y, plan.picks);
}

Tensor index_put(const Tensor& x_in, const std::vector<TensorIndex>& indices,
                 const Tensor& values_in, bool accumulate) {
  const auto [x, given] = cast_inputs(cast_list::index_put, x_in, values_in);
  HALFTAPE_CHECK(given.device() == x.device() || given.dim() == 0, "index_put: values on ",
                 given.device(), ", the tensor on ", x.device(), "; move one with .to(device)");
  const Tensor values = given.to(x.device());
  const Plan plan = Reader("index_put", x).read(indices);
  const Tensor there = view_of(x, plan.basic);
  if (plan.picks.indices.empty()) {
    const Tensor v = fitted(values.to(x.dtype()), there.sizes());
    return put_view(x, plan.basic, accumulate ? there + v : v);
  }
  HALFTAPE_CHECK(values.dtype() == x.dtype(), "index_put: values are ", values.dtype(),
                 ", the tensor ", x.dtype(), "; convert them with .to(dtype)");
  const Tensor changed = put(there, plan.picks, values, accumulate);
  const bool whole = there.is_same(x);
  return whole ? changed : put_view(x, plan.basic, changed);
}

Tensor index_put(const Tensor& x, const std::vector<TensorIndex>& indices, Scalar value,
                 bool accumulate) {
  const ErrorScope scope("index_put", x);
  return index_put(x, indices, detail::number_like("index_put", x, value), accumulate);
}

Indexed::Indexed(Tensor copy, Tensor x, std::vector<TensorIndex> indices)
    : Tensor(std::move(copy)),
      x_(std::move(x)),
      indices_(std::make_shared<const std::vector<TensorIndex>>(std::move(indices))) {}

Tensor Indexed::operator=(const Tensor& values) && {  // NOLINT: as declared
  if (x_.defined())
    x_.index_put_(*indices_, values);
  else if (!values.is_same(*this))
    copy_(values);
  return values;
}
Tensor Indexed::operator=(Scalar value) && {  // NOLINT
  if (!x_.defined()) return fill_(value);
  return std::move(*this) = detail::number_like("index_put", *this, value);
}

namespace {
/// x with src in the place of x[:, …, :, where].
Tensor put_along(const char* op, const Tensor& x, const Tensor& src, int64_t dim,
                 const TensorIndex& where) {
  HALFTAPE_CHECK(x.dim() > 0, op, ": a 0-dim tensor has no dimensions");
  std::vector<TensorIndex> indices(
      static_cast<size_t>(wrap_dim(op, dim, static_cast<int>(x.dim()))), Slice());
  indices.push_back(where);
  const Plan plan = Reader(op, x).read(indices);
  const Shape there = view_of(x, plan.basic).sizes();
  HALFTAPE_CHECK(src.sizes() == there, op, ": source ", src.sizes(), " in the place of ", there);
  HALFTAPE_CHECK(src.device() == x.device(), op, ": source on ", src.device(), ", the tensor on ",
                 x.device(), "; move one with .to(device)");
  return put_view(x, plan.basic, src.to(x.dtype()));
}
}  // namespace

Tensor slice_scatter(const Tensor& x, const Tensor& src, int64_t dim, std::optional<int64_t> start,
                     std::optional<int64_t> end, int64_t step) {
  const ErrorScope scope("slice_scatter", x, src);
  return put_along("slice_scatter", x, src, dim, Slice(start, end, step));
}
Tensor select_scatter(const Tensor& x, const Tensor& src, int64_t dim, int64_t index) {
  const ErrorScope scope("select_scatter", x, src);
  return put_along("select_scatter", x, src, dim, index);
}

}  // namespace halftape
