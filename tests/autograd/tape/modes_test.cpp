// Anomaly mode and inference mode.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>

#include "halftape/core/machine/os.h"
#include "halftape/tests/support/backtraces.h"
#include "halftape/tests/support/failing.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/warnings.h"

using namespace halftape;
using testing::has;

namespace {

Tensor leaf(std::vector<double> v) { return tensor(v, kFloat64).requires_grad_(); }

// The gradient of broken() at 0 is 0·inf.
Tensor broken(const Tensor& x) { return sqrt(x) * 0.0; }
Tensor misfit(const Tensor& x) { return matmul(x, ones({7, 7}, kFloat64)); }

std::string message(const Tensor& loss) {
  return testing::message([&] { loss.backward(); });
}

/// A module of one call.
struct Root : nn::Module {
  explicit Root(Tensor (*f)(const Tensor&)) : call(f) {}
  Tensor forward(const Tensor& x) {
    const PlaceScope scope(*this);
    return call(x);
  }
  Tensor (*call)(const Tensor&);
};

}  // namespace

TEST_CASE("anomaly mode names the op whose rule made the first NaN, and the line of its call") {
  const Tensor x = leaf({0, 1});
  Tensor loss;
  {
    const autograd::DetectAnomalyGuard guard;
    CHECK(autograd::AnomalyMode::is_enabled());
    loss = (exp(broken(x)) * 3).sum();
    const std::string text = message(loss);
    CHECK(text.find("`sqrt` gave a NaN in the gradient of its input 0") != std::string::npos);
    CHECK(text.find("(float64 [2])") != std::string::npos);
    // The line of broken(); or its name, with the line of an inlined function; or, without
    // binutils, the offset of its code.
    CHECK_MESSAGE(
        (text.find("modes_test.cpp:25") != std::string::npos ||
         text.find("::broken(") != std::string::npos || text.find("+0x") != std::string::npos),
        text);
  }
  {
    const autograd::DetectAnomalyGuard guard;  // the gradient of 0/0 to input 0 is infinite
    CHECK(message(leaf({0}) / leaf({0})).find("in the gradient of its input 1") !=
          std::string::npos);
  }
  CHECK_FALSE(autograd::AnomalyMode::is_enabled());
  CHECK(message((broken(x) * 3).sum()).empty());  // off: NaN is no error
}

TEST_CASE("anomaly mode names infinities on request, and the module that called the op") {
  const Tensor x = leaf({0, 1});
  CHECK(message((sqrt(x) * 3).sum()).empty());
  {
    const autograd::DetectAnomalyGuard guard;
    CHECK_FALSE(autograd::AnomalyMode::should_check_inf());
    CHECK(message((sqrt(x) * 3).sum()).empty());  // 1/(2·√0) is infinite, and no NaN
  }
  const autograd::DetectAnomalyGuard guard(true, true);
  CHECK(has(message((sqrt(x) * 3).sum()),
            "`sqrt` gave an infinity in the gradient of its input 0 (float64 [2]); it was called"));
  {
    const autograd::DetectAnomalyGuard nan_alone;
    CHECK(message((sqrt(x) * 3).sum()).empty());
  }
  {
    const autograd::DetectAnomalyGuard calls_alone(false);
    CHECK(autograd::AnomalyMode::is_enabled());
    CHECK_FALSE(autograd::AnomalyMode::should_check_nan());
    CHECK(message((broken(x) * 3).sum()).empty());
    const Tensor used = sqrt(x + 1).sum();
    used.backward();
    CHECK(has(message(used), "it was called at"));
  }
  CHECK(autograd::AnomalyMode::should_check_inf());
  nn::Module model;
  const auto root = model.register_module(
      "root", std::make_shared<Root>([](const Tensor& t) { return sqrt(t); }));
  CHECK(has(message(root->forward(x).sum()), "(float64 [2]) in root; it was called"));
  // Other errors of backward name the place, too.
  const Tensor y = root->forward(x), z = root->forward(x + 1).sum();
  {
    const NoGradGuard no_grad;
    y.add_(1);
  }
  CHECK(has(message(y.sum()), "clone() it before the change in root; it was called at"));
  z.backward();
  CHECK(has(message(z), "to use the graph twice"));
}

