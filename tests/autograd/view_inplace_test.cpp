// Writing through views: values, versions, and gradients against the out-of-place form.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <functional>
#include <limits>
#include <random>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using testing::differ;

namespace {

Tensor leaf(const Shape& shape, double from = 0.3) {
  std::vector<double> v(static_cast<size_t>(numel(shape)));
  for (size_t i = 0; i < v.size(); ++i) v[i] = from + 0.37 * static_cast<double>(i % 11);
  return tensor(v, kFloat64).reshape(shape).detach().requires_grad_();
}

/// The gradient of a sum of f(x) with different weights.
std::vector<double> gradient(const std::function<Tensor(const Tensor&)>& f, const Shape& shape) {
  const Tensor x = leaf(shape);
  const Tensor y = f(x);
  std::vector<double> w(static_cast<size_t>(y.numel()));
  for (size_t i = 0; i < w.size(); ++i) w[i] = 1 + 0.25 * static_cast<double>(i * i % 7);
  (y * tensor(w, kFloat64).reshape(y.sizes())).sum().backward();
  return x.grad().to_vector();
}

}  // namespace

TEST_CASE("a change through a view is a change of the base, in values and gradients") {
  const auto plain = gradient(
      [](const Tensor& x) {
        const Tensor y = x * 2;
        const Tensor row = y.select(0, 1) * 3;  // the out-of-place form
        return as_strided_scatter(y, row, {4}, {1}, 4);
      },
      {3, 4});
  const auto written = gradient(
      [](const Tensor& x) {
        Tensor y = x * 2;
        y.select(0, 1).mul_(3);
        return y;
      },
      {3, 4});
  CHECK(written == plain);
  CHECK(written[0] == doctest::Approx(2));
  CHECK(written[4] == doctest::Approx(6 * (1 + 0.25 * 2)));
}

TEST_CASE("views made before a change follow it, and the written view too") {
  const Tensor x = leaf({2, 3});
  Tensor y = x * 1;
  const Tensor before = y.view({6}), turned = y.t();
  Tensor row = y.select(0, 0);
  row.mul_(10);
  CHECK(before.to_vector()[1] == 10 * x.to_vector()[1]);
  for (const Tensor& v : {before, turned, y, row}) {
    CHECK(v.requires_grad());
    const auto g = autograd::grad({v.sum()}, {x}, {}, true)[0].to_vector();
    CHECK(g[0] == 10);
    CHECK(g[5] == (v.is_same(row) ? 0 : 1));
  }
  CHECK(std::string(row.grad_fn()->name()) == "as_strided");
  CHECK(std::string(y.grad_fn()->name()) == "as_strided_scatter");
}

TEST_CASE("a change of the base reaches the views' histories") {
  const Tensor x = leaf({4});
  Tensor y = x * 1;
  const Tensor v = y.slice(0, 1, 3);
  y.mul_(5);
  CHECK(autograd::grad({v.sum()}, {x})[0].to_vector() == std::vector<double>{0, 5, 5, 0});
  CHECK(v.to_vector()[0] == 5 * x.to_vector()[1]);
}

TEST_CASE("parameters that are copied to rows of a tensor without history get gradients") {
  const Tensor a = leaf({3}), b = leaf({3}, 2);
  Tensor y = zeros({4, 3}, kFloat64);
  Tensor first = y.select(0, 0);
  first.copy_(a);
  y.select(0, 2).add_(b * b);
  y.select(0, 3).fill_(7);
  CHECK(y.requires_grad());
  CHECK_FALSE(y.is_leaf());
  y.sum().backward();
  CHECK(a.grad().to_vector() == std::vector<double>{1, 1, 1});
  CHECK(differ(b.grad(), (2 * b).to_vector(), {.ulps = 1}) == "");
  CHECK(y.to_vector()[9] == 7);
}

TEST_CASE("filled parts pass no gradient on, the rest does") {
  const Tensor x = leaf({2, 2});
  Tensor y = x * 3;
  y.select(1, 0).zero_();
  y.sum().backward();
  CHECK(x.grad().to_vector() == std::vector<double>{0, 3, 0, 3});

  const Tensor z = leaf({2});
  Tensor w = z * 3;
  w.fill_(1);
  CHECK(w.requires_grad());
  w.sum().backward();
  CHECK((!z.grad().defined() || z.grad().to_vector() == std::vector<double>{0, 0}));
}

