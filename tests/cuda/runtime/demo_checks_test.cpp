// What samples/train_digits says of a GPU before it trains there.
#include <doctest/doctest.h>

#include "../../../samples/train_digits/checks.cpp"

using namespace halftape;

TEST_CASE("the checks of the digits pass on the device, and say which did not") {
  manual_seed(1);
  const Tensor x = randn({32, 16}, kCPU), y = randint(0, 10, {32}, kCPU);
  const std::vector<Check> checks = check_steps(kCUDA, x, y, 10);
  CHECK_EQ(verdict(kCUDA, checks), "checks on " + Device(kCUDA).str() + ": 12 of 12 passed");
  CHECK(all_passed(checks));

  // A loss that is NaN is nobody's; without a GradScaler the weights are NaN, too.
  const std::vector<Check> broken = check_steps(kCUDA, x / 0, y, 10);
  CHECK_FALSE(all_passed(broken));
  CHECK(verdict(kCUDA, broken).find("failed: float32: the loss is the CPU's") != std::string::npos);
}
