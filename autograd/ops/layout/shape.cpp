#include "halftape/autograd/ops/layout/shape.h"

#include <algorithm>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"

namespace halftape {
namespace {

int dim_of(const char* op, const Tensor& x, int64_t dim) {
  HALFTAPE_CHECK(x.dim() > 0, op, ": a 0-dim tensor has no dimensions");
  return wrap_dim(op, dim, static_cast<int>(x.dim()));
}

/// Where in the result of cat() a tensor went.
struct Piece {
  Shape shape;
  Dtype dtype;
  bool skipped;  // one-dimensional and empty
};

/// The one node of all parts of a tensor: their gradients are put side by side again in one pass,
/// where a node for each part would fill the whole tensor each time.
class PartsNode final : public Node {
 public:
  PartsNode(const char* name, int dim, bool unbound) : Node(name), dim_(dim), unbound_(unbound) {}
  Grads vjp(Grads g) override {
    g.resize(1 + others.size());
    for (size_t i = 0; i < g.size(); ++i) {
      const Output& o = output(static_cast<uint32_t>(i));
      if (!g[i].defined()) g[i] = zeros(o.shape, TensorOptions(o.dtype).device(o.device));
    }
    return {unbound_ ? stack(g, dim_) : cat(g, dim_)};
  }
  void release() override {}  // nothing is saved