TEST_CASE("random chains of views and writes have the gradients of their out-of-place forms") {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    // The same moves on a view that is written, and on a list of places that is scattered to.
    const Shape shape{3, 4, 2};
    const Tensor x = leaf(shape), p = x.detach().requires_grad_();
    Tensor y = x * 1;
    Tensor q = p * 1;
    for (int write = 0; write < 3; ++write) {
      Tensor view = y;
      Tensor places = arange(24, kInt64).reshape(shape);
      for (int move = 0; move < 3; ++move) {
        const auto d = static_cast<int64_t>(random() % static_cast<unsigned>(view.dim()));
        auto both = [&](auto f) { view = f(view), places = f(places); };
        switch (random() % 4) {
          case 0:
            both([&](const Tensor& t) { return t.transpose(0, d); });
            break;
          case 1:
            if (view.dim() > 1) both([&](const Tensor& t) { return t.select(d, t.size(d) - 1); });
            break;
          case 2:
            both([&](const Tensor& t) { return t.slice(d, 0, 4, 2); });
            break;
          default:
            both([&](const Tensor& t) { return t.unsqueeze(d); });
        }
      }
      const double factor = 1.5 + write;
      const Tensor index = places.reshape({-1});
      const Tensor flat = q.reshape({24}), picked = index_select(flat, 0, index);
      if (random() % 2) {
        view.mul_(factor);
        q = scatter_add(flat, 0, index, picked * factor - picked).reshape(shape);
      } else {
        const Tensor add = (x.sum() * 0.1).expand(view.sizes());
        view.add_(add);
        q = scatter_add(flat, 0, index, (p.sum() * 0.1).expand(index.sizes())).reshape(shape);
      }
    }
    const Tensor weights = arange(24, kFloat64).reshape(shape);
    REQUIRE(differ(y, q, {.ulps = 8, .eps = 4}) == "");
    (y * y * weights).sum().backward();
    (q * q * weights).sum().backward();
    REQUIRE(differ(x.grad(), p.grad(), {.ulps = 64, .eps = 16}) == "");
  }
}

TEST_CASE("second derivatives pass through a written view") {
  auto f = [](const TensorList& in) {
    Tensor y = in[0] * in[0];
    y.select(0, 1).mul_(in[1]);
    y.slice(1, 0, 2).add_(1);
    return y;
  };
  const TensorList in{leaf({2, 3}), leaf({3}, 1)};
  CHECK(autograd::gradcheck(f, in));
  CHECK(autograd::gradgradcheck(f, in));
}

TEST_CASE("a write through a view to a saved tensor is an error with op, shape and versions") {
  const Tensor x = leaf({2, 2});
  Tensor y = x * 1;
  const Tensor z = y * y;  // saves y
  y.select(0, 0).zero_();
  CHECK_THROWS_WITH_AS(z.sum().backward(),
                       doctest::Contains("shape [2, 2] that `mul` needs was changed in place after "
                                         "it was saved (version 1, saved at 0)"),
                       Error);
}

TEST_CASE("views that may not be written say why") {
  const Tensor x = leaf({3});
  CHECK_THROWS_WITH_AS(x.slice(0, 0, 1).zero_(), doctest::Contains("a view of it"), Error);
  {
    const NoGradGuard no_grad;
    x.slice(0, 0, 1).zero_();  // a parameter may be written without recording
  }
  CHECK(x.to_vector()[0] == 0);
  Tensor y = x * 2;
  CHECK_THROWS_WITH_AS(y.expand({2, 3}).mul_(2), doctest::Contains("expanded"), Error);
  Tensor quiet;
  {
    const NoGradGuard no_grad;
    quiet = y.slice(0, 0, 2);
  }
  CHECK_THROWS_WITH_AS(quiet.mul_(y.slice(0, 0, 2)), doctest::Contains("no_grad mode"), Error);
  // As in PyTorch, a view made under NoGradGuard requires grad as its base, but ends gradients.
  CHECK(quiet.requires_grad());
  CHECK(quiet.is_leaf());
  const Tensor end = (quiet * quiet).sum();
  CHECK(end.requires_grad());
  end.backward();
  CHECK_FALSE(quiet.grad().defined());
  CHECK_THROWS_WITH_AS(quiet.sum().backward({}, {}, false, {quiet}),
                       doctest::Contains("input 0 does not require grad"), Error);
  CHECK_THROWS_WITH_AS(quiet.register_hook([](const Tensor& g) { return g; }),
                       doctest::Contains("no gradient will come"), Error);
  quiet.requires_grad_(false);
  CHECK_FALSE((quiet * quiet).requires_grad());
  quiet.requires_grad_();
  (quiet * quiet).sum().backward();
  CHECK(quiet.grad().equal(quiet * 2));
  Tensor detached = y.detach();
  detached.mul_(2);  // shares the bytes, but no history
  CHECK_FALSE(detached.requires_grad());
}

