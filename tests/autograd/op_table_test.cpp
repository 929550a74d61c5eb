// What is true of every op: its value, its first and second derivative, any layout, half, autocast.
#include <doctest/doctest.h>

#include <set>
#include <sstream>
#include <stdexcept>

#include "halftape/autograd/tape/node.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/errors.h"
#include "halftape/tests/support/message.h"
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

/// A gradient with different elements, in y's shape and dtype.
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

constexpr size_t kAll = SIZE_MAX;

/// The gradients of input `of`, or of all, when input `at`, or behind the last one the result,
/// changes before backward.
TensorList gradients_after(const OpRow& row, size_t of, size_t at, void (*change)(const Tensor&)) {
  TensorList x = draw_all(row), wanted;
  for (size_t i = 0; i < x.size(); ++i)
    if (of == kAll || of == i) wanted.push_back(x[i].requires_grad_());
  const Tensor y = row.call(x);
  change(at < x.size() ? x[at] : y);
  if (!y.requires_grad()) return {};
  return autograd::grad({y}, wanted, {cotangent(y)}, {}, false, true);
}
Tensor other_values(const Tensor& x) { return x.detach() * -1.5 + 0.3; }
void keep(const Tensor&) {}
void write(const Tensor& x) {
  const NoGradGuard guard;
  x.copy_(other_values(x));
}
void write_unseen(const Tensor& x) { backend(x.device()).copy(x.array(), other_values(x).array()); }
bool are_same(const TensorList& a, const TensorList& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].defined() != b[i].defined() || (a[i].defined() && !same_bits(a[i], b[i])))
      return false;
  return a.size() == b.size();
}

/// The same values, stored with the dimensions in reverse order.
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

/// The same values, from the fourth element of a larger block on.
Tensor moved(const Tensor& x) {
  const Tensor block = full({x.numel() + 5}, 77, x.options());
  Tensor inside = block.slice(0, 3, 3 + x.numel()).view(x.sizes());
  inside.copy_(x);
  return inside;
}

Tensor plain(const Tensor& x) { return x; }

/// One row of x, expanded to x's shape with strides of 0.
Tensor expanded(const Tensor& x) {
  for (int64_t d = 0; d < x.dim(); ++d)
    if (x.size(d) > 1) return x.narrow(d, 0, 1).expand(x.sizes());
  return x;
}
/// x without elements.
Tensor emptied(const Tensor& x) { return x.dim() == 0 ? x : x.narrow(0, 0, 0).clone(); }
/// A 0-dim tensor in place of x.
Tensor number(const Tensor& x) { return full({}, 0.7, x.options()); }

struct Placing {
  const char* name;
  Tensor (*of)(const Tensor&);
  bool other_values = false;  // compared with a contiguous copy of itself, not with x
};
const Placing kLayouts[] = {{"contiguous", plain},        {"transposed", turned},
                            {"sliced", spread},           {"offset", moved},
                            {"expanded", expanded, true}, {"zero-size", emptied, true},
                            {"0-dim", number, true}};
const Dtype kFloats[] = {kFloat64, kFloat32, kFloat16, kBFloat16};

TensorList each(const TensorList& all, Tensor (*f)(const Tensor&)) {
  TensorList out;
  for (const Tensor& x : all) out.push_back(f(x));
  return out;
}

/// The op of a row gives the same bits and gradients in any layout, or refuses the shape with an
/// error that names the op.
void check_layout(const OpRow& row, const Placing& layout, Dtype dtype) {
  const TensorList given = each(draw_all(row, dtype), layout.of);
  const TensorList same = each(given, [](const Tensor& x) { return x.clone(); });
  Tensor y;
  try {
    y = row.call(same);
    testing::settle();
  } catch (const Error& e) {
    CHECK(layout.other_values);
    CHECK_MESSAGE(testing::names(e.what(), row.op()), e.what());
    CHECK_THROWS_AS((row.call(given), testing::settle()), Error);
    return;
  } catch (const std::out_of_range&) {
    CHECK(layout.other_values);  // the row's call looks at a missing element
    return;
  }
  CHECK(same_bits(row.call(given), y));
  if (!row.differentiable) {
    CHECK_FALSE(row.call(leaves(given)).requires_grad());
    return;
  }
  const TensorList g = gradients(row, given), h = gradients(row, same);
  for (size_t i = 0; i < g.size(); ++i) {
    CHECK(g[i].sizes() == given[i].sizes());
    CHECK(same_bits(g[i], h[i]));
  }
}

}  // namespace

TEST_CASE("the table has every unary and every binary op") {
  std::set<std::string> names;
  for (const OpRow& row : testing::op_table()) names.insert(row.name);
  for (const UnaryEntry& op : unary_ops()) CHECK_MESSAGE(names.count(op.name), op.name);
  for (const BinaryEntry& op : binary_ops()) CHECK_MESSAGE(names.count(op.name), op.name);
}

TEST_CASE("every op gives the value of its plain reference in float64 and float32") {
  std::set<std::string> without;
  every_row([&](const OpRow& row) {
    if (!row.reference) {
      without.insert(row.name);
      return;
    }
    for (const Dtype dtype : {kFloat64, kFloat32}) {
      const TensorList inputs = draw_all(row, dtype);
      CHECK(differ(row.call(inputs), expected(row, inputs), {.ulps = 4, .eps = row.eps}) == "");
    }
  });
  // dropout_test.cpp and activation_test.cpp test the random ones and rrelu; resample_test.cpp and
  // grid_test.cpp compare the others with PyTorch's values.
  CHECK(without == std::set<std::string>{"affine_grid", "affine_grid of volumes", "alpha_dropout",
                                         "dropout", "feature_alpha_dropout", "feature_dropout",
                                         "grid_sample", "grid_sample nearest",
                                         "grid_sample of volumes", "gumbel_softmax",
                                         "interpolate bicubic", "interpolate by area", "rrelu",
                                         "rrelu in evaluation"});
}