 private:
  int dim_;
  bool unbound_;  // the dimension is gone from the parts
};

TensorList parts_of(const char* op, const Tensor& x, int dim, const std::vector<Array>& arrays,
                    bool unbound) {
  TensorList parts;
  for (const Array& a : arrays) {
    parts.emplace_back(a);
    parts.back().impl()->becomes_view_of(x);
  }
  if (parts.empty() || !records({&x}) || !x.is_floating_point()) return parts;
  const Ref<Node> node(new PartsNode(op, dim, unbound));  // NOLINT: counted
  node->next.push_back(x.gradient_edge());
  for (const Tensor& part : parts) {
    const Node::Output layout{part.sizes(), part.dtype(), part.device()};
    const bool first = part.is_same(parts[0]);
    if (first)
      node->first = layout;
    else
      node->others.push_back(layout);
    part.impl()->history = {node, static_cast<uint32_t>(first ? 0 : node->others.size())};
  }
  return parts;
}

/// Parts of these sizes of a dimension.
TensorList cut(const char* op, const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim) {
  const int d = dim_of(op, x, dim);
  int64_t total = 0;
  for (int64_t n : sizes) {
    HALFTAPE_CHECK(n >= 0, op, ": size ", n, " is negative");
    total = checked_add(total, n);
  }
  HALFTAPE_CHECK(total == x.size(d), op, ": the sizes add up to ", total, ", dimension ", d, " of ",
                 x.sizes(), " has ", x.size(d));
  std::vector<Array> arrays;
  int64_t at = 0;
  for (int64_t n : sizes) arrays.push_back(x.array().slice(d, at, at + n)), at += n;
  return parts_of(op, x, d, arrays, false);
}

TensorList each(const TensorList& tensors, Tensor (*f)(const Tensor&)) {
  TensorList out;
  for (const Tensor& t : tensors) out.push_back(f(t));
  return out;
}

/// Row-major (before, size of d, behind): what an op along one dimension sees.
Shape around(const Tensor& x, int d) {
  int64_t before = 1, behind = 1;
  for (int i = 0; i < x.dim(); ++i) {
    if (i < d) before = checked_mul(before, x.size(i));
    if (i > d) behind = checked_mul(behind, x.size(i));
  }
  return {before, x.size(d), behind};
}

/// Every slice of a dimension `times` times, as blocks of `block` slices.
Tensor repeat_blocks(const Tensor& x, int d, int64_t block, int64_t times) {
  const Shape s = around(x, d);
  const int64_t blocks = checked_mul(s[0], block > 0 ? s[1] / block : 0);
  const int64_t inside = checked_mul(block, s[2]);
  Shape out = x.sizes();
  out[d] = checked_mul(out[d], times);
  const Tensor apart = reshape(x, {blocks, 1, inside});
  return reshape(clone(expand(apart, {blocks, times, inside})), out);
}

/// The last `by` of the n slices first.
Tensor roll_along(const Tensor& x, int d, int64_t by) {
  const int64_t n = x.size(d);
  const Array y = empty_like(x.array());
  backend(x.device()).copy(y.slice(d, by, n), x.array().slice(d, 0, n - by));
  backend(x.device()).copy(y.slice(d, 0, by), x.array().slice(d, n - by, n));
  return record("roll", y, {&x}, [d, back = n - by](Node&, const Tensor& g) -> Grads {
    return {roll_along(g, d, back)};
  });
}

/// Where each element along a padded dimension of n comes from.
std::vector<int64_t> sources(PadMode mode, int64_t n, int64_t left, int64_t right) {
  std::vector<int64_t> from;
  for (int64_t i = -left; i < n + right; ++i) {
    if (mode == PadMode::Reflect)
      from.push_back(i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i);
    else if (mode == PadMode::Replicate)
      from.push_back(std::clamp<int64_t>(i, 0, n - 1));
    else
      from.push_back(i < 0 ? i + n : i >= n ? i - n : i);
  }
  return from;
}

const char* name_of(PadMode mode) {
  return mode == PadMode::Constant    ? "constant"
         : mode == PadMode::Reflect   ? "reflect"
         : mode == PadMode::Replicate ? "replicate"
                                      : "circular";
}

/// Checks the number of entries; the dimensions they speak of.
int padded_dims(const Tensor& x, const std::vector<int64_t>& pad) {
  HALFTAPE_CHECK(pad.size() % 2 == 0 && static_cast<int64_t>(pad.size()) <= 2 * x.dim(),
                 "pad: ", pad.size(), " numbers for ", x.sizes(),
                 "; expected two for each of at most ", x.dim(), " dimensions");
  return static_cast<int>(pad.size() / 2);
}

void check_room(const Tensor& x, int64_t d, int64_t left, int64_t right) {
  const int64_t n = x.size(d), kept = n + std::min<int64_t>(left, 0) + std::min<int64_t>(right, 0);
  HALFTAPE_CHECK(kept >= 0, "pad: ", left, " and ", right, " cut more than the ", n,
                 " elements of dimension ", d, " of ", x.sizes());
}

}  // namespace

Tensor cat(const TensorList& given, int64_t dim) {
  HALFTAPE_CHECK(!given.empty(), "cat: of no tensors");
  const TensorList tensors = cast_inputs(cast_list::cat, given);
  const auto skipped = [](const Tensor& t) { return t.dim() == 1 && t.numel() == 0; };
  const auto found = std::find_if_not(tensors.begin(), tensors.end(), skipped);
  const Tensor& like = found == tensors.end() ? tensors[0] : *found;
  const int d = found == tensors.end() ? 0 : dim_of("cat", like, dim);
  Shape shape = like.sizes();
  shape[d] = 0;
  Dtype dtype = like.dtype();
  std::vector<Piece> pieces;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    dtype = promote(dtype, t.dtype());
    pieces.push_back({t.sizes(), t.dtype(), skipped(t)});
    HALFTAPE_CHECK(t.device() == like.device(), "cat: tensors on ", like.device(), " and ",
                   t.device(), "; move one with .to(device)");
    if (skipped(t)) continue;
    bool fits = t.dim() == like.dim();
    for (int k = 0; fits && k < like.dim(); ++k) fits = k == d || t.size(k) == like.size(k);
    HALFTAPE_CHECK(fits, "cat: tensor ", i, " ", t.sizes(), " does not continue ", like.sizes(),
                   " along dimension ", d);
    shape[d] = checked_add(shape[d], t.size(d));
  }
  const Array y(shape, dtype, like.device());
  int64_t at = 0;
  for (const Tensor& t : tensors) {
    if (skipped(t)) continue;
    backend(y.device()).copy(y.slice(d, at, at + t.size(d)), t.array());
    at += t.size(d);
  }
  return record_list("cat", y, tensors, [pieces, d](Node& self, const Tensor& g) -> Grads {
    Grads grads(pieces.size());
    int64_t from = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto& [size, type, empty] = pieces[i];
      const int64_t n = empty ? 0 : size[d];
      if (self.wants(i))
        grads[i] =
            empty ? zeros(size, g.options().dtype(type)) : slice(g, d, from, from + n).to(type);
      from += n;
    }
    return grads;
  });
}