TEST_CASE("_base and is_view tell what a view was cut from") {
  const Tensor x = leaf({2, 3});
  const Tensor v = x.t().select(0, 1);
  CHECK(v.is_view());
  CHECK(v._base().is_same(x));
  CHECK_FALSE(x.is_view());
  CHECK_THROWS_WITH_AS(x._base(), doctest::Contains("not a view"), Error);
}

TEST_CASE("as_strided shows windows, even overlapping ones, and does not reach beyond the tensor") {
  const Tensor x = leaf({6});
  const Tensor w = as_strided(x, {4, 3}, {1, 1});  // sliding windows
  CHECK(w.to_vector()[5] == x.to_vector()[3]);
  w.sum().backward();
  CHECK(x.grad().to_vector() == std::vector<double>{1, 2, 3, 3, 2, 1});
  auto f = [](const TensorList& in) {
    return as_strided(in[0], {2, 2}, {2, 1}, 1) * as_strided(in[0], {2, 2}, {1, 1});
  };
  CHECK(autograd::gradcheck(f, {leaf({6})}));
  CHECK(autograd::gradgradcheck(f, {leaf({6})}));
  CHECK_THROWS_WITH_AS(as_strided(x, {4, 4}, {1, 1}), doctest::Contains("reach beyond the 6"),
                       Error);
  CHECK_THROWS_WITH_AS(as_strided(x, {2}, {1, 1}), doctest::Contains("1 sizes and 2 strides"),
                       Error);
  CHECK_THROWS_WITH_AS(as_strided(leaf({2, 3}).t(), {2}, {1}), doctest::Contains("contiguous"),
                       Error);
}

TEST_CASE("copy_ between overlapping views reads the source as it was before") {
  for (const Dtype dtype : {kFloat32, kFloat16, kInt64}) {
    const auto eight = [&] { return arange(8).to(dtype); };
    using Values = std::vector<double>;
    const Tensor up = eight(), down = eight(), every = eight(), assigned = eight();
    up.slice(0, 1).copy_(up.slice(0, 0, -1));
    CHECK(up.to_vector() == Values{0, 0, 1, 2, 3, 4, 5, 6});
    down.slice(0, 0, -1).copy_(down.slice(0, 1));
    CHECK(down.to_vector() == Values{1, 2, 3, 4, 5, 6, 7, 7});
    every.slice(0, 0, 4).copy_(every.slice(0, 0, 8, 2));
    CHECK(every.to_vector() == Values{0, 2, 4, 6, 4, 5, 6, 7});
    assigned.index_put_({indexing::Slice(1)}, assigned.slice(0, 0, -1));
    CHECK(assigned.to_vector() == Values{0, 0, 1, 2, 3, 4, 5, 6});
    const Tensor square = arange(9).to(dtype).reshape({3, 3});
    square.copy_(square.t());
    CHECK(square.to_vector() == Values{0, 3, 6, 1, 4, 7, 2, 5, 8});
    const Tensor row = square.select(0, 1);
    square.copy_(row);  // broadcast over itself
    CHECK(square.to_vector() == Values{1, 4, 7, 1, 4, 7, 1, 4, 7});
    square.copy_(square);
    CHECK(square.to_vector() == Values{1, 4, 7, 1, 4, 7, 1, 4, 7});
    const Tensor evens = arange(398).to(dtype).slice(0, 0, 398, 2);
    evens.slice(0, 99).copy_(evens.slice(0, 0, 100));  // they share the element 99 alone
    CHECK(evens[99].item<double>() == 0);
    CHECK(evens[198].item<double>() == 198);
  }
}

