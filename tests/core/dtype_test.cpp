// Names, sizes and promotion of element types, and conversion from any of them to any other.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "halftape/core/dtype.h"
#include "halftape/tests/support/dtypes.h"
#include "halftape/tests/support/nonfinite.h"
#include "halftape/tests/support/printed.h"

using namespace halftape;
using testing::kAllDtypes;
using testing::kInf, testing::kNaN;
using testing::printed;

namespace {

// One row per dtype in the order above. Made with PyTorch 2.15.0:
//   ts = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
//         torch.float16, torch.bfloat16, torch.float32, torch.float64]
//   for a in ts: print(*[str(torch.promote_types(a, b))[6:] for b in ts])
constexpr const char* promoted[10][10] = {
    {"bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
     "float64"},
    {"uint8", "uint8", "int16", "int16", "int32", "int64", "float16", "bfloat16", "float32",
     "float64"},
    {"int8", "int16", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
     "float64"},
    {"int16", "int16", "int16", "int16", "int32", "int64", "float16", "bfloat16", "float32",
     "float64"},
    {"int32", "int32", "int32", "int32", "int32", "int64", "float16", "bfloat16", "float32",
     "float64"},
    {"int64", "int64", "int64", "int64", "int64", "int64", "float16", "bfloat16", "float32",
     "float64"},
    {"float16", "float16", "float16", "float16", "float16", "float16", "float16", "float32",
     "float32", "float64"},
    {"bfloat16", "bfloat16", "bfloat16", "bfloat16", "bfloat16", "bfloat16", "float32", "bfloat16",
     "float32", "float64"},
    {"float32", "float32", "float32", "float32", "float32", "float32", "float32", "float32",
     "float32", "float64"},
    {"float64", "float64", "float64", "float64", "float64", "float64", "float64", "float64",
     "float64", "float64"},
};

}  // namespace

TEST_CASE("dtypes are printed and named as PyTorch names them") {
  for (size_t i = 0; i < std::size(kAllDtypes); ++i) {
    CHECK(std::string(name(kAllDtypes[i])) == promoted[0][i]);
    CHECK(printed(kAllDtypes[i]) == promoted[0][i]);
  }
}

TEST_CASE("promotion of two dtypes is PyTorch's table") {
  for (size_t a = 0; a < std::size(kAllDtypes); ++a) {
    for (size_t b = 0; b < std::size(kAllDtypes); ++b) {
      CAPTURE(kAllDtypes[a]);
      CAPTURE(kAllDtypes[b]);
      CHECK(printed(promote(kAllDtypes[a], kAllDtypes[b])) == promoted[a][b]);
    }
  }
}

TEST_CASE("visit names the C++ type whose dtype_of, size and epsilon are those of the dtype") {
  for (Dtype d : kAllDtypes) {
    CAPTURE(d);
    visit(d, [&](auto t) {
      using T = typename decltype(t)::type;
      CHECK(is_element<T>);
      CHECK(dtype_of<T> == d);
      CHECK(sizeof(T) == element_size(d));
      if constexpr (std::is_floating_point_v<T>)
        CHECK(epsilon(d) == static_cast<double>(std::numeric_limits<T>::epsilon()));
      else if constexpr (std::is_integral_v<T>)
        CHECK(epsilon(d) == 0);
      else  // the next bit pattern after 1 is one epsilon further
        CHECK(static_cast<double>(T::from_bits(static_cast<uint16_t>(T(1.0).bits + 1))) - 1 ==
              epsilon(d));
    });
    CHECK(is_floating_point(d) == (epsilon(d) > 0));
    CHECK(is_16bit(d) == (is_floating_point(d) && element_size(d) == 2));
    visit(d, [&](auto t) {
      using T = typename decltype(t)::type;
      if constexpr (std::is_floating_point_v<T>)
        CHECK(traits(d).largest == static_cast<double>(std::numeric_limits<T>::max()));
      else if constexpr (std::is_integral_v<T>)
        CHECK(traits(d).largest == 0);
      else  // the next bit pattern is infinity
        CHECK(static_cast<double>(
                  T::from_bits(static_cast<uint16_t>(T(traits(d).largest).bits + 1))) == kInf);
    });
  }
  CHECK_FALSE(is_element<char>);
  CHECK_FALSE(is_element<uint64_t>);
}