Tensor stack(const TensorList& tensors, int64_t dim) {
  const ErrorScope scope("stack", tensors);
  HALFTAPE_CHECK(!tensors.empty(), "stack: of no tensors");
  const int d = wrap_dim("stack", dim, static_cast<int>(tensors[0].dim()) + 1);
  TensorList apart;
  for (size_t i = 0; i < tensors.size(); ++i) {
    HALFTAPE_CHECK(tensors[i].sizes() == tensors[0].sizes(), "stack: tensor ", i, " is ",
                   tensors[i].sizes(), ", the first ", tensors[0].sizes());
    apart.push_back(unsqueeze(tensors[i], d));
  }
  return cat(apart, d);
}

Tensor hstack(const TensorList& tensors) {
  const ErrorScope scope("hstack", tensors);
  HALFTAPE_CHECK(!tensors.empty(), "hstack: of no tensors");
  const TensorList all = each(tensors, atleast_1d);
  return cat(all, all[0].dim() == 1 ? 0 : 1);
}
Tensor vstack(const TensorList& tensors) {
  const ErrorScope scope("vstack", tensors);
  HALFTAPE_CHECK(!tensors.empty(), "vstack: of no tensors");
  return cat(each(tensors, atleast_2d), 0);
}
Tensor dstack(const TensorList& tensors) {
  const ErrorScope scope("dstack", tensors);
  HALFTAPE_CHECK(!tensors.empty(), "dstack: of no tensors");
  return cat(each(tensors, atleast_3d), 2);
}

Tensor column_stack(const TensorList& tensors) {
  const ErrorScope scope("column_stack", tensors);
  return hstack(
      each(tensors, [](const Tensor& t) { return t.dim() < 2 ? unsqueeze(atleast_1d(t), 1) : t; }));
}

TensorList split(const Tensor& x, int64_t split_size, int64_t dim) {
  check_defined("split", x);
  const int d = dim_of("split", x, dim);
  const int64_t n = x.size(d);
  HALFTAPE_CHECK(split_size > 0 || (split_size == 0 && n == 0), "split: size ", split_size,
                 " for dimension ", d, " of ", x.sizes(), " must be positive");
  std::vector<int64_t> sizes;
  for (int64_t at = 0; at < n; at += split_size) sizes.push_back(std::min(split_size, n - at));
  if (sizes.empty()) sizes.push_back(0);
  return cut("split", x, sizes, d);
}
TensorList split_with_sizes(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim) {
  check_defined("split_with_sizes", x);
  return cut("split_with_sizes", x, sizes, dim);
}
TensorList split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim) {
  check_defined("split", x);
  return cut("split", x, sizes, dim);
}

TensorList chunk(const Tensor& x, int64_t chunks, int64_t dim) {
  const ErrorScope scope("chunk", x);
  const int d = dim_of("chunk", x, dim);
  HALFTAPE_CHECK(chunks > 0, "chunk: into ", chunks, " chunks; expected at least one");
  const int64_t n = x.size(d);
  if (n == 0) return cut("chunk", x, std::vector<int64_t>(static_cast<size_t>(chunks), 0), d);
  return split(x, (n - 1) / chunks + 1, d);
}