TEST_CASE("every op has right first and second derivatives, and the same bits in any layout") {
  std::set<std::string> ops, with_gradient, first, second;
  int64_t rows = 0, runs = 0;
  const autograd::GradcheckOptions differences{.fast_mode = !get_default_device().is_cpu()};
  every_row([&](const OpRow& row) {
    ++rows, ops.insert(row.op());
    for (const Placing& layout : kLayouts) {
      for (const Dtype dtype : kFloats) {
        INFO(layout.name << ' ' << dtype);
        check_layout(row, layout, dtype);
        ++runs;
      }
    }
    if (!row.differentiable) return;
    // An op passes when all of its rows do.
    const bool known = !with_gradient.insert(row.op()).second;
    const auto passes = [&](std::set<std::string>& passed, bool ok) {
      CHECK(ok);
      if (!ok)
        passed.erase(row.op());
      else if (!known)
        passed.insert(row.op());
    };
    passes(first, autograd::gradcheck(row.call, leaves(draw_all(row)), differences));
    passes(second, autograd::gradgradcheck(row.call, leaves(draw_all(row)), differences));
  });
  const auto layouts = static_cast<int64_t>(std::size(kLayouts)),
             dtypes = static_cast<int64_t>(std::size(kFloats));
  const int64_t skipped = rows * layouts * dtypes - runs;
  CHECK(skipped == 0);
  CHECK(first == with_gradient);
  CHECK(second == with_gradient);
  MESSAGE(ops.size(), " ops x ", dtypes, " dtypes x ", layouts, " layouts, ", skipped,
          " skipped; gradcheck ", first.size(), "/", with_gradient.size(), "; gradgradcheck ",
          second.size(), "/", with_gradient.size(), " (", rows, " rows; the other ",
          ops.size() - with_gradient.size(), " ops have no gradient, which is checked too)");
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

TEST_CASE("what is changed in place before backward is noticed, or no gradient depends on it") {
  int64_t writes = 0, noticed = 0, unaffected = 0, refused = 0;
  std::set<std::string> noticing, dependent;  // "mul input 1"
  const auto check = [&](const OpRow& row, size_t of, size_t at) {
    const bool input = at < row.shapes.size();
    const std::string what = row.op() + (input ? " input " + std::to_string(at) : " result");
    INFO(what << " for the gradient of " << (of == kAll ? "all" : std::to_string(of)));
    const TensorList right = gradients_after(row, of, at, keep);
    TensorList now;
    const std::string error = testing::message([&] { now = gradients_after(row, of, at, write); });
    ++writes;
    if (error.empty()) {
      ++unaffected;
      CHECK(are_same(now, right));
    } else if (testing::has(error, "several elements are one place in memory")) {
      ++refused;  // the write
      CHECK_FALSE(input);
    } else {
      ++noticed;
      CHECK_MESSAGE(testing::has(error, "changed in place"), error);
      noticing.insert(what);
      if (!are_same(gradients_after(row, of, at, write_unseen), right)) dependent.insert(what);
    }
  };
  every_differentiable_row([&](const OpRow& row) {
    const size_t n = row.shapes.size();
    for (size_t at = 0; at <= n; ++at) {
      check(row, kAll, at);
      for (size_t of = 0; n > 1 && of < n; ++of) check(row, of, at);
    }
  });
  // Of the devices only the GPU reads it.
  if (noticing.count("scaled_dot_product_attention result"))
    dependent.insert("scaled_dot_product_attention result");
  for (const std::string& what : noticing)
    CHECK_MESSAGE(dependent.count(what), "noticed without need: ", what);
  CHECK(noticed + unaffected + refused == writes);
  CHECK(noticed >= 2400);  // of some 9,000 writes
  CHECK(unaffected >= 6400);
  MESSAGE(writes, " writes: ", noticed, " noticed, ", refused, " refused, ", unaffected,
          " without a gradient that depends on them; ", noticing.size(), " inputs and results of ",
          "ops notice, ", noticing.size() - dependent.size(), " without need");
}

TEST_CASE("a recorded backward pass gives the gradients of a plain one") {
  every_differentiable_row([](const OpRow& row) {
    const TensorList inputs = draw_all(row);
    const TensorList plain = gradients(row, inputs), recorded = gradients(row, inputs, true);
    for (size_t i = 0; i < plain.size(); ++i)
      CHECK(differ(recorded[i], plain[i], {.ulps = 8, .eps = row.eps / 4}) == "");
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
          const amp::autocast region(get_default_device().type(), lower);
          CHECK_THROWS_AS(row.call(inputs), Error);
          continue;
        }
        const Dtype dtype = row.cast == Cast::Lower     ? lower
                            : row.cast == Cast::Float32 ? kFloat32
                                                        : given;
        const Tensor plain = row.call(converted(inputs, dtype));
        const amp::autocast region(get_default_device().type(), lower);
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
      const amp::autocast region(get_default_device().type(), kFloat16);
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
  // Makes the 1 that backward passes begin with, which stays alive.
  zeros({}, TensorOptions(kFloat64).requires_grad(true)).backward();
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