TEST_CASE("a view in which elements share memory can be read, but not written") {
  const Tensor x = arange(6).to(kFloat32);
  CHECK_THROWS_WITH_AS(x.unfold(0, 3, 1).add_(1), doctest::Contains("clone() it first"), Error);
  CHECK_THROWS_WITH_AS(x.unfold(0, 3, 2).zero_(), doctest::Contains("[2, 3]"), Error);
  CHECK_THROWS_WITH_AS(as_strided(x, {2, 3}, {2, 1}).zero_(), doctest::Contains("one place"),
                       Error);
  CHECK(x.to_vector() == std::vector<double>{0, 1, 2, 3, 4, 5});
  x.unfold(0, 2, 2).mul_(2);  // no overlap
  x.unfold(0, 1, 3).add_(1);
  CHECK(x.to_vector() == std::vector<double>{1, 2, 4, 7, 8, 10});
  const Tensor y = ones({8});
  as_strided(y, {2, 3}, {3, 2}).zero_();  // strides that interleave: places 0, 2, 4, 3, 5, 7
  CHECK(y.to_vector() == std::vector<double>{0, 1, 0, 0, 0, 0, 1, 0});
  CHECK(as_strided_scatter(ones({8}), zeros({2, 3}), {2, 3}, {3, 2}).equal(y));
}

TEST_CASE("in-place methods read arguments that share their memory as they were before") {
  using Op = void (*)(const Tensor& x, const Tensor& source);
  constexpr Op ops[] = {[](const Tensor& x, const Tensor& y) { x.add_(y); },
                        [](const Tensor& x, const Tensor& y) { x.mul_(y); },
                        [](const Tensor& x, const Tensor& y) { x.lerp_(y, 0.25); },
                        [](const Tensor& x, const Tensor& y) { x.addcmul_(y, y); },
                        [](const Tensor& x, const Tensor& y) { x.lt_(y); },
                        [](const Tensor& x, const Tensor& y) { x.masked_fill_(y > 4, 9); },
                        [](const Tensor& x, const Tensor& y) { x.masked_scatter_(x > 4, y); },
                        [](const Tensor& x, const Tensor& y) {
                          x.index_put_({tensor({2, 0, 1})}, y);
                        },
                        [](const Tensor& x, const Tensor& y) {
                          x.index_add_(0, tensor({2, 0, 1}), y);
                        },
                        [](const Tensor& x, const Tensor& y) {
                          x.scatter_(0, zeros({3, 3}, kInt64), y);
                        },
                        [](const Tensor& x, const Tensor& y) { x.addmm_(x, y); },
                        [](const Tensor& x, const Tensor& y) { x.copy_(y); }};
  const auto nine = [] { return arange(16, kFloat32).reshape({4, 4}); };
  using Source = Tensor (*)(const Tensor& all);
  constexpr Source sources[] = {
      [](const Tensor& all) { return all.slice(0, 1).slice(1, 1); },
      [](const Tensor& all) { return all.slice(0, 0, 3).slice(1, 1).t(); },
      [](const Tensor& all) {
        return all[1].slice(0, 1).expand({3, 3});
      }};
  for (const Op op : ops)
    for (const Source source : sources) {
      const Tensor shared = nine(), apart = nine();
      op(shared.slice(0, 0, 3).slice(1, 0, 3), source(shared));
      op(apart.slice(0, 0, 3).slice(1, 0, 3), source(apart).clone());
      CHECK(shared.equal(apart));
    }
}

TEST_CASE("an in-place result of a higher kind than the tensor's dtype is refused") {
  const Tensor b = tensor({true, false}), i = tensor({1, 2}), f = tensor({1.5, 2.5});
  using Refused = std::function<void()>;
  const Refused refused[] = {
      [&] { b.add_(1); },      [&] { b.add_(i); },        [&] { b.mul_(2); },    [&] { b.pow_(i); },
      [&] { b.clamp_(0, 1); }, [&] { b.bitwise_or_(1); }, [&] { b.cumsum_(0); }, [&] { b.div_(b); },
      [&] { i.add_(0.5); },    [&] { i.div_(2); },        [&] { i.exp_(); },     [&] { i.mul_(f); },
      [&] { i.clamp_(0.5); },  [&] { i.addcmul_(f, f); }};
  for (const Refused& call : refused)
    CHECK_THROWS_WITH_AS(call(), doctest::Contains("can't be cast to the desired output type"),
                         Error);
  CHECK(b.equal(tensor({true, false})));
  CHECK(i.equal(tensor({1, 2})));
  CHECK(can_cast(kInt64, kUInt8));
  CHECK_FALSE(can_cast(kFloat16, kInt64));
  CHECK_THROWS_WITH_AS(b.add_(1),
                       "add_: result type int64 can't be cast to the desired output type bool; use "
                       "the form that is not in place",
                       Error);
  b.add_(true).logical_or_(f).mul_(true).bitwise_and_(b).eq_(1);
  CHECK(b.equal(tensor({true, true})));
  i.to(kUInt8).mul_(i);
  i.add_(b).gt_(1.5);
  f.mul_(i).lt_(tensor({9.0}, kFloat64));
  CHECK(f.to_vector() == std::vector<double>{1, 1});
  CHECK_THROWS_WITH_AS(i.uniform_(), doctest::Contains("uniform_: of a tensor of int64"), Error);
  CHECK_THROWS_WITH_AS(b.normal_(), doctest::Contains("normal_: of a tensor of bool"), Error);
}

