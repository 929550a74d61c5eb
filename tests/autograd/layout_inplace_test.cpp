// Methods that change a tensor's shape in place: transpose_ and its like, resize_; and random_.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <limits>

#include "halftape/tests/support/message.h"

using namespace halftape;
using testing::has;
using testing::message;

namespace {

using Numbers = std::vector<double>;

Tensor rising(const Shape& shape) { return arange(numel(shape), kFloat64).reshape(shape); }

}  // namespace

TEST_CASE(
    "transpose_ and its like change the tensor's layout, its version, and nothing in memory") {
  const Tensor x = rising({2, 3});
  const Tensor other = x;  // another handle
  const void* bytes = x.const_data_ptr();
  const uint64_t version = x._version();
  CHECK(x.transpose_(0, 1).is_same(x));
  CHECK(other.sizes() == Shape{3, 2});
  CHECK(other.equal(rising({2, 3}).t()));
  CHECK(x.const_data_ptr() == bytes);
  CHECK(x._version() == version + 1);
  CHECK(x.t_().equal(rising({2, 3})));
  CHECK(x.swapaxes_(0, -1).swapdims_(0, 1).equal(rising({2, 3})));
  CHECK(x.unsqueeze_(1).sizes() == Shape{2, 1, 3});
  CHECK(x.squeeze_(0).sizes() == Shape{2, 1, 3});
  CHECK(x.squeeze_(1).sizes() == Shape{2, 3});
  CHECK(x.unsqueeze_(-1).unsqueeze_(0).squeeze_().sizes() == Shape{2, 3});
  CHECK(x.is_leaf());
  CHECK(has(message([&] { x.transpose_(0, 2); }), "transpose"));
}

TEST_CASE("gradients pass through transpose_, of a tensor and of a view of one") {
  const Tensor x = rising({2, 3}).requires_grad_();
  const Tensor weights = rising({3, 2}) + 1;
  const Tensor y = x * 2;
  y.transpose_(0, 1);
  (y * weights).sum().backward();
  CHECK(x.grad().equal(2 * weights.t()));

  x.mutable_grad() = Tensor();
  const Tensor base = x * 3, view = base.view({3, 2});
  view.t_();
  CHECK(view.is_view());
  (view * weights.t()).sum().backward();
  CHECK(x.grad().equal(3 * weights.reshape({2, 3})));

  x.mutable_grad() = Tensor();
  const Tensor late = x * 1, part = late.view({3, 2});
  part.t_();
  part.mul_(weights.t());  // a write through the view reaches the base
  late.sum().backward();
  CHECK(x.grad().equal(weights.reshape({2, 3})));
}

TEST_CASE("transpose_ keeps to the rules of in-place methods") {
  const Tensor leaf = rising({2, 3}).requires_grad_();
  CHECK(has(message([&] { leaf.t_(); }), "a leaf Variable that requires grad"));
  CHECK(leaf.sizes() == Shape{2, 3});
  const Tensor y = leaf.exp();
  {
    const NoGradGuard no_grad;
    CHECK(has(message([&] { y.t_(); }), "under NoGradGuard"));
    leaf.t_();
  }
  CHECK(leaf.sizes() == Shape{3, 2});
  CHECK(leaf.is_leaf());
  (leaf * rising({3, 2})).sum().backward();
  CHECK(leaf.grad().equal(rising({3, 2})));

  // exp() saved its output; with another layout, backward would be wrong.
  const Tensor x = rising({2, 3}).requires_grad_();
  const Tensor saved = x.exp();
  saved.t_();
  CHECK(has(message([&] { saved.sum().backward(); }), "version"));

  Tensor inference;
  {
    const InferenceMode mode;
    inference = rising({2, 3});
    inference.t_();
  }
  CHECK(has(message([&] { inference.t_(); }), "InferenceMode"));
  CHECK(has(message([&] { inference.resize_({1}); }), "InferenceMode"));
}

