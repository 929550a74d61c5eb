// The stages of a step as types: what is out of order does not compile.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <type_traits>

using namespace halftape;

namespace {

// As the compiler sees it: may a stage of type S be …
template <class S>
constexpr bool can_clip_norm = requires(S s) {
  std::move(s).clip_grad_norm_(1.0);
};
template <class S>
constexpr bool can_clip_value = requires(S s) {
  std::move(s).clip_grad_value_(1.0);
};
template <class S>
constexpr bool can_unscale = requires(S s) {
  std::move(s).unscale();
};
template <class S>
constexpr bool can_step = requires(S s) {
  std::move(s).step();
};
template <class S>
constexpr bool can_add = requires(S s, const Tensor& loss) {
  s.add(loss);
};
template <class S>
constexpr bool can_step_in_place = requires(S& s) {
  s.step();
};
template <class S>
constexpr bool can_clip_in_place = requires(S& s) {
  s.clip_grad_norm_(1.0);
};

using amp::Clipped, amp::Scaled, amp::Unscaled;

static_assert(!can_clip_norm<Scaled> && !can_clip_value<Scaled>,
              "scaled gradients are not clipped");
static_assert(can_clip_norm<Unscaled> && can_clip_value<Unscaled>);
static_assert(!can_clip_norm<Clipped> && !can_clip_value<Clipped>, "nor is anything clipped twice");
static_assert(can_unscale<Scaled> && !can_unscale<Unscaled> && !can_unscale<Clipped>);
static_assert(can_add<Scaled> && !can_add<Unscaled> && !can_add<Clipped>);
static_assert(can_step<Scaled> && can_step<Unscaled> && can_step<Clipped>);
static_assert(!can_step_in_place<Scaled> && !can_step_in_place<Unscaled> &&
              !can_step_in_place<Clipped> && !can_clip_in_place<Unscaled>);
static_assert(!std::is_copy_constructible_v<Scaled> && !std::is_copy_constructible_v<Unscaled> &&
              !std::is_copy_constructible_v<Clipped>);
static_assert(std::is_move_constructible_v<Scaled> && !std::is_default_constructible_v<Scaled>);
static_assert(!std::is_constructible_v<Unscaled, Scaled> &&
              !std::is_constructible_v<Clipped, Scaled>);

struct Fixture {
  Tensor w = tensor({3.0, -4.0}, requires_grad());
  optim::SGD optimizer{{w}, optim::SGDOptions(1.0)};
  amp::GradScaler scaler{{.init_scale = 1024, .growth_interval = 1}};
  Tensor loss() const { return (w * w).sum(); }
};

}  // namespace

TEST_CASE("a checked step gives what the calls in their order give") {
  Fixture f, plain;
  CHECK(amp::checked_step(f.scaler, f.optimizer, f.loss())
            .unscale()
            .clip_grad_norm_(1)
            .step()
            .applied());
  plain.loss().backward();
  nn::utils::clip_grad_norm_({plain.w}, 1);
  plain.optimizer.step();
  CHECK(f.w.equal(plain.w));
  CHECK(f.scaler.get_scale() == 2048);  // updated, too
}

TEST_CASE("losses are added while gradients are scaled, and clipping tells the norm") {
  Fixture f;
  amp::Scaled scaled = amp::checked_step(f.scaler, f.optimizer, f.loss());
  scaled.add(f.loss());
  amp::Clipped clipped = std::move(scaled).unscale().clip_grad_norm_(1);
  CHECK(clipped.norm.item<double>() == 20);
  CHECK(std::move(clipped).step().applied());
  CHECK(f.w.allclose(tensor({3 - 0.6, -4 + 0.8}), 1e-6));

  f.optimizer.zero_grad();
  f.w.detach().fill_(5);
  CHECK(amp::checked_step(f.scaler, f.optimizer, f.loss())
            .unscale()
            .clip_grad_value_(2)
            .step()
            .applied());
  CHECK(f.w.equal(full({2}, 3.0)));
  f.optimizer.zero_grad();
  CHECK(amp::checked_step(f.scaler, f.optimizer, f.loss()).step().applied());
  CHECK(f.w.equal(full({2}, -3.0)));
}

TEST_CASE("a stage that was moved from says so") {
  Fixture f;
  amp::Scaled scaled = amp::checked_step(f.scaler, f.optimizer, f.loss());
  amp::Unscaled unscaled = std::move(scaled).unscale();
  CHECK_THROWS_WITH_AS(scaled.add(f.loss()), doctest::Contains("moved on"), Error);
  CHECK(std::move(unscaled).step().applied());
  CHECK_THROWS_WITH_AS(std::move(unscaled).step(), doctest::Contains("moved on"), Error);
}
