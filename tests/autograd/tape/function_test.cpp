// Ops written by users.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

#include "halftape/autograd/tape/node.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/lists.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using autograd::AutogradContext;
using autograd::Function;
using autograd::variable_list;
using testing::leaf;

namespace {

using Values = std::vector<double>;

/// y = n·x·w, as a user would write it.
struct Product : Function<Product> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, int n, const Tensor& w) {
    ctx->saved_data["n"] = n;
    ctx->save_for_backward({x, w});
    return n * (x * w);
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    const auto saved = ctx->get_saved_variables();
    const auto n = static_cast<double>(ctx->saved_data["n"].toInt());
    CHECK_THROWS_WITH_AS(ctx->needs_input_grad(2), doctest::Contains("has 2 tensors"), Error);
    CHECK(ctx->needs_input_grad({{0, 1}, {1, 2}}) ==
          (ctx->needs_input_grad(0) || ctx->needs_input_grad(1)));
    CHECK(ctx->needs_input_grad({{1, 2}}) == ctx->needs_input_grad(1));
    CHECK_FALSE(ctx->needs_input_grad({{0, 0}}));
    return {ctx->needs_input_grad(0) ? g[0] * saved[1] * n : Tensor(), Tensor(),
            ctx->needs_input_grad(1) ? g[0] * saved[0] * n : Tensor()};  // the int is no tensor
  }
};

/// e^x, which saves its output.
struct Exponential : Function<Exponential> {
  static constexpr auto name = "exponential";
  static Tensor forward(AutogradContext* ctx, const Tensor& x) {
    const Tensor y = exp(x);
    ctx->save_for_backward({y});
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    return {g[0] * ctx->get_saved_variables()[0]};
  }
};

/// Doubles its input in place, and gives the former sum as a constant.
struct Doubled : Function<Doubled> {
  static variable_list forward(AutogradContext* ctx, Tensor x) {
    const Tensor before = x.sum();
    x.mul_(2);
    ctx->mark_dirty({x});
    ctx->mark_non_differentiable({before});
    return {x, before};
  }
  static variable_list backward(AutogradContext*, variable_list g) { return {g[0] * 2}; }
};

/// Changes its input and does not say that this is a result.
struct Unreturned : Function<Unreturned> {
  static Tensor forward(AutogradContext* ctx, Tensor x) {
    x.mul_(2);
    ctx->mark_dirty({x});
    return x + 1;
  }
  static variable_list backward(AutogradContext*, variable_list g) { return {g[0] * 2}; }
};

/// x where x is positive, else 0, and the mask, a constant, which it saves.
struct Masked : Function<Masked> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x) {
    const Tensor mask = (x > 0).to(x.dtype());
    ctx->mark_non_differentiable({mask});
    ctx->save_for_backward({mask});
    ctx->set_materialize_grads(false);
    return {x * mask, mask};
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    return {g[0] * ctx->get_saved_variables()[0]};
  }
};

/// Sum and product of a list. Without `materialize`, missing gradients are undefined.
struct Both : Function<Both> {
  static inline bool materialize = true;
  static inline int undefined = 0;
  static variable_list forward(AutogradContext* ctx, const TensorList& x) {
    ctx->set_materialize_grads(materialize);
    ctx->save_for_backward(x);
    return {x[0] + x[1], x[0] * x[1]};
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    const auto x = ctx->get_saved_variables();
    undefined = !g[0].defined() + !g[1].defined();
    const Tensor a = g[0].defined() ? g[0] : zeros_like(x[0]);
    const Tensor b = g[1].defined() ? g[1] : zeros_like(x[0]);
    return {a + b * x[1], a + b * x[0]};
  }
};

template <int Count>
struct Wrong : Function<Wrong<Count>> {
  static Tensor forward(AutogradContext*, const Tensor& x, double) { return x * 1; }
  static variable_list backward(AutogradContext*, variable_list g) {
    return variable_list(Count, g[0]);
  }
};

struct Through : Function<Through> {
  static Tensor forward(AutogradContext*, const Tensor& x) { return x; }
  static variable_list backward(AutogradContext*, variable_list g) { return {g[0] * 7}; }
};

}  // namespace

TEST_CASE("an input that is changed must be returned, and a constant result has no history") {
  const Tensor changed = leaf({1, 2}) * 1;
  CHECK_THROWS_WITH_AS(Unreturned::apply(changed), doctest::Contains("does not return"), Error);
  const Tensor x = leaf({1, -2});
  const Tensor y = Masked::apply(x)[0];
  const Tensor gx = autograd::grad({y.sum()}, {x}, {}, true, true)[0];
  CHECK(gx.to_vector() == Values{1, 0});
  CHECK_FALSE(gx.requires_grad());
}