TEST_CASE("with HALFTAPE_BACKTRACE=1 anomaly mode names the functions of the forward call, too") {
  const Tensor x = leaf({0, 1});
  const autograd::DetectAnomalyGuard guard;
  const Tensor loss = (exp(broken(x)) * 3).sum();
  CHECK_FALSE(has(message(loss), "forward call"));
  const testing::Backtraces backtraces;
  const Tensor again = (exp(broken(x)) * 3).sum();
  const std::string text = message(again);
  const size_t begin = text.find("\nforward call in:"), end = text.find("\nthrown in:");
  REQUIRE(end != text.npos);
  REQUIRE(begin < end);
  const std::string forward = text.substr(begin, end - begin);
  if (!has(forward, "#0")) return;  // this system has no backtraces
  CHECK_FALSE(has(forward, "call_site"));
  CHECK_FALSE_MESSAGE(has(forward, "Node::Node"), forward);
  if (!os::output_of("addr2line --version").empty())
    CHECK_MESSAGE(has(os::output_of(testing::addr2line_of(forward)), "modes_test.cpp:"), text);
}

TEST_CASE("anomaly mode leaves sound gradients alone, and says if it was off in forward") {
  const Tensor x = leaf({1, 4}), y = leaf({0});
  const Tensor before = broken(y).sum();
  const autograd::DetectAnomalyGuard guard;
  CHECK(message(sqrt(x).sum()).empty());
  CHECK(x.grad().to_vector() == std::vector<double>{0.5, 0.25});
  CHECK(message(before).find("while anomaly mode was off") != std::string::npos);
}

TEST_CASE("in anomaly mode an error says at which call it came") {
  nn::Module model;
  const auto root = model.register_module(
      "root", std::make_shared<Root>([](const Tensor& t) { return misfit(t); }));
  const auto refusal = [&] { return testing::message([&] { root->forward(leaf({1, 2})); }); };
  const std::string plain = refusal();
  CHECK_FALSE(has(plain, "in the call"));
  const autograd::DetectAnomalyGuard guard;
  const std::string text = refusal();
  CHECK_MESSAGE(text.starts_with(plain), text);
  const std::string place = text.substr(std::min(plain.size(), text.size()));
  CHECK_MESSAGE(place.starts_with("\nin the call at "), text);
  CHECK_MESSAGE((has(place, "modes_test.cpp:") || has(place, "::misfit(") || has(place, "+0x")),
                text);
  // What is made of its text names no second one.
  const std::string again = testing::message([&] { HALFTAPE_CHECK(false, "model: ", text); });
  CHECK(again == "model: " + text);
  CHECK(text.find("in the call") == text.rfind("in the call"));
}

TEST_CASE("in inference mode nothing is recorded, and its tensors stay outside graphs") {
  const Tensor x = leaf({1, 2});
  Tensor y;
  {
    const InferenceMode mode;
    CHECK(InferenceMode::is_enabled());
    CHECK_FALSE(GradMode::is_enabled());
    y = x * 2;
    CHECK_FALSE(y.requires_grad());
    CHECK(y.is_inference());
    y.add_(1);  // allowed within the mode
    const Tensor place = tensor({1}, kInt64);
    CHECK(index_select(y, 0, place).to_vector() == std::vector<double>{5});
    CHECK(y.clone().index_put_({place}, 0).to_vector() == std::vector<double>{3, 0});
    CHECK_FALSE(x.is_inference());
    {
      const InferenceMode off(false);
      CHECK((x * 2).requires_grad());
    }
  }
  CHECK_FALSE(InferenceMode::is_enabled());
  CHECK(GradMode::is_enabled());
  CHECK(y.to_vector() == std::vector<double>{3, 5});
  CHECK_THROWS_WITH_AS(y.requires_grad_(), doctest::Contains("InferenceMode"), Error);
  CHECK_THROWS_WITH_AS(y.mul_(2), doctest::Contains("InferenceMode"), Error);
  CHECK_THROWS_WITH_AS(x * y, doctest::Contains("cannot be saved for backward"), Error);
  CHECK((x + y).requires_grad());  // saves neither value
  CHECK((x * y.clone()).requires_grad());
  CHECK_FALSE(y.clone().is_inference());
  CHECK(y.detach().is_inference());  // the same bytes
  CHECK(y.view({2, 1}).is_inference());
  CHECK_FALSE(y.view({2, 1}).is_view());
}

