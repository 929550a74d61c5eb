#include <start.h>

#include <doctest/doctest.h>
#include <support/course.h>

#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "07_find_the_faults/scaler.h"

namespace {

enum class Fault {
  None,
  GrowsByScale,       // growth compares the scale, not the count, with the interval
  GrowsLate,          // one good step too many
  CountStays,         // an overflow does not end the row of good steps
  CountGoesOn,        // a growth does not, either
  VerdictDropped,     // update() never learns of the overflow
  VerdictStays,       // one overflow counts in every later update
  HalvesPerGroup,     // two bad groups make a quarter
  FirstGroupJudged,   // infinities elsewhere are not seen
  LastGroupJudges,    // its verdict replaces that of the others
  FirstGroupDivided,  // the others stay scaled
  StopsAtTheBad,      // what comes after an infinity stays scaled
  DividesByTheNext,   // by the scale that the coming update will set
  MissesNaN,          // asks for infinity alone
  MissesNegative,     // asks for +infinity and NaN
  Count
};

const char* about(Fault fault) {
  switch (fault) {
    case Fault::GrowsByScale:
    case Fault::GrowsLate:
    case Fault::CountStays:
    case Fault::CountGoesOn:
      return "when the scale grows";
    case Fault::VerdictDropped:
    case Fault::VerdictStays:
    case Fault::HalvesPerGroup:
      return "how the scale falls";
    case Fault::FirstGroupDivided:
    case Fault::StopsAtTheBad:
    case Fault::DividesByTheNext:
      return "what is divided, and by what";
    default:
      return "which gradients are judged, and how";
  }
}

class TestedScaler final : public Scaler {
 public:
  TestedScaler(Fault fault, float scale, int interval)
      : fault_(fault), scale_(scale), interval_(interval) {}

  float scale() const override { return scale_; }

  bool step(Groups& gradients) override {
    const bool growing = good_ + 1 >= interval_;
    const float divisor = fault_ == Fault::DividesByTheNext && growing ? 2 * scale_ : scale_;
    bad_groups_ = fault_ == Fault::VerdictStays ? bad_groups_ : 0;
    bool stopped = false;
    for (size_t i = 0; i < gradients.size(); ++i) {
      bool bad = false;
      for (float& x : gradients[i]) {
        const bool skipped = stopped || (fault_ == Fault::FirstGroupDivided && i > 0);
        if (!skipped) x /= divisor;
        bad |= is_bad(x);
        stopped |= fault_ == Fault::StopsAtTheBad && bad;
      }
      if (fault_ == Fault::FirstGroupJudged && i > 0) bad = false;
      if (fault_ == Fault::LastGroupJudges) bad_groups_ = 0;
      bad_groups_ += bad;
    }
    return bad_groups_ == 0;
  }

  void update() override {
    if (bad_groups_ > 0 && fault_ != Fault::VerdictDropped) {
      scale_ *= fault_ == Fault::HalvesPerGroup ? std::ldexp(1.0f, -bad_groups_) : 0.5f;
      if (fault_ != Fault::CountStays) good_ = 0;
      return;
    }
    ++good_;
    const bool grows = fault_ == Fault::GrowsByScale ? scale_ >= static_cast<float>(interval_)
                       : fault_ == Fault::GrowsLate  ? good_ > interval_
                                                     : good_ >= interval_;
    if (!grows) return;
    scale_ *= 2;
    if (fault_ != Fault::CountGoesOn) good_ = 0;
  }

 private:
  bool is_bad(float x) const {
    if (fault_ == Fault::MissesNaN) return std::isinf(x);
    if (fault_ == Fault::MissesNegative) return !std::isfinite(x) && !(x < 0);
    return !std::isfinite(x);
  }

  Fault fault_;
  float scale_;
  int interval_, good_ = 0, bad_groups_ = 0;
};

bool accepted(Fault fault) {
  const Make make = [&](float scale, int interval) {
    return std::make_unique<TestedScaler>(fault, scale, interval);
  };
  return moves_rightly(make) && divides_rightly(make) && finds_rightly(make);
}

/// Six faults, drawn by the number of the class.
Fault drawn(size_t i) {
  constexpr auto kCount = static_cast<size_t>(Fault::Count);
  std::array<Fault, kCount - 1> all{};
  for (size_t j = 0; j < all.size(); ++j) all[j] = static_cast<Fault>(j + 1);
  course::Random random(course::seed());
  for (size_t j = 0; j < all.size(); ++j) std::swap(all[j], all[j + random.below(all.size() - j)]);
  return all[i];
}

void expect_caught(size_t i) {
  REQUIRE_MESSAGE(accepted(Fault::None),
                  "your tests reject the right scaler, so what they say of others means nothing");
  REQUIRE_MESSAGE(!accepted(drawn(i)),
                  course::text("your tests accept a faulty scaler; look at ", about(drawn(i))));
}

}  // namespace

TEST_CASE("the right scaler is accepted, and some faulty one is not") {
  REQUIRE_MESSAGE(accepted(Fault::None), "your tests reject the right scaler");
  int caught = 0;
  for (size_t i = 0; i < 6; ++i) caught += !accepted(drawn(i));
  CHECK_MESSAGE(caught > 0, "your tests accept every scaler");
}

TEST_CASE("the first faulty scaler is rejected") { expect_caught(0); }
TEST_CASE("the second faulty scaler is rejected") { expect_caught(1); }
TEST_CASE("the third faulty scaler is rejected") { expect_caught(2); }
TEST_CASE("the fourth faulty scaler is rejected") { expect_caught(3); }
TEST_CASE("the fifth faulty scaler is rejected") { expect_caught(4); }
TEST_CASE("the sixth faulty scaler is rejected") { expect_caught(5); }