TEST_CASE("resize_ keeps elements in their order in memory, and allocates more if needed") {
  const Tensor x = rising({2, 3}).clone();
  const Tensor name = x;
  const void* bytes = x.const_data_ptr();
  const uint64_t version = x._version();
  CHECK(x.resize_({2, 3}).is_same(x));
  CHECK(x._version() == version);
  x.resize_({2, 2});
  CHECK(x.to_vector() == Numbers{0, 1, 2, 3});
  CHECK(x.const_data_ptr() == bytes);
  CHECK(x._version() > version);
  x.resize_({3, 2});
  CHECK(x.to_vector() == Numbers{0, 1, 2, 3, 4, 5});
  x.t_();
  x.resize_({6});  // the order in memory, not that of t_()
  CHECK(x.to_vector() == Numbers{0, 1, 2, 3, 4, 5});
  x.resize_({1000, 1000});
  CHECK(name.sizes() == Shape{1000, 1000});
  CHECK(x.flatten().slice(0, 0, 6).to_vector() == Numbers{0, 1, 2, 3, 4, 5});
  x.fill_(1);
  CHECK(x.sum().item<double>() == 1e6);
  CHECK(x.resize_as_(rising({4})).sizes() == Shape{4});

  const Tensor none = empty({0});
  CHECK(none.resize_({2, 2}).zero_().sum().item<double>() == 0);
  const Tensor row = rising({3, 2})[1];
  CHECK(row.resize_({4}).to_vector() == Numbers{2, 3, 4, 5});
}

TEST_CASE("resize_ refuses a tensor that requires grad, and to enlarge memory that others share") {
  const Tensor leaf = rising({2, 3}).requires_grad_();
  CHECK(has(message([&] { leaf.resize_({6}); }), "cannot resize variables that require grad"));
  const Tensor x = rising({2, 3}), view = x[0];
  const auto refused = [](const Tensor& t) {
    const std::string text = message([&] { t.resize_({1000, 1000}); });
    return has(text, "[1000, 1000]") && has(text, "share") && has(text, "clone()");
  };
  CHECK(refused(view));
  CHECK(refused(x));
  CHECK(x.sizes() == Shape{2, 3});
  CHECK(has(message([&] { x.resize_({-1}); }), "-1"));
}

TEST_CASE("random_ draws integers of a range, by default all that the dtype has") {
  for (const Dtype d : {kFloat32, kFloat64, kFloat16, kInt64, kInt32}) {
    CAPTURE(d);
    const Tensor x = empty({1000}, TensorOptions(d));
    x.random_(-3, 5);
    CHECK(x.amin().item<int64_t>() == -3);
    CHECK(x.amax().item<int64_t>() == 4);
    CHECK(x.equal(x.to(kInt64).to(d)));
    x.random_(2);
    CHECK(x.amin().item<int64_t>() == 0);
    CHECK(x.amax().item<int64_t>() == 1);
  }
  const auto most = [](Dtype d) {
    return empty({10000}, TensorOptions(d)).random_().amax().item<double>();
  };
  CHECK(most(kFloat16) <= 2048);
  CHECK(most(kFloat16) > 2000);
  CHECK(most(kBFloat16) <= 256);
  CHECK(most(kUInt8) == 255);
  CHECK(most(kBool) == 1);
  CHECK(most(kFloat32) > 0x1p23);
  CHECK(most(kInt32) > 0x1p30);
  CHECK(has(message([] { empty({1}, kUInt8).random_(-1, 2); }), "random_: the range [-1, 2)"));
  CHECK(has(message([] { empty({1}, kFloat16).random_(4000); }), "not within the integers"));
  CHECK(has(message([] { empty({1}).random_(3, 3); }), "empty"));
}