TEST_CASE("a number that the dtype cannot hold is refused in place, and changes nothing") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto refuses = [](Dtype dtype, double value) {
    const Tensor x = ones({3}, dtype), first = tensor({0}), mask = x > 0;
    const std::pair<const char*, std::function<void()>> calls[] = {
        {"fill_", [&] { x.fill_(value); }},
        {"masked_fill", [&] { x.masked_fill_(mask, value); }},
        {"index_fill", [&] { x.index_fill_(0, first, value); }},
        {"index_put", [&] { x.index_put_({first}, value); }},
        {"index_put", [&] { x.index_put_({indexing::Slice(1)}, value); }},
        {"scatter", [&] { x.scatter_(0, first, value); }},
        {"scatter", [&] { x.scatter_(0, first, value, "add"); }}};
    for (const auto& [op, call] : calls) {
      const std::string text = testing::message(call);
      if (text.find(std::string(op) + ": value cannot be converted to type ") != 0) return false;
    }
    return x.equal(ones({3}, dtype));
  };
  for (const Dtype dtype : {kUInt8, kInt8, kInt16, kInt32, kInt64}) {
    CHECK(refuses(dtype, nan));
    CHECK(refuses(dtype, -1e30));
  }
  CHECK(refuses(kUInt8, 256));
  CHECK(refuses(kFloat16, 1e6));
  CHECK(refuses(kFloat32, 1e300));
  CHECK_FALSE(refuses(kBool, nan));
  CHECK_FALSE(refuses(kFloat16, -std::numeric_limits<double>::infinity()));
  CHECK(ones({1}, kInt64).fill_(2.75).item() == 2);
}

TEST_CASE("views outlast a write to a tensor that is not contiguous, where nothing is recorded") {
  Tensor d = tensor({0.f, 1.f, 2.f, 3.f}).view({2, 2}).t().detach();
  const Tensor row = d[0];
  d.mul_(2);
  CHECK((row + 1).to_vector() == std::vector<double>{1, 5});
  d.fill_(3);
  CHECK(row.sum().item() == 6);
  const Tensor x = tensor({0.f, 1.f, 2.f, 3.f}).requires_grad_();
  Tensor y = (x * 2).view({2, 2}) * 1;
  const Tensor first = y[0];
  y.t_();
  first.sum().backward();
  CHECK(x.grad().to_vector() == std::vector<double>{2, 2, 0, 0});
}

TEST_CASE("a write through a view that its base's history cannot follow changes nothing") {
  Tensor base = empty_strided({2, 3}, {1, 4}).fill_(0);
  const Tensor w = ones({3}).requires_grad_();
  const uint64_t version = base.version();
  using testing::message;
  CHECK(message([&] { base[0].copy_(w); }).find("is a view of one with sizes") !=
        std::string::npos);
  CHECK(message([&] { base[0].add_(w); }).find("between its elements") != std::string::npos);
  CHECK(base.equal(zeros({2, 3})));
  CHECK(base.version() == version);
  base[0].copy_(w.detach());  // no history is concerned
  CHECK(base.sum().item<double>() == 3);
}

TEST_CASE("a view is not written where its base has other bytes, or fewer, since") {
  for (const bool shorter : {false, true}) {
    const Tensor w = leaf({2});
    Tensor base = arange(4, kFloat64);
    const Tensor view = base.slice(0, 2, 4);
    if (shorter)
      base.resize_({2});
    else
      base.set_data(zeros({4}, kFloat64));
    const std::vector<double> before = view.to_vector();
    CHECK_THROWS_AS(view.mul_(w), Error);
    CHECK(view.to_vector() == before);
    CHECK_FALSE(base.requires_grad());
  }
}
