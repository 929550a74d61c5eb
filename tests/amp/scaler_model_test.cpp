// The law against a model of it that shares no line with it, over a million random transitions.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>

#include "halftape/core/formula/scale.h"

using namespace halftape;

namespace {

/// The law as one would tell it: in words of what has happened, not of counters.
class Model {
 public:
  Model(float scale, const ScaleLaw& law) : scale_(scale), law_(law) {}
  float scale() const { return scale_; }
  int64_t good_in_row() const { return good_; }

  void step(Verdict verdict) {
    switch (verdict) {
      case Verdict::BadLoss:
        break;
      case Verdict::Overflow:
        good_ = 0;
        ++bad_;
        if (bad_ >= law_.hysteresis) move_to(double{scale_} * law_.backoff_factor);
        break;
      case Verdict::Finite:
        ++good_;
        if (law_.refill == Hysteresis::RefilledByCleanStep) bad_ = 0;
        if (good_ >= law_.growth_interval) grow();
        break;
    }
  }

 private:
  void grow() {
    good_ = bad_ = 0;
    const double grown = double{scale_} * law_.growth_factor;
    if (!std::isinf(static_cast<float>(grown))) move_to(grown);
  }
  void move_to(double scale) {
    scale_ = static_cast<float>(std::max(law_.min_scale, std::min(law_.max_scale, scale)));
  }
  float scale_;
  int64_t good_ = 0, bad_ = 0;
  ScaleLaw law_;
};

}  // namespace

TEST_CASE("a million random transitions are those of a model of 30 lines, within the bounds") {
  std::mt19937 random(20240229);
  auto pick = [&](auto... choices) {
    const std::array<std::common_type_t<decltype(choices)...>, sizeof...(choices)> all = {
        choices...};
    return all[random() % all.size()];
  };
  int64_t wrong = 0, outside = 0, transitions = 0, moved = 0;
  while (transitions < 1'000'000) {
    ScaleLaw law;
    law.growth_factor = pick(2.0, 1.5, 16.0, 1.001, 1e30);
    law.backoff_factor = pick(0.5, 0.8, 0.25, 1e-30);
    law.growth_interval = pick(1, 2, 3, 7, 50);
    law.min_scale = pick(0.0, 1.0, 0x1p-20, 37.5);
    law.max_scale = pick(3.4e38, 0x1p24, 1000.0, 40.0);
    law.hysteresis = pick(1, 2, 3, 10);
    law.refill = pick(Hysteresis::RefilledByCleanStep, Hysteresis::RefilledByGrowth);
    const float start = static_cast<float>(
        std::max(law.min_scale, std::min(law.max_scale, pick(65536.0, 1.0, 38.0, 3e38))));
    const auto overflows = pick(0u, 5u, 50u, 95u);  // per cent
    ScaleState s{start};
    Model model(start, law);
    for (int i = 0; i < 500; ++i, ++transitions) {
      const auto coin = random() % 100;
      const Verdict verdict = coin == 99         ? Verdict::BadLoss
                              : coin < overflows ? Verdict::Overflow
                                                 : Verdict::Finite;
      const float before = s.scale;
      s = next(s, verdict, law);
      model.step(verdict);
      wrong += s.scale != model.scale() || s.growth_tracker != model.good_in_row();
      outside += !(s.scale >= static_cast<float>(law.min_scale) &&
                   s.scale <= static_cast<float>(law.max_scale)) ||
                 s.growth_tracker < 0 || s.growth_tracker >= law.growth_interval;
      moved += s.scale != before;
    }
  }
  CHECK(wrong == 0);
  CHECK(outside == 0);
  CHECK(moved > 100'000);
}
