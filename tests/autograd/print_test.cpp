// Tensors print exactly as in LibTorch 1.13 and 2.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <limits>
#include <sstream>

#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using testing::kInf, testing::kNaN;

namespace {

/// The text as the CPU prints it: on a GPU only the name of the type differs.
std::string on_cpu(std::string text) {
  if (const auto at = text.rfind("[ CUDA"); at != std::string::npos) text.replace(at, 6, "[ CPU");
  return text;
}
template <class T>
std::string printed(const T& t) {
  std::ostringstream out;
  out << t;
  return on_cpu(out.str());
}

}  // namespace

TEST_CASE("a number alone prints with six digits, an integer with all of them") {
  CHECK(printed(Tensor()) == "[ Tensor (undefined) ]");
  CHECK(printed(full({}, 1.5)) == "1.5\n[ CPUFloatType{} ]");
  CHECK(printed(full({}, 0.1)) == "0.1\n[ CPUFloatType{} ]");
  CHECK(printed(full({}, 2.0)) == "2\n[ CPUFloatType{} ]");
  CHECK(printed(full({}, -1e-6)) == "-1e-06\n[ CPUFloatType{} ]");
  CHECK(printed(full({}, 1234567.0, kFloat64)) == "1.23457e+06\n[ CPUDoubleType{} ]");
  CHECK(printed(full({}, -kInf)) == "-inf\n[ CPUFloatType{} ]");
  CHECK(printed(zeros({0}).mean()) == "nan\n[ CPUFloatType{} ]");  // whatever its sign
  CHECK(printed(full({}, true)) == "1\n[ CPUBoolType{} ]");
  CHECK(printed(full({}, 123456789)) == "123456789\n[ CPULongType{} ]");
  CHECK(printed(full({}, (int64_t{1} << 60) + 1)) == "1152921504606846977\n[ CPULongType{} ]");
  CHECK(printed(full({}, std::numeric_limits<int64_t>::min())) ==
        "-9223372036854775808\n[ CPULongType{} ]");
}

TEST_CASE("whole numbers print without a point, to the width of the widest") {
  CHECK(printed(tensor({1, -20, 300})) == "   1\n -20\n 300\n[ CPULongType{3} ]");
  CHECK(printed(tensor({-1, -2})) == "-1\n-2\n[ CPULongType{2} ]");
  CHECK(printed(tensor({true, false})) == " 1\n 0\n[ CPUBoolType{2} ]");
  CHECK(printed(ones(2, kUInt8)) == " 1\n 1\n[ CPUByteType{2} ]");
  CHECK(printed(zeros(2)) == " 0\n 0\n[ CPUFloatType{2} ]");
  CHECK(printed(tensor({{1.0, 2.0}, {3.0, 4.0}}, kFloat64)) ==
        " 1  2\n 3  4\n[ CPUDoubleType{2,2} ]");
  CHECK(printed(ones({2, 2}, kBFloat16)) == " 1  1\n 1  1\n[ CPUBFloat16Type{2,2} ]");
}

TEST_CASE("whole numbers of more than nine digits print with an exponent") {
  CHECK(printed(tensor({123456789, 1})) == "1.23457e+08\n         1\n[ CPULongType{2} ]");
  CHECK(printed(tensor({1234567890, 1})) == " 1.2346e+09\n 1.0000e+00\n[ CPULongType{2} ]");
  CHECK(printed(tensor(std::vector<int64_t>{(int64_t{1} << 60) + 1, -7})) ==
        " 1.1529e+18\n-7.0000e+00\n[ CPULongType{2} ]");
  CHECK(printed(full({2, 2}, 1e10)) ==
        " 1.0000e+10  1.0000e+10\n 1.0000e+10  1.0000e+10\n[ CPUFloatType{2,2} ]");
}

TEST_CASE("fractions print with four decimals in one width") {
  CHECK(printed(tensor({1.0, -2.5}, kFloat16)) == " 1.0000\n-2.5000\n[ CPUHalfType{2} ]");
  CHECK(printed(tensor({0.1, 0.02})) == " 0.1000\n 0.0200\n[ CPUFloatType{2} ]");
  CHECK(printed(tensor({0.0, 0.5})) == " 0.0000\n 0.5000\n[ CPUFloatType{2} ]");
  CHECK(printed(tensor({9.99999, 1.5})) == "10.0000\n 1.5000\n[ CPUFloatType{2} ]");
  CHECK(printed(tensor({{1.5, -22.25}, {1000.0, 3.0}})) ==
        "    1.5000   -22.2500\n 1000.0000     3.0000\n[ CPUFloatType{2,2} ]");
}