TEST_CASE("a user's op has the gradients of its rule, and derivatives of these") {
  const Tensor x = leaf({1, 2}), w = leaf({3, -1});
  const Tensor y = Product::apply(x, 2, w);
  CHECK(y.to_vector() == Values{6, -4});
  CHECK(std::string(y.grad_fn()->name()) == "Function");
  y.sum().backward();
  CHECK(x.grad().to_vector() == Values{6, -2});
  CHECK(w.grad().to_vector() == Values{2, 4});
  auto f = [](const TensorList& in) { return Product::apply(in[0], 3, in[1]); };
  CHECK(autograd::gradcheck(f, {leaf({0.5, 2}), leaf({3, -1})}));
  CHECK(autograd::gradgradcheck(f, {leaf({0.5, 2}), leaf({3, -1})}));
  CHECK(autograd::gradcheck(f, {leaf({0.5}), leaf({3, -1})}));  // the library sums over x
}

TEST_CASE("an op that saves its output can be differentiated twice, and makes no cycle") {
  const int64_t tensors = detail::TensorImpl::live_count(), nodes = Node::live_count();
  {
    auto f = [](const TensorList& in) { return Exponential::apply(in[0]); };
    CHECK(autograd::gradcheck(f, {leaf({0.5, -1})}));
    CHECK(autograd::gradgradcheck(f, {leaf({0.5, -1})}));
    const Tensor x = leaf({0.5}), y = Exponential::apply(x);
    CHECK(std::string(y.grad_fn()->name()) == "exponential");
    const Tensor g = autograd::grad({y}, {x}, {}, {}, true)[0];
    g.backward({}, true, true);
    CHECK(x.grad().item() == doctest::Approx(std::exp(0.5)));
  }
  CHECK(detail::TensorImpl::live_count() == tensors);
  CHECK(Node::live_count() == nodes);
}

TEST_CASE("under NoGradGuard a user's op records nothing") {
  const Tensor x = leaf({1, 2});
  const NoGradGuard no_grad;
  CHECK_FALSE(Product::apply(x, 2, x).requires_grad());
  CHECK_FALSE(Product::apply(x.detach(), 2, x.detach()).requires_grad());
}

TEST_CASE("an input that forward changes gets the op's history, a constant output gets none") {
  const Tensor x = leaf({1, 2});
  Tensor y = x * 1;
  const auto out = Doubled::apply(y);
  CHECK(out[0].is_same(y));
  CHECK(y.to_vector() == Values{2, 4});
  CHECK_FALSE(out[1].requires_grad());
  y.sum().backward();
  CHECK(x.grad().to_vector() == Values{2, 2});
  CHECK_THROWS_WITH_AS(Doubled::apply(x), doctest::Contains("leaf Variable that requires grad"),
                       Error);
}

TEST_CASE("if forward changes a view, the base and its gradients change") {
  const Tensor x = leaf({1, 2, 3});
  Tensor y = x * 1;
  Doubled::apply(y.slice(0, 0, 2));
  y.sum().backward();
  CHECK(x.grad().to_vector() == Values{2, 2, 1});
}

TEST_CASE("inputs and outputs may be lists; missing gradients are zero or undefined") {
  for (const bool materialize : {true, false}) {
    Both::materialize = materialize;
    const Tensor a = leaf({2}), b = leaf({5});
    const auto out = Both::apply(TensorList{a, b});
    out[1].sum().backward();
    CHECK(a.grad().item() == 5);
    CHECK(b.grad().item() == 2);
    CHECK(Both::undefined == (materialize ? 0 : 1));
  }
  Both::materialize = true;
  const Tensor a = leaf({2}), b = leaf({5});
  const auto out = Both::apply(TensorList{a, b});
  autograd::backward({out[0], out[1]}, {ones({1}, kFloat64), ones({1}, kFloat64)});
  CHECK(a.grad().item() == 6);
}

TEST_CASE("a rule with too few or too many gradients says how many") {
  const Tensor x = leaf({1});
  CHECK_THROWS_WITH_AS(Wrong<1>::apply(x, 1.0).backward(),
                       doctest::Contains("gave 1 gradients for the 2 arguments"), Error);
  CHECK_THROWS_WITH_AS(Wrong<2>::apply(x, 1.0).backward(),
                       doctest::Contains("argument 1, which is no tensor"), Error);
  CHECK_THROWS_WITH_AS(Wrong<3>::apply(x, 1.0).backward(), doctest::Contains("gave 3"), Error);
}

