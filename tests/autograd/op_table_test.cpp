// What is true of every op: its value, its first and second derivative, any layout, half, autocast.
#include <doctest/doctest.h>

#include <set>

#include "halftape/autograd/node.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/ops.h"

using namespace halftape;
using testing::differ;
using testing::draw_all;
using testing::OpRow;
using testing::same_bits;

namespace {

/// Runs `check` on every row and says which row a failure belongs to.
template <class F>
void every_row(F check) {
  for (const OpRow& row : testing::op_table()) {
    std::ostringstream shapes;
    for (const Shape& s : row.shapes) shapes << ' ' << s;
    INFO(row.name << shapes.str());
    try {
      check(row);
    } catch (const Error& e) {
      FAIL_CHECK(std::string(e.what()));
    }
  }
}
template <class F>
void every_differentiable_row(F check) {
  every_row([&](const OpRow& row) {
    if (row.differentiable) check(row);
  });
}

std::vector<double> expected(const OpRow& row, const TensorList& inputs) {
  std::vector<testing::Values> values;
  for (const Tensor& x : inputs) values.push_back({x.sizes(), x.to_vector()});
  return row.reference(values);
}

TensorList converted(const TensorList& inputs, Dtype dtype) {
  TensorList out;
  for (const Tensor& x : inputs) out.push_back(x.to(dtype));
  return out;
}

TensorList leaves(const TensorList& inputs) {
  TensorList out;
  for (const Tensor& x : inputs) out.push_back(x.detach().requires_grad_());
  return out;
}

/// A gradient without symmetry, in y's shape and dtype.
Tensor cotangent(const Tensor& y) {
  std::vector<double> v(static_cast<size_t>(y.numel()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = 1 + 0.5 * std::sin(0.7 * static_cast<double>(i));
  return tensor(v, y.dtype()).reshape(y.sizes());
}

TensorList gradients(const OpRow& row, const TensorList& inputs, bool create_graph = false) {
  const TensorList x = leaves(inputs);
  const Tensor y = row.call(x);
  TensorList g = autograd::grad({y}, x, {cotangent(y)}, {}, create_graph, true);
  for (size_t i = 0; i < x.size(); ++i)
    if (!g[i].defined()) g[i] = zeros_like(x[i]);  // an input that was overwritten
  return g;
}

/// The same values with the bytes in reverse order of dimensions.
Tensor turned(const Tensor& x) {
  Dims back;
  for (int64_t d = x.dim() - 1; d >= 0; --d) back.push_back(d);
  return x.permute(back).clone().permute(back);
}

/// The same values as every second element of a larger block, from an odd offset on.
Tensor spread(const Tensor& x) {
  Shape wide = x.dim() == 0 ? Shape{1} : x.sizes();
  const int64_t last = wide.back();
  wide[wide.size() - 1] = 2 * last + 1;
  const Tensor block = full(wide, 77, x.options());
  Tensor inside = x.dim() == 0 ? block.select(0, 1) : block.slice(-1, 1, 2 * last + 1, 2);
  inside.copy_(x);
  return inside;
}

const Dtype kFloats[] = {kFloat64, kFloat32, kFloat16, kBFloat16};

}  // namespace

TEST_CASE("the table has every unary and every binary op") {
  std::set<std::string> names;
  for (const OpRow& row : testing::op_table()) names.insert(row.name);
  for (const UnaryEntry& op : unary_ops()) CHECK_MESSAGE(names.count(op.name), op.name);
  for (const BinaryEntry& op : binary_ops()) CHECK_MESSAGE(names.count(op.name), op.name);
}

TEST_CASE("every op gives the value of its plain reference in float64 and float32") {
  every_row([](const OpRow& row) {
    if (!row.reference) return;
    for (const Dtype dtype : {kFloat64, kFloat32}) {
      const TensorList inputs = draw_all(row, dtype);
      CHECK(differ(row.call(inputs), expected(row, inputs), {.ulps = 4, .eps = row.eps}) == "");
    }
  });
}

TEST_CASE("every op's gradient is that of finite differences") {
  every_differentiable_row(
      [](const OpRow& row) { CHECK(autograd::gradcheck(row.call, leaves(draw_all(row)))); });
}

TEST_CASE("every op's second derivative is that of finite differences") {
  every_differentiable_row(
      [](const OpRow& row) { CHECK(autograd::gradgradcheck(row.call, leaves(draw_all(row)))); });
}

TEST_CASE("every op gives the same bits for any layout of its inputs") {
  every_row([](const OpRow& row) {
    for (const Dtype dtype : kFloats) {
      const TensorList plain = draw_all(row, dtype);
      const Tensor y = row.call(plain);
      for (Tensor (*layout)(const Tensor&) : {&turned, &spread}) {
        TensorList other;
        for (const Tensor& x : plain) other.push_back(layout(x));
        CHECK(same_bits(row.call(other), y));
        if (!row.differentiable) continue;
        const TensorList g = gradients(row, plain), h = gradients(row, other);
        for (size_t i = 0; i < g.size(); ++i) CHECK(same_bits(g[i], h[i]));
      }
    }
  });
}

TEST_CASE("an op of one kernel computes half in float32 and rounds once") {
  every_row([](const OpRow& row) {
    if (!row.one_kernel) return;
    for (const Dtype dtype : {kFloat16, kBFloat16}) {
      const TensorList inputs = draw_all(row, dtype);
      const Tensor y = row.call(inputs);
      CHECK(same_bits(y, row.call(converted(inputs, kFloat32)).to(y.dtype())));
      if (y.is_floating_point()) CHECK(y.dtype() == dtype);
    }
  });
}

TEST_CASE("gradients of half inputs are half and near those of float64") {
  every_differentiable_row([](const OpRow& row) {
    for (const Dtype dtype : {kFloat16, kBFloat16}) {
      const TensorList inputs = draw_all(row, dtype);
      const TensorList g = gradients(row, inputs),
                       exact = gradients(row, converted(inputs, kFloat64));
      for (size_t i = 0; i < g.size(); ++i) {
        CHECK(g[i].dtype() == dtype);
        CHECK(differ(g[i], exact[i], {.ulps = 4, .eps = 4}) == "");
      }
    }
  });
}

TEST_CASE("a recorded backward pass gives the gradients of a plain one") {
  every_differentiable_row([](const OpRow& row) {
    const TensorList inputs = draw_all(row);
    const TensorList plain = gradients(row, inputs), recorded = gradients(row, inputs, true);
    for (size_t i = 0; i < plain.size(); ++i)
      CHECK(differ(recorded[i], plain[i], {.ulps = 8, .eps = 2}) == "");
  });
}

TEST_CASE("gradients computed twice are bitwise equal") {
  every_differentiable_row([](const OpRow& row) {
    const TensorList inputs = draw_all(row, kFloat32);
    const TensorList once = gradients(row, inputs), again = gradients(row, inputs);
    for (size_t i = 0; i < once.size(); ++i) CHECK(same_bits(once[i], again[i]));
  });
}

TEST_CASE("under autocast every op does what its category says, bit for bit") {
  every_row([](const OpRow& row) {
    for (const Dtype lower : {kFloat16, kBFloat16}) {
      for (const Dtype given : {kFloat32, lower}) {
        const TensorList inputs = draw_all(row, given);
        if (row.cast == Cast::Refuse) {
          const amp::autocast region(kCPU, lower);
          CHECK_THROWS_AS(row.call(inputs), Error);
          continue;
        }
        const Dtype dtype = row.cast == Cast::Lower     ? lower
                            : row.cast == Cast::Float32 ? kFloat32
                                                        : given;
        const Tensor plain = row.call(converted(inputs, dtype));
        const amp::autocast region(kCPU, lower);
        CHECK(same_bits(row.call(inputs), plain));
      }
    }
  });
}

TEST_CASE("under autocast a float32 leaf receives a float32 gradient through every op") {
  every_differentiable_row([](const OpRow& row) {
    if (row.cast == Cast::Refuse) return;
    const TensorList x = leaves(draw_all(row, kFloat32));
    Tensor y;
    {
      const amp::autocast region(kCPU, kFloat16);
      y = row.call(x);
    }
    const TensorList g = autograd::grad({y}, x, {cotangent(y)}, {}, false, true);
    const TensorList exact = gradients(row, converted(x, kFloat64));
    for (size_t i = 0; i < g.size(); ++i) {
      if (!g[i].defined()) continue;
      CHECK(g[i].dtype() == kFloat32);
      const double half = epsilon(kFloat16) / epsilon(kFloat32);
      CHECK(differ(g[i], exact[i], {.ulps = 4 * half, .eps = 4 * half}) == "");
    }
  });
}

TEST_CASE("no op leaves a node or a tensor alive, also after a recorded backward pass") {
  every_differentiable_row([](const OpRow& row) {
    const int64_t nodes = Node::live_count(), tensors = detail::TensorImpl::live_count();
    {
      const TensorList x = leaves(draw_all(row));
      const Tensor y = row.call(x);
      const TensorList g = autograd::grad({y}, x, {cotangent(y)}, {}, true, true);
      Tensor total = zeros({}, kFloat64);
      for (const Tensor& gi : g)
        if (gi.defined()) total = total + sum(square(gi));
      if (total.requires_grad()) autograd::grad({total}, x, {}, {}, true, true);
    }
    CHECK(Node::live_count() == nodes);
    CHECK(detail::TensorImpl::live_count() == tensors);
  });
}

TEST_CASE("under NoGradGuard no op records") {
  every_row([](const OpRow& row) {
    const TensorList x = leaves(draw_all(row));
    const NoGradGuard guard;
    const Tensor y = row.call(x);
    CHECK_FALSE(y.grad_fn());
  });
}
