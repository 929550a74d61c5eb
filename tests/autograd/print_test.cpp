// Printing: LibTorch's layout, and every number as it is.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <limits>
#include <sstream>

using namespace halftape;

namespace {

std::string printed(const Tensor& t) {
  std::ostringstream out;
  out << t;
  return out.str();
}

}  // namespace

TEST_CASE("numbers, vectors and matrices print as LibTorch's") {
  CHECK(printed(Tensor()) == "[ Tensor (undefined) ]");
  CHECK(printed(full({}, 1.5)) == "1.5000\n[ CPUFloatType{} ]");
  CHECK(printed(tensor({1.0, -2.5}, kFloat16)) == "  1.0000\n -2.5000\n[ CPUHalfType{2} ]");
  CHECK(printed(tensor({{1.0, 2.0}, {3.0, 4.0}}, kFloat64)) ==
        " 1.0000 2.0000\n 3.0000 4.0000\n[ CPUDoubleType{2,2} ]");
  CHECK(printed(zeros({0, 3})) == "[ CPUFloatType{0,3} ]");
  CHECK(printed(ones({2, 1, 1}, kInt32)) ==
        "(1,.,.) = \n 1\n(2,.,.) = \n 1\n[ CPUIntType{2,1,1} ]");
}

TEST_CASE("integers beyond 2^53 print digit by digit, and NaN without a sign") {
  const int64_t big = (int64_t{1} << 60) + 1;
  CHECK(printed(full({}, big, kInt64)) == "1152921504606846977\n[ CPULongType{} ]");
  CHECK(printed(full({}, std::numeric_limits<int64_t>::min(), kInt64)) ==
        "-9223372036854775808\n[ CPULongType{} ]");
  CHECK(printed(zeros({0}).mean()) == "nan\n[ CPUFloatType{} ]");
  CHECK(printed(full({}, -1 / 0.0)) == "-inf\n[ CPUFloatType{} ]");
  CHECK(printed(tensor({1e5, 1e-5})) == " 1.0000e+05\n 1.0000e-05\n[ CPUFloatType{2} ]");
}