TEST_CASE("an input that forward returns becomes another tensor with the op's history") {
  const Tensor x = leaf({1});
  const Tensor y = Through::apply(x);
  CHECK_FALSE(y.is_same(x));
  y.backward();
  CHECK(x.grad().item() == 7);
}

TEST_CASE("a released op and a changed saved tensor are errors") {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  const Tensor y = Product::apply(x, 1, w);
  y.sum().backward();
  CHECK_THROWS_WITH_AS(y.sum().backward(), doctest::Contains("already released"), Error);
  Tensor z = x * 1;
  const Tensor u = Product::apply(z, 1, w);
  z.mul_(2);
  CHECK_THROWS_WITH_AS(u.sum().backward(), doctest::Contains("`Function` needs was changed"),
                       Error);
}

TEST_CASE("saved data of another kind is refused") {
  AutogradContext ctx;
  ctx.saved_data["n"] = 3;
  CHECK(ctx.saved_data["n"].toInt() == 3);
  CHECK_THROWS_WITH_AS(ctx.saved_data["n"].toDouble(), doctest::Contains("not a double"), Error);
  CHECK_THROWS_AS(ctx.get_saved_variables(), Error);
}

TEST_CASE("saved data knows its kind, and gives back what was saved") {
  using autograd::SavedValue;
  const auto kinds = [](const SavedValue& v) {
    std::string all;
    if (v.isBool()) all += "bool ";
    if (v.isInt()) all += "int ";
    if (v.isDouble()) all += "double ";
    if (v.isString()) all += "string ";
    if (v.isTensor()) all += "tensor ";
    if (v.isTensorList()) all += "list ";
    return all;
  };
  const Tensor x = leaf({1}), y = leaf({2});
  const SavedValue list = TensorList{x, y};
  CHECK(kinds(SavedValue()) == "");
  CHECK(kinds(true) == "bool ");
  CHECK(kinds(3) == "int ");
  CHECK(kinds(0.5) == "double ");
  CHECK(kinds("sum") == "string ");
  CHECK(kinds(x) == "tensor ");
  CHECK(kinds(list) == "list ");
  CHECK(SavedValue(true).toBool());
  CHECK(SavedValue("sum").toStringRef() == "sum");
  REQUIRE(list.toTensorVector().size() == 2);
  CHECK(list.toTensorVector()[1].is_same(y));
  CHECK_THROWS_WITH_AS(SavedValue(x).toTensorVector(),
                       "saved_data: the value is not a list of tensors", Error);
}

TEST_CASE("an optional tensor is an argument like any other") {
  struct MaybeTimes : Function<MaybeTimes> {
    static Tensor forward(AutogradContext* ctx, Tensor x, std::optional<Tensor> factor) {
      ctx->save_for_backward({x, factor.value_or(Tensor())});
      return factor ? x * *factor : x * 1;
    }
    static variable_list backward(AutogradContext* ctx, variable_list g) {
      const variable_list saved = ctx->get_saved_variables();
      if (!saved[1].defined()) return {g[0], Tensor()};
      return {g[0] * saved[1], g[0] * saved[0]};
    }
  };
  const Tensor x = full({2}, 3.0), factor = full({2}, 5.0, requires_grad());
  MaybeTimes::apply(x, std::optional<Tensor>(factor)).sum().backward();
  CHECK(factor.grad().equal(x));
  const Tensor y = full({2}, 3.0, requires_grad());
  MaybeTimes::apply(y, std::optional<Tensor>()).sum().backward();
  CHECK(y.grad().equal(ones({2})));
}

TEST_CASE("a view that forward returns is refused where its base or itself changes") {
  struct Seen : Function<Seen> {
    static Tensor forward(AutogradContext*, const Tensor& x) { return x.view({2, 1}); }
    static variable_list backward(AutogradContext*, variable_list g) {
      return {g[0].reshape({2}) * 7};
    }
  };
  using testing::message;
  constexpr auto in_function = "A view was created inside a custom Function and ";
  for (const auto apply : {&Through::apply<const Tensor&>, &Seen::apply<const Tensor&>}) {
    const Tensor x = leaf({1, 2}), z = x * 1, y = apply(z);
    CHECK(y._base().is_same(z));
    CHECK(message([&] { y.mul_(2); }).find(in_function) != std::string::npos);
    const Tensor before = y.sum();
    z.mul_(2);
    CHECK(message([&] { y.sum(); }).starts_with(std::string(in_function) + "its base"));
    CHECK(y.detach().sum().item() == 6);
    before.backward();
    CHECK(x.grad().to_vector() == Values{7, 7});
    {
      const NoGradGuard no_grad;
      x.mul_(2);
    }
    CHECK_FALSE(apply(x.detach()).requires_grad());
  }
}