TEST_CASE("a change of shape that changes nothing gives a tensor of its own, of the same bytes") {
  const auto given = [](int how, const Tensor& x) {
    return how == 0   ? x.reshape({2, 3})
           : how == 1 ? x.reshape({2, -1})
           : how == 2 ? x.squeeze()
           : how == 3 ? x.squeeze(0)
           : how == 4 ? x.squeeze(Dims{0, 1})
                      : x.movedim(Dims{}, Dims{});
  };
  for (int how = 0; how < 6; ++how) {
    CAPTURE(how);
    const Tensor x = rising({2, 3});
    const Tensor y = given(how, x);
    CHECK_FALSE(y.is_same(x));
    CHECK(y.const_data_ptr() == x.const_data_ptr());
    y.unsqueeze_(0);
    y.requires_grad_();
    CHECK(x.sizes() == Shape{2, 3});
    CHECK_FALSE(x.requires_grad());

    const Tensor leaf = rising({2, 3}).requires_grad_();
    const Tensor z = given(how, leaf);
    CHECK_FALSE(z.is_leaf());
    z.retain_grad();
    z.register_hook([](const Tensor& g) { return g * 100; });
    (z.sum() + leaf.sum()).backward();
    CHECK(z.grad().to_vector() == Numbers(6, 100));
    CHECK(leaf.grad().to_vector() == Numbers(6, 101));
    const NoGradGuard no_grad;
    given(how, leaf).mul_(2);
    CHECK(leaf.equal(rising({2, 3}) * 2));
  }
  const Tensor x = rising({2, 3}), row = rising({3}), number = rising({});
  CHECK(x.flatten(1).is_same(x));  // as in torch
  row.t().unsqueeze_(0);
  number.t().unsqueeze_(0);
  number.movedim(0, 0).unsqueeze_(0);
  CHECK(row.sizes() == Shape{3});
  CHECK(number.sizes() == Shape{});
}

TEST_CASE("what was overwritten in place has the gradient 0, and its leaf one of zeros") {
  const auto overwrite = [](int how, const Tensor& y) {
    switch (how) {
      case 0:
        return y.zero_();
      case 1:
        return y.fill_(3);
      case 2:
        return y.copy_(ones({2, 3}));
      case 3:
        return y.uniform_(0, 1);
      default:
        return y.bernoulli_(0.5);
    }
  };
  for (int how = 0; how < 5; ++how) {
    CAPTURE(how);
    const Tensor x = rising({2, 3}).requires_grad_();
    const Tensor y = x * 1;
    overwrite(how, y);
    y.sum().backward();
    REQUIRE(x.grad().defined());
    CHECK(x.grad().to_vector() == Numbers(6, 0));
    const Tensor s = x.sigmoid();  // whose rule needs what is overwritten
    overwrite(how, s);
    CHECK(has(message([&] { s.sum().backward(); }), "changed in place"));
  }
}

TEST_CASE("views of a tensor whose dimensions were exchanged take part in its history") {
  const auto gradient = [](bool exchanged, const std::function<void(Tensor&, Tensor&)>& change) {
    const Tensor x = (arange(6).to(kFloat64) + 1).reshape({2, 3}).requires_grad_();
    Tensor y = exchanged ? x * 2 : x.t() * 2;  // y, or its transpose
    if (exchanged) y.t_();
    Tensor v = y[0];
    change(y, v);
    (v * v).sum().backward({}, true);
    (y * y).sum().backward();
    return x.grad().to_vector();
  };
  const auto same = [&](const std::function<void(Tensor&, Tensor&)>& change) {
    return gradient(true, change) == gradient(false, change);
  };
  CHECK(same([](Tensor& y, Tensor&) { y.mul_(3); }));
  CHECK(same([](Tensor&, Tensor& v) { v.mul_(3); }));
  CHECK(same([](Tensor&, Tensor& v) { v.fill_(3); }));
  CHECK(same([](Tensor&, Tensor& v) { v.unsqueeze_(0); }));
  CHECK(same([](Tensor& y, Tensor& v) { v.mul_(y[1].clone()); }));
  CHECK(same([](Tensor& y, Tensor& v) {
    y.exp_();
    v.unsqueeze_(1).mul_(2);
    y[1].zero_();
    v.squeeze_();
  }));
  CHECK(gradient(true, [](Tensor& y, Tensor& v) { y.exp_(), v.mul_(2); }) !=
        gradient(true, [](Tensor&, Tensor&) {}));
}