TEST_CASE("tensors of inference mode may be used where nothing is recorded") {
  using Doubles = std::vector<double>;
  Tensor x, index, positive;
  {
    const InferenceMode mode;
    x = tensor({3, -1, 2}, kFloat64).reshape({1, 3});
    index = argmax(x, 1);
    positive = x > 0;
  }
  const Tensor a = ones({1, 3}, kFloat64), at = index.unsqueeze(1);
  for (const bool recording : {true, false}) {
    const AutoGradMode mode(recording);
    CHECK(one_hot(index, 3).to_vector() == Doubles{1, 0, 0});
    CHECK(bincount(index).to_vector() == Doubles{1});
    CHECK(where(positive, a, 2).to_vector() == Doubles{1, 2, 1});
    CHECK(masked_fill(a, positive, 5).to_vector() == Doubles{5, 1, 5});
    CHECK(gather(x, 1, at).to_vector() == Doubles{3});
    CHECK(gather(a, 1, at).to_vector() == Doubles{1});
    CHECK(scatter(a, 1, at, 7).to_vector() == Doubles{7, 1, 1});
    CHECK(scatter_add(a, 1, at, a).to_vector() == Doubles{2, 1, 1});
    for (const char* by : {"prod", "amax", "mean"})
      CHECK(scatter_reduce(x, 1, at, a, by).sizes() == Shape{1, 3});
    CHECK(index_select(a, 0, index).numel() == 3);
    CHECK(embedding(a, index).numel() == 3);
    CHECK(logsumexp(x, {1}).item<double>() == doctest::Approx(3.3265).epsilon(1e-4));
  }
  CHECK_THROWS_WITH_AS(gather(leaf({1, 2, 3}).reshape({1, 3}), 1, at),
                       doctest::Contains("cannot be saved for backward"), Error);
}

TEST_CASE("a backward in inference mode leaves nothing of that mode behind") {
  const Tensor w = leaf({1, 2});
  // Of a dtype that nobody else begins with here; its rule saves the gradient for the next one.
  const auto loss = [&] {
    const Tensor sum = w.sum().to(kBFloat16);
    return sum * sum;
  };
  const Tensor first = loss();
  {
    const InferenceMode mode;
    first.backward();
  }
  const Tensor g = autograd::grad({loss()}, {w}, {}, true, true)[0];
  CHECK(g.requires_grad());
}

TEST_CASE("modes that end out of order warn once, and the last one brings back the state before") {
  testing::Warnings warnings;
  for (int again = 0; again < 2; ++again) {
    auto outer = std::make_unique<NoGradGuard>();
    auto middle = std::make_unique<AutoGradMode>(true);
    auto inner = std::make_unique<NoGradGuard>();
    outer.reset();
    CHECK_FALSE(GradMode::is_enabled());
    inner.reset();
    CHECK(GradMode::is_enabled());
    middle.reset();
    CHECK(GradMode::is_enabled());
  }
  REQUIRE(warnings.seen.size() == 1);
  CHECK(has(warnings.seen[0], "AutoGradMode: a region ended before one that was begun inside it"));
  auto first = std::make_unique<InferenceMode>(), second = std::make_unique<InferenceMode>();
  first.reset();
  CHECK(InferenceMode::is_enabled());
  second.reset();
  CHECK_FALSE(InferenceMode::is_enabled());
  CHECK(GradMode::is_enabled());
}

TEST_CASE("a mode that is ended in another thread stays on in its own, and warns once") {
  testing::Warnings warnings;
  std::unique_ptr<NoGradGuard> guard;
  std::thread([&] {
    guard = std::make_unique<NoGradGuard>();
    std::thread([&] {
      const AutoGradMode own(true);
      guard.reset();
      CHECK(GradMode::is_enabled());
    }).join();
    CHECK_FALSE(GradMode::is_enabled());
    guard = std::make_unique<NoGradGuard>();
  }).join();
  guard.reset();  // its thread is gone
  CHECK(GradMode::is_enabled());
  REQUIRE(warnings.seen.size() == 1);
  CHECK(has(warnings.seen[0], "destroyed in another thread than the one that began it"));
}

TEST_CASE("a mode that memory is missing for changes nothing" *
          doctest::skip(!testing::can_fail_new())) {
  std::thread([] {  // whose lists have no memory of former regions
    testing::fail_new(1);
    CHECK_THROWS_AS((void)NoGradGuard(), OutOfMemoryError);
    CHECK(GradMode::is_enabled());
    testing::fail_new(2);  // the first is its NoGradGuard's
    CHECK_THROWS_AS((void)InferenceMode(), OutOfMemoryError);
    CHECK(GradMode::is_enabled());
    CHECK(!InferenceMode::is_enabled());
    testing::fail_new(0);
  })
      .join();
}