TEST_CASE("a view of what forward changes may be an output beside it") {
  struct Beside : Function<Beside> {
    static variable_list forward(AutogradContext* ctx, Tensor x) {
      x.mul_(2);
      ctx->mark_dirty({x});
      return {x.view({2, 1}), x};
    }
    static variable_list backward(AutogradContext*, variable_list g) {
      return {2 * (g[0].reshape({2}) + g[1])};
    }
  };
  const Tensor x = leaf({1, 2});
  const variable_list y = Beside::apply(x * 1);
  (y[0].sum() + y[1].sum()).backward();
  CHECK(x.grad().to_vector() == Values{4, 4});
}

TEST_CASE("an output that forward records itself is as good as another") {
  struct Recorded : Function<Recorded> {
    static Tensor forward(AutogradContext*, const Tensor& x) {
      const AutoGradMode recording(true);
      return x * 2;
    }
    static variable_list backward(AutogradContext*, variable_list g) { return {g[0] * 2}; }
  };
  const Tensor x = leaf({1, 2}), y = Recorded::apply(x);
  CHECK_FALSE(y.is_view());
  y.mul_(3);
  y.sum().backward();
  CHECK(x.grad().to_vector() == Values{6, 6});
}

TEST_CASE("a saved input keeps its own history though forward returns it") {
  struct Cube : Function<Cube> {
    static Tensor forward(AutogradContext* ctx, const Tensor& x) {
      ctx->save_for_backward({x});
      return x;
    }
    static variable_list backward(AutogradContext* ctx, variable_list g) {
      const Tensor x = ctx->get_saved_variables()[0];
      return {g[0] * x * x};
    }
  };
  const Tensor x = leaf({3});
  const Tensor g = autograd::grad({Cube::apply(x)}, {x}, {}, {}, true)[0];
  CHECK(g.item() == 9);
  CHECK(autograd::grad({g}, {x})[0].item() == 6);
}

TEST_CASE("forward may change no view of a parameter, and a constant of what it changes is apart") {
  struct Constant : Function<Constant> {
    static Tensor forward(AutogradContext* ctx, Tensor x) {
      x.mul_(2);
      ctx->mark_dirty({x});
      ctx->mark_non_differentiable({x});
      return x;
    }
    static variable_list backward(AutogradContext*, variable_list g) { return {g[0] * 2}; }
  };
  const Tensor w = leaf({1, 2, 3});
  CHECK_THROWS_WITH_AS(Doubled::apply(w.slice(0, 0, 2)),
                       doctest::Contains("a leaf Variable that requires grad is being used in an "
                                         "in-place operation, itself or a view of it"),
                       Error);
  CHECK(w.is_leaf());
  const Tensor x = leaf({1, 2}), z = x * 1, y = Constant::apply(z);
  CHECK_FALSE(y.is_same(z));
  CHECK_FALSE(y.requires_grad());
  CHECK(z.requires_grad());
  CHECK(y.to_vector() == Values{2, 4});
  CHECK(z.equal(y));
}

TEST_CASE("an output that is undefined has an undefined gradient, and may be an input, too") {
  struct Optional : Function<Optional> {
    static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& bias) {
      ctx->save_for_backward({x, bias});
      return {x * 2, Tensor()};
    }
    static variable_list backward(AutogradContext* ctx, variable_list g) {
      CHECK(ctx->get_saved_variables()[0].defined());
      CHECK_FALSE(ctx->get_saved_variables()[1].defined());
      CHECK_FALSE(g[1].defined());
      return {g[0] * 2, Tensor()};
    }
  };
  const Tensor x = leaf({1, 2});
  const variable_list y = Optional::apply(x, Tensor());
  CHECK_FALSE(y[1].defined());
  y[0].sum().backward();
  CHECK(x.grad().to_vector() == Values{2, 2});
}

TEST_CASE("a rule may write to its gradient, though backward() was given none") {
  struct Twice : Function<Twice> {
    static Tensor forward(AutogradContext*, const Tensor& x) { return x * 2; }
    static variable_list backward(AutogradContext*, variable_list g) { return {g[0].mul_(2)}; }
  };
  const Tensor a = leaf({1}), b = leaf({1}), sum = b + full({1}, 1.0, kFloat64);
  autograd::backward({Twice::apply(a), sum});
  CHECK(a.grad().item() == 2);
  CHECK(b.grad().item() == 1);
}
