#include "halftape/autograd/ops/layout/shape.h"

#include <algorithm>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"

namespace halftape {
namespace {

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
  for (uint32_t i = 0; i < parts.size(); ++i) {
    const Node::Output layout{parts[i].sizes(), parts[i].dtype(), parts[i].device()};
    (i == 0 ? node->first : node->others.emplace_back()) = layout;
    parts[i].impl()->history = {node, i};
  }
  return parts;
}

/// Throws before a list is made that no memory holds.
void check_count(const char* op, int64_t parts) {
  HALFTAPE_CHECK(parts <= int64_t{1} << 24, op, ": into ", parts,
                 " parts; at most 2^24 fit a list");
}

/// Views of the given sizes along a dimension.
TensorList cut(const char* op, const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim) {
  const int d = detail::dim_of(op, x, dim);
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

/// Views of the sizes size(0), size(1), ….
TensorList cut(const char* op, const Tensor& x, int64_t parts, int64_t dim, const auto& size) {
  check_count(op, parts);
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < parts; ++i) sizes.push_back(size(i));
  return cut(op, x, sizes, dim);
}

}  // namespace

int detail::dim_of(const char* op, const Tensor& x, int64_t dim) {
  HALFTAPE_CHECK(x.dim() > 0, op, ": a 0-dim tensor has no dimensions");
  return wrap_dim(op, dim, static_cast<int>(x.dim()));
}

TensorList split(const Tensor& x, int64_t split_size, int64_t dim) {
  check_defined("split", x);
  const int d = detail::dim_of("split", x, dim);
  const int64_t n = x.size(d);
  HALFTAPE_CHECK(split_size > 0 || (split_size == 0 && n == 0), "split: size ", split_size,
                 " for dimension ", d, " of ", x.sizes(), " must be positive");
  const int64_t parts = n == 0 ? 1 : (n - 1) / split_size + 1;
  return cut("split", x, parts, d,
             [=](int64_t i) { return std::min(split_size, n - i * split_size); });
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
  const int d = detail::dim_of("chunk", x, dim);
  HALFTAPE_CHECK(chunks > 0, "chunk: into ", chunks, " chunks; expected at least one");
  const int64_t n = x.size(d);
  if (n == 0) return cut("chunk", x, chunks, d, [](int64_t) { return 0; });
  return split(x, (n - 1) / chunks + 1, d);
}

TensorList tensor_split(const Tensor& x, int64_t sections, int64_t dim) {
  check_defined("tensor_split", x);
  const int d = detail::dim_of("tensor_split", x, dim);
  HALFTAPE_CHECK(sections > 0, "tensor_split: into ", sections, " sections; expected at least one");
  const int64_t n = x.size(d);
  return cut("tensor_split", x, sections, d,
             [=](int64_t i) { return n / sections + (i < n % sections); });
}
TensorList tensor_split(const Tensor& x, const std::vector<int64_t>& indices, int64_t dim) {
  const ErrorScope scope("tensor_split", x);
  const int d = detail::dim_of("tensor_split", x, dim);
  TensorList parts;  // each a view by itself, because parts may overlap
  int64_t at = 0;
  for (int64_t end : indices) parts.push_back(slice(x, d, at, end)), at = end;
  parts.push_back(slice(x, d, at, x.size(d)));
  return parts;
}

TensorList unbind(const Tensor& x, int64_t dim) {
  check_defined("unbind", x);
  const int d = detail::dim_of("unbind", x, dim);
  check_count("unbind", x.size(d));
  std::vector<Array> arrays;
  for (int64_t i = 0; i < x.size(d); ++i) arrays.push_back(x.array().select(d, i));
  return parts_of("unbind", x, d, arrays, true);
}

}  // namespace halftape