TensorList tensor_split(const Tensor& x, int64_t sections, int64_t dim) {
  check_defined("tensor_split", x);
  const int d = dim_of("tensor_split", x, dim);
  HALFTAPE_CHECK(sections > 0, "tensor_split: into ", sections, " sections; expected at least one");
  std::vector<int64_t> sizes(static_cast<size_t>(sections), x.size(d) / sections);
  for (int64_t i = 0; i < x.size(d) % sections; ++i) ++sizes[static_cast<size_t>(i)];
  return cut("tensor_split", x, sizes, d);
}
TensorList tensor_split(const Tensor& x, const std::vector<int64_t>& indices, int64_t dim) {
  const ErrorScope scope("tensor_split", x);
  const int d = dim_of("tensor_split", x, dim);
  TensorList parts;  // they may overlap: views of their own
  int64_t at = 0;
  for (int64_t end : indices) parts.push_back(slice(x, d, at, end)), at = end;
  parts.push_back(slice(x, d, at, x.size(d)));
  return parts;
}

TensorList unbind(const Tensor& x, int64_t dim) {
  check_defined("unbind", x);
  const int d = dim_of("unbind", x, dim);
  std::vector<Array> arrays;
  for (int64_t i = 0; i < x.size(d); ++i) arrays.push_back(x.array().select(d, i));
  return parts_of("unbind", x, d, arrays, true);
}

Tensor repeat(const Tensor& x, const Shape& repeats) {
  const ErrorScope scope("repeat", x);
  const int lead = repeats.size() - static_cast<int>(x.dim());
  HALFTAPE_CHECK(lead >= 0, "repeat: ", repeats, " names ", repeats.size(), " of ", x.dim(),
                 " dimensions");
  for (int64_t times : repeats)
    HALFTAPE_CHECK(times >= 0, "repeat: ", times, " times in ", repeats);
  // A repeated dimension of n becomes (times, n), seen often by a stride of 0; the copy joins them.
  Shape apart, wide, joined, sizes = Dims::filled(lead, 1);
  for (int64_t n : x.sizes()) sizes.push_back(n);
  int dims = 0;
  for (int d = 0; d < sizes.size(); ++d) dims += (sizes[d] > 1) + (repeats[d] > 1);
  for (int d = 0; d < sizes.size() && dims <= kMaxDims; ++d) {
    joined.push_back(checked_mul(repeats[d], sizes[d]));
    if (repeats[d] > 1) apart.push_back(1), wide.push_back(repeats[d]);
    if (sizes[d] > 1) apart.push_back(sizes[d]), wide.push_back(sizes[d]);
  }
  if (dims <= kMaxDims && numel(joined) > 0)
    return reshape(clone(expand(reshape(x, apart), wide)), joined);
  // More than a shape has room for: one dimension after the other.
  Tensor y = reshape(x, sizes);
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
    return repeat_blocks(reshape(x, {x.numel()}), 0, 1, repeats);
  }
  return repeat_blocks(x, dim_of("repeat_interleave", x, *dim), 1, repeats);
}

Tensor repeat_interleave(const Tensor& repeats) {
  const ErrorScope scope("repeat_interleave", repeats);
  HALFTAPE_CHECK(repeats.dim() == 1 && (repeats.dtype() == kInt64 || repeats.dtype() == kInt32),
                 "repeat_interleave: repeats ", repeats.sizes(), " of ", repeats.dtype(),
                 "; expected one dimension of int64");
  std::vector<int64_t> index;
  const std::vector<int64_t> times = repeats.to_vector<int64_t>();
  for (size_t i = 0; i < times.size(); ++i) {
    HALFTAPE_CHECK(times[i] >= 0, "repeat_interleave: repeats ", times[i], " at position ", i,
                   " is negative");
    index.insert(index.end(), static_cast<size_t>(times[i]), static_cast<int64_t>(i));
  }
  return tensor(index, repeats.device());
}