TEST_CASE("narrow dtypes are computed in float32, all others in themselves") {
  for (Dtype d : kAllDtypes) {
    CAPTURE(d);
    const bool narrow = d == kFloat16 || d == kBFloat16;
    CHECK(is_narrow(d) == narrow);
    CHECK(needs_master_copy(d) == narrow);
    CHECK(compute_dtype(d) == (narrow ? kFloat32 : d));
    CHECK(compute_dtype(compute_dtype(d)) == compute_dtype(d));
    CHECK(sum_dtype(d) == (is_floating_point(d) ? d : kInt64));
  }
}

TEST_CASE("numbers that do not fit an integer saturate and NaN becomes 0") {
  CHECK(convert<uint8_t>(300.0) == 255);
  CHECK(convert<uint8_t>(-3.5f) == 0);
  CHECK(convert<uint8_t>(254.999) == 254);
  CHECK(convert<uint8_t>(Half(1000.0f)) == 255);
  CHECK(convert<int8_t>(128.0) == 127);
  CHECK(convert<int8_t>(-128.9) == -128);
  CHECK(convert<int8_t>(-1e9f) == -128);
  CHECK(convert<int16_t>(40000.0) == 32767);
  CHECK(convert<int16_t>(Half(-40000.0f)) == -32768);
  CHECK(convert<int8_t>(BFloat16(kInf)) == 127);
  CHECK(convert<int16_t>(kNaN) == 0);
  CHECK(convert<int8_t>(int64_t{200}) == -56);  // integers wrap
  CHECK(convert<int32_t>(1e20) == std::numeric_limits<int32_t>::max());
  CHECK(convert<int32_t>(-1e20f) == std::numeric_limits<int32_t>::min());
  CHECK(convert<int32_t>(2147483646.9) == 2147483646);
  CHECK(convert<int64_t>(9.3e18) == std::numeric_limits<int64_t>::max());
  CHECK(convert<int64_t>(-9.3e18) == std::numeric_limits<int64_t>::min());
  CHECK(convert<int64_t>(0x1.fffffffffffffp62) == int64_t{0x7ffffffffffffc00});
  CHECK(convert<int64_t>(-2.7) == -2);  // towards zero, as C
  for (const double x : {kInf, -kInf}) {
    CHECK(convert<int64_t>(x) ==
          (x > 0 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min()));
    CHECK(convert<uint8_t>(BFloat16(x)) == (x > 0 ? 255 : 0));
  }
  CHECK(convert<int64_t>(kNaN) == 0);
  CHECK(convert<int32_t>(Half(kNaN)) == 0);
  CHECK(convert<uint8_t>(static_cast<float>(kNaN)) == 0);
}

TEST_CASE("everything but zero converts to true") {
  for (const double x : {1.0, -1.0, 0.25, 1e-300, kInf, kNaN}) CHECK(convert<bool>(x));
  CHECK(convert<bool>(Half::from_bits(1)));  // the smallest subnormal
  CHECK(convert<bool>(int64_t{1} << 40));
  CHECK_FALSE(convert<bool>(-0.0));
  CHECK_FALSE(convert<bool>(BFloat16(0.0)));
  CHECK_FALSE(convert<bool>(int32_t{0}));
  CHECK(convert<double>(true) == 1);
  CHECK(static_cast<float>(convert<Half>(true)) == 1);
}

TEST_CASE("integers round once on the way to a 16-bit format") {
  // 2049 lies between the halves 2048 and 2050; 2^24 + 1 is where float itself begins to round.
  CHECK(static_cast<float>(convert<Half>(2049)) == 2048);
  CHECK(static_cast<float>(convert<Half>(2051)) == 2052);
  CHECK(static_cast<float>(convert<Half>(65519)) == 65504);
  CHECK(std::isinf(static_cast<float>(convert<Half>(65520))));
  // Just above the middle of two bfloat16s; rounded to float first, it would go down.
  const int64_t above_middle = (int64_t{1} << 40) + (int64_t{1} << 32) + 1;
  CHECK(static_cast<double>(convert<BFloat16>(above_middle)) == 0x1.02p40);
  CHECK(static_cast<double>(convert<BFloat16>(-above_middle)) == -0x1.02p40);
  CHECK(static_cast<double>(convert<BFloat16>(above_middle - 1)) == 0x1p40);
}

TEST_CASE("integers beyond 2^53, which double rounds too, still round once to bfloat16") {
  const int64_t above_middle = (int64_t{1} << 62) + (int64_t{1} << 54) + 1;
  CHECK(static_cast<double>(convert<BFloat16>(above_middle)) == 0x1.02p62);
  CHECK(static_cast<double>(convert<BFloat16>(-above_middle)) == -0x1.02p62);
}
