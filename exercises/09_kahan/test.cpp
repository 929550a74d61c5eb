#include <start.h>

#include <doctest/doctest.h>
#include <halftape/core/half.h>
#include <support/course.h>

#include <cmath>
#include <limits>

namespace {

using halftape::BFloat16;

constexpr int kSteps = 10000;

/// A weight under kahan_step(), and beside it the sum in float64 and the weight without Kahan's
/// trick.
struct Run {
  BFloat16 weight, lost, plain;
  double exact;
  explicit Run(float start)
      : weight(start), lost(0.0f), plain(start), exact(static_cast<float>(weight)) {}

  void step(float update) {
    kahan_step(weight, lost, update);
    exact += static_cast<double>(update);
    plain = BFloat16(static_cast<float>(plain) + update);
    const float w = static_cast<float>(weight), l = static_cast<float>(lost);
    const bool nearest =
        static_cast<float>(BFloat16(w + l)) == w || std::fabs(l) <= std::fabs(w) * 0x1p-8f;
    REQUIRE_MESSAGE(nearest, course::text("the weight is ", w, " and lost is ", l,
                                          ": more than half a step of bfloat16 is still lost"));
  }
  /// How far the weight is from the exact sum, in units of bfloat16's rounding error there.
  double error() const {
    return std::fabs(static_cast<double>(weight) - exact) / (std::fabs(exact) * 0x1p-9 + 1e-30);
  }
  void expect(double most) const {
    REQUIRE_MESSAGE(error() <= most,
                    course::text("after ", kSteps, " updates the weight is ",
                                 static_cast<float>(weight), "; the exact sum is ", exact,
                                 ", plain rounding gives ", static_cast<float>(plain)));
  }
};

}  // namespace

TEST_CASE("ten thousand updates of 2^-12 arrive, where plain rounding stands still") {
  Run run(1);
  for (int i = 0; i < kSteps; ++i) run.step(0x1p-12f);
  run.expect(2);
}

TEST_CASE("updates of a thousand sizes and both signs arrive") {
  course::Random random(9);
  for (int series = 0; series < 20; ++series) {
    Run run(1);
    for (int i = 0; i < kSteps; ++i)
      run.step(static_cast<float>((random.uniform() - 0.3) *
                                  std::ldexp(1.0, -6 - static_cast<int>(random.below(8)))));
    run.expect(2);
  }
}

TEST_CASE("downwards as upwards: a weight comes half of its way back") {
  Run run(1);
  for (int i = 0; i < kSteps / 2; ++i) run.step(0x1p-11f);
  for (int i = 0; i < kSteps / 4; ++i) run.step(-0x1p-11f);
  run.expect(4);
}

TEST_CASE("updates that are larger than the weight arrive, and so does what follows") {
  Run run(1);
  for (const float update : {3.0f, -16.0f, 0.5f, 64.0f}) run.step(update);
  for (int i = 0; i < 100; ++i) run.step(0x1p-9f);
  run.expect(2);
}

TEST_CASE("an update that makes the weight infinite leaves nothing lost") {
  BFloat16 weight(1.0f), lost(0.0f);
  kahan_step(weight, lost, std::numeric_limits<float>::infinity());
  CHECK_MESSAGE(std::isinf(static_cast<float>(weight)),
                course::text("the weight is ", static_cast<float>(weight)));
  CHECK_MESSAGE(static_cast<float>(lost) == 0, course::text("lost is ", static_cast<float>(lost)));
}