Tensor repeat_interleave(const Tensor& in, const Tensor& repeats, std::optional<int64_t> dim) {
  const ErrorScope scope("repeat_interleave", in, repeats);
  const Tensor x = dim && in.dim() > 0 ? in : reshape(in, {in.numel()});
  const int d = wrap_dim("repeat_interleave", dim.value_or(0), static_cast<int>(x.dim()));
  HALFTAPE_CHECK(repeats.dim() <= 1 && (repeats.numel() == 1 || repeats.numel() == x.size(d)),
                 "repeat_interleave: repeats ", repeats.sizes(), " for the ", x.size(d),
                 " slices of dimension ", d, " of ", x.sizes());
  const Tensor each_one = expand(reshape(repeats, {repeats.numel()}), {x.size(d)});
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
    return reshape(roll(reshape(x, {x.numel()}), shifts, {0}), x.sizes());
  HALFTAPE_CHECK(shifts.size() == dims.size() && !shifts.empty(), "roll: shifts ", shifts,
                 " for dimensions ", dims);
  Tensor y = x;
  for (int i = 0; i < dims.size(); ++i) {
    const int d = dim_of("roll", x, dims[i]);
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
  const int a = dim_of("rot90", x, dims[0]), b = dim_of("rot90", x, dims[1]);
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

Tensor constant_pad_nd(const Tensor& x, const std::vector<int64_t>& pad, Scalar value) {
  check_defined("constant_pad_nd", x);
  const int count = padded_dims(x, pad);
  Shape shape = x.sizes();
  Array inside = x.array();
  for (int i = 0; i < count; ++i) {
    const int d = static_cast<int>(x.dim()) - 1 - i;
    const int64_t left = pad[2 * static_cast<size_t>(i)],
                  right = pad[2 * static_cast<size_t>(i) + 1];
    check_room(x, d, left, right);
    shape[d] = checked_add(checked_add(shape[d], left), right);
    inside = inside.slice(d, std::max<int64_t>(-left, 0), x.size(d) - std::max<int64_t>(-right, 0));
  }
  const Array y = full(shape, value, x.dtype(), x.device());
  Array room = y;
  for (int i = 0; i < count; ++i) {
    const int d = static_cast<int>(x.dim()) - 1 - i;
    const int64_t left = std::max<int64_t>(pad[2 * static_cast<size_t>(i)], 0);
    room = room.slice(d, left, left + inside.size(d));
  }
  backend(x.device()).copy(room, inside);
  return record("constant_pad_nd", y, {&x}, [pad](Node&, const Tensor& g) -> Grads {
    std::vector<int64_t> back;
    back.reserve(pad.size());
    for (int64_t n : pad) back.push_back(-n);
    return {constant_pad_nd(g, back)};
  });
}

Tensor pad(const Tensor& x, const std::vector<int64_t>& pad, PadMode mode, double value) {
  const ErrorScope scope("pad", x);
  if (mode == PadMode::Constant) return constant_pad_nd(x, pad, value);
  HALFTAPE_CHECK(value == 0, "pad: value ", value, " means nothing to mode ", name_of(mode));
  const int count = padded_dims(x, pad);
  Tensor y = x;
  for (int i = 0; i < count; ++i) {
    const int d = static_cast<int>(x.dim()) - 1 - i;
    int64_t left = pad[2 * static_cast<size_t>(i)], right = pad[2 * static_cast<size_t>(i) + 1];
    check_room(x, d, left, right);
    if (mode == PadMode::Circular) {  // what is cut off does not come round
      y = slice(y, d, std::max<int64_t>(-left, 0), x.size(d) - std::max<int64_t>(-right, 0));
      left = std::max<int64_t>(left, 0), right = std::max<int64_t>(right, 0);
    }
    const int64_t n = y.size(d), most = mode == PadMode::Reflect    ? n - 1
                                        : mode == PadMode::Circular ? n
                                        : n > 0 ? std::numeric_limits<int64_t>::max()
                                                : 0;
    HALFTAPE_CHECK(left <= most && right <= most, "pad: mode ", name_of(mode), " makes at most ",
                   std::max<int64_t>(most, 0), " elements of the ", n, " in dimension ", d, " of ",
                   x.sizes(), ", not ", std::max(left, right));
    if (left != 0 || right != 0)
      y = index_select(y, d, tensor(sources(mode, n, left, right), x.device()));
  }
  return y.is_same(x) ? clone(x) : y;
}

Tensor pad(const Tensor& x, const std::vector<int64_t>& sizes, const std::string& mode,
           double value) {
  const ErrorScope scope("pad", x);
  for (const PadMode m :
       {PadMode::Constant, PadMode::Reflect, PadMode::Replicate, PadMode::Circular})
    if (mode == name_of(m)) return pad(x, sizes, m, value);
  detail::fail("pad: mode \"", mode,
               "\"; expected \"constant\", \"reflect\", \"replicate\" or \"circular\"");
}

TensorList meshgrid(const TensorList& tensors, const std::string& indexing) {
  HALFTAPE_CHECK(indexing == "ij" || indexing == "xy", "meshgrid: indexing is \"", indexing,
                 "\", expected \"ij\" or \"xy\"");
  HALFTAPE_CHECK(!tensors.empty(), "meshgrid: of no tensors");
  check_defined("meshgrid", tensors);
  TensorList in = tensors;
  const bool swapped = indexing == "xy" && in.size() >= 2;
  if (swapped) std::swap(in[0], in[1]);
  Shape shape;
  for (const Tensor& t : in) {
    HALFTAPE_CHECK(t.dim() <= 1, "meshgrid: a tensor ", t.sizes(), "; expected one dimension");
    HALFTAPE_CHECK(t.dtype() == in[0].dtype(), "meshgrid: dtypes ", in[0].dtype(), " and ",
                   t.dtype());
    shape.push_back(t.numel());
  }
  TensorList grid;
  for (size_t i = 0; i < in.size(); ++i) {
    Shape thin = Dims::filled(shape.size(), 1);
    thin[static_cast<int>(i)] = in[i].numel();
    grid.push_back(expand(reshape(in[i], thin), shape));
  }
  if (swapped) std::swap(grid[0], grid[1]);
  return grid;
}

TensorList broadcast_tensors(const TensorList& tensors) {
  check_defined("broadcast_tensors", tensors);
  Shape shape;
  for (const Tensor& t : tensors) shape = broadcast("broadcast_tensors", shape, t.sizes());
  TensorList out;
  for (const Tensor& t : tensors) out.push_back(expand(t, shape));
  return out;
}

Tensor atleast_1d(const Tensor& x) {
  check_defined("atleast_1d", x);
  return x.dim() == 0 ? unsqueeze(x, 0) : x;
}
Tensor atleast_2d(const Tensor& x) {
  check_defined("atleast_2d", x);
  return x.dim() < 2 ? unsqueeze(atleast_1d(x), 0) : x;
}
Tensor atleast_3d(const Tensor& x) {
  check_defined("atleast_3d", x);
  return x.dim() < 3 ? unsqueeze(atleast_2d(x), 2) : x;
}

Tensor diag(const Tensor& x, int64_t diagonal) {
  const ErrorScope scope("diag", x);
  HALFTAPE_CHECK(x.dim() == 1 || x.dim() == 2, "diag: of a tensor ", x.sizes(),
                 "; expected one or two dimensions");
  return x.dim() == 1 ? diag_embed(x, diagonal) : clone(halftape::diagonal(x, diagonal));
}

}  // namespace halftape
