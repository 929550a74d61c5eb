#include <start.h>

#include <doctest/doctest.h>
#include <support/course.h>
#include <support/training.h>

#include <string>
#include <vector>

namespace {

using course::Cause;

std::string name(Cause cause) {
  constexpr const char* kNames[] = {"Healthy", "GradientsVanish", "LearningRate",
                                    "BadData", "ForwardOverflow", "GradientInfinite"};
  const auto i = static_cast<size_t>(cause);
  return i < 6 ? kNames[i] : "no cause at all";
}

const std::vector<course::RecordedRun>& runs() {
  static const std::vector<course::RecordedRun> all = course::recorded_runs(course::seed());
  return all;
}

/// At least so many of the twelve are told rightly; the others are named.
void expect(int wanted) {
  int right = 0;
  std::string wrong;
  for (size_t i = 0; i < runs().size(); ++i) {
    const Cause cause = runs()[i].cause, got = diagnose(runs()[i].log);
    right += got == cause;
    if (got != cause)
      wrong += course::text("\nrun ", i + 1, " is ", name(cause), "; you say ", name(got));
  }
  CHECK_MESSAGE(right >= wanted, course::text(right, " of 12 are right:", wrong));
}

}  // namespace

TEST_CASE("four of the twelve trainings are told rightly") { expect(4); }
TEST_CASE("six of the twelve trainings are told rightly") { expect(6); }
TEST_CASE("eight of the twelve trainings are told rightly") { expect(8); }
TEST_CASE("ten of the twelve trainings are told rightly") { expect(10); }