TEST_CASE("a view of an ordinary tensor stays ordinary in inference mode, as LibTorch has it") {
  const Tensor x = leaf({1, 2}), a = x * 1, plain = tensor({1, 2});
  Tensor view, plain_view, detached, trained;
  {
    const InferenceMode mode;
    view = a.view({2, 1});
    plain_view = plain.view({2, 1});
    detached = plain.detach();
    trained = ones({2}).requires_grad_();
  }
  CHECK_FALSE(view.is_inference());
  CHECK(view.requires_grad());
  CHECK_THROWS_WITH_AS(view.mul_(2), doctest::Contains("is being modified inplace"), Error);
  plain_view.mul_(2);
  CHECK(plain.to_vector() == std::vector<double>{2, 4});
  CHECK_FALSE(detached.is_inference());
  detached.add_(1);
  CHECK(plain.to_vector() == std::vector<double>{3, 5});
  // Made in the mode, it may ask for a gradient there, and where its value is not needed gets one.
  CHECK(trained.is_inference());
  (trained + x).sum().backward();
  CHECK(trained.grad().to_vector() == std::vector<double>{1, 1});
  CHECK_THROWS_WITH_AS(trained * x, doctest::Contains("cannot be saved for backward"), Error);
}

TEST_CASE("a view without history is of no use after a recorded change of its base") {
  const auto made = [](const Tensor& b, bool inference) {
    if (inference) {
      const InferenceMode mode;
      return b.unbind(0)[0];
    }
    const NoGradGuard no_grad;
    return b.unbind(0)[0];
  };
  for (const bool inference : {false, true}) {
    const std::string start = inference ? "A view was created in inference mode and its base"
                                        : "A view was created in no_grad mode and its base";
    const Tensor w = leaf({1, 2}), b = zeros({2, 2}, kFloat64), v = made(b, inference);
    CHECK(v._base().is_same(b));
    CHECK_FALSE((v * 3).requires_grad());
    b.add_(1);  // no gradient is concerned
    CHECK_FALSE((v * 3).requires_grad());
    const Tensor part = v.slice(0, 0, 1);
    b[0].copy_(w * 2);
    CHECK(testing::message([&] { v * 3; }).starts_with(start));
    CHECK(testing::message([&] { v.clone(); }).starts_with(start));
    CHECK(testing::message([&] { part * 3; }).starts_with(start));
    CHECK(testing::message([&] { v.grad_fn(); }).starts_with(start));
    CHECK(testing::message([&] { v.retain_grad(); }).starts_with(start));
    CHECK_THROWS_AS(v.add_(1), Error);
    // What no gradient comes from remains allowed.
    CHECK(v.requires_grad());
    CHECK(v.detach().equal(w * 2));
    CHECK_FALSE(v.detach().requires_grad());
    CHECK((v > 0).numel() == 2);
    CHECK(v.to_vector() == (w * 2).to_vector());
    const NoGradGuard no_grad;
    CHECK_FALSE((v * 3).requires_grad());
    v.add_(1);
  }
}

TEST_CASE("views made under NoGradGuard outlast changes that are not recorded") {
  const Tensor w = leaf({1, 2, 3, 4}), b = w * 1;
  const Tensor cut = b.detach().slice(0, 0, 2);
  Tensor v;
  {
    const NoGradGuard no_grad;
    v = w.slice(0, 0, 2);
    w.add_(1);  // as an optimizer does
  }
  CHECK((v * 2).requires_grad());
  b.mul_(2);
  CHECK_FALSE((cut * 2).requires_grad());  // detach() is no view of b
  const Tensor plain = zeros({4}, kFloat64);
  {
    const NoGradGuard no_grad;
    v = plain.slice(0, 0, 2);
  }
  v.add_(1);
  plain.add_(1);
  CHECK(v.to_vector() == std::vector<double>{2, 2});
  CHECK(plain.to_vector() == std::vector<double>{2, 2, 1, 1});
  plain.requires_grad_();
  CHECK_THROWS_WITH_AS(v.add_(1), doctest::Contains("no_grad mode"), Error);
}