TEST_CASE("large or small fractions share a factor, and widely spread ones have exponents") {
  CHECK(printed(tensor({100000.5, 20000.25})) == "100000 *\n 1.0000\n 0.2000\n[ CPUFloatType{2} ]");
  CHECK(printed(tensor({0.01, 0.02})) == "0.01 *\n 1.0000\n 2.0000\n[ CPUFloatType{2} ]");
  CHECK(printed(tensor({0.0, 1e-7})) == "1e-07 *\n 0.0000\n 1.0000\n[ CPUFloatType{2} ]");
  CHECK(printed(tensor({{100000.5, -22.25}, {123456.0, 30000.0}})) ==
        "100000 *\n 1.0000 -0.0002\n  1.2346  0.3000\n[ CPUFloatType{2,2} ]");
  CHECK(printed(tensor({1e5, 1e-5})) == " 1.0000e+05\n 1.0000e-05\n[ CPUFloatType{2} ]");
  CHECK(printed(tensor({1e5, 1.0, 0.5})) ==
        " 1.0000e+05\n 1.0000e+00\n 5.0000e-01\n[ CPUFloatType{3} ]");
  CHECK(printed(tensor({1e-310, 0.0}, kFloat64)) ==
        "1e-307 *\n 0.0010\n 0.0000\n[ CPUDoubleType{2} ]");
  CHECK(printed(tensor({5e-324, 0.0}, kFloat64)) ==
        "1e-307 *\n 0.0000\n 0.0000\n[ CPUDoubleType{2} ]");
  CHECK(printed(tensor({1e200, 1e-200}, kFloat64)) ==
        " 1.0000e+200\n 1.0000e-200\n[ CPUDoubleType{2} ]");
}

TEST_CASE("infinities and NaN do not affect the format") {
  CHECK(printed(tensor({kInf, 1.0, -kInf, kNaN})) == "inf\n 1\n-inf\nnan\n[ CPUFloatType{4} ]");
  CHECK(printed(tensor({kInf, 1.5, -kInf, kNaN})) ==
        "    inf\n 1.5000\n   -inf\n    nan\n[ CPUFloatType{4} ]");
  CHECK(printed(tensor({kInf, kNaN})) == "inf\nnan\n[ CPUFloatType{2} ]");
}

TEST_CASE("more dimensions print matrix by matrix, the first index running fastest") {
  CHECK(printed(ones({2, 1, 1}, kInt32)) ==
        "(1,.,.) = \n  1\n\n(2,.,.) = \n  1\n[ CPUIntType{2,1,1} ]");
  CHECK(printed(tensor({{{1.5, 2.5}, {3.0, 4.0}}, {{5.0, 6.0}, {7.0, 8.0}}})) ==
        "(1,.,.) = \n  1.5000  2.5000\n  3.0000  4.0000\n\n(2,.,.) = \n  5  6\n  7  8\n"
        "[ CPUFloatType{2,2,2} ]");
  CHECK(printed(arange(16).view({2, 2, 2, 2})) ==
        "(1,1,.,.) = \n  0  1\n  2  3\n\n(2,1,.,.) = \n   8   9\n  10  11\n\n"
        "(1,2,.,.) = \n  4  5\n  6  7\n\n(2,2,.,.) = \n  12  13\n  14  15\n"
        "[ CPULongType{2,2,2,2} ]");
  CHECK(printed(tensor({{{100000.5, 20000.25}, {100000.5, 20000.25}}})) ==
        "(1,.,.) = \n 100000 *\n  1.0000  0.2000\n   1.0000  0.2000\n[ CPUFloatType{1,2,2} ]");
}

TEST_CASE("a tensor without elements prints as its type and shape") {
  CHECK(printed(zeros(0)) == "[ CPUFloatType{0} ]");
  CHECK(printed(zeros({0, 3})) == "[ CPUFloatType{0,3} ]");
  CHECK(printed(zeros({2, 0, 3})) == "[ CPUFloatType{2,0,3} ]");
}

TEST_CASE("a matrix wider than the line is cut into blocks of columns") {
  CHECK(printed(arange(42).view({2, 21})) ==
        "Columns 1 to 20  0   1   2   3   4   5   6   7   8   9  10  11  12  13  14  15  16  17  18"
        "  19\n 21  22  23  24  25  26  27  28  29  30  31  32  33  34  35  36  37  38  39  40\n\n"
        "Columns 21 to 21 20\n 41\n[ CPULongType{2,21} ]");
  std::ostringstream narrow;
  print(narrow, arange(12).view({2, 6}), 10);
  CHECK(on_cpu(narrow.str()) ==
        "Columns 1 to 2  0   1\n  6   7\n\nColumns 3 to 4  2   3\n  8   9\n\n"
        "Columns 5 to 6  4   5\n 10  11\n[ CPULongType{2,6} ]");
}

TEST_CASE("printing shows neither gradient nor layout, and leaves the stream's settings alone") {
  const Tensor x = arange(4.0).view({2, 2}).requires_grad_();
  std::ostringstream out;
  out << x.t() * 1 << 0.123456789;
  CHECK(on_cpu(out.str()) == " 0  2\n 1  3\n[ CPUFloatType{2,2} ]0.123457");
}

TEST_CASE("options print every field and whether it is the default") {
  CHECK(
      printed(TensorOptions()) ==
      "TensorOptions(dtype=float32 (default), device=" + get_default_device().str() +
          " (default), layout=Strided (default), "
          "requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt))");
  CHECK(printed(dtype(kInt32).device(kCPU).requires_grad(true).memory_format(
            MemoryFormat::Contiguous)) ==
        "TensorOptions(dtype=int32, device=cpu, layout=Strided (default), requires_grad=true, "
        "pinned_memory=false (default), memory_format=Contiguous)");
}
