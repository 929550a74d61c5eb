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

void expect(Cause cause) {
  for (size_t i = 0; i < runs().size(); ++i) {
    if (runs()[i].cause != cause) continue;
    const Cause got = diagnose(runs()[i].log);
    CHECK_MESSAGE(got == cause,
                  course::text("run ", i + 1, " of 12 is ", name(cause), "; you say ", name(got)));
  }
}

}  // namespace

TEST_CASE("healthy trainings are left alone, also those that skip steps at first") {
  expect(Cause::Healthy);
}
TEST_CASE("gradients that vanish are noticed") { expect(Cause::GradientsVanish); }
TEST_CASE("a learning rate that is too high is noticed") { expect(Cause::LearningRate); }
TEST_CASE("bad data are told from a bad network") { expect(Cause::BadData); }
TEST_CASE("an overflow on the way to the loss is told from one on the way back") {
  expect(Cause::ForwardOverflow);
}
TEST_CASE("a gradient that is finite at no scale is noticed") { expect(Cause::GradientInfinite); }

TEST_CASE("ten of the twelve runs are told rightly") {
  int right = 0;
  for (const course::RecordedRun& run : runs()) right += diagnose(run.log) == run.cause;
  CHECK_MESSAGE(right >= 10, course::text(right, " of 12 are right"));
}
