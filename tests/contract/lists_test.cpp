// Indexing, random numbers, and lists of parameters of the contract.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "halftape/core/formula/binary.h"
#include "halftape/core/formula/exponents.h"
#include "halftape/core/formula/number_class.h"
#include "halftape/core/formula/reduce.h"
#include "halftape/core/formula/unary.h"
#include "halftape/tests/support/placed.h"

using namespace halftape;
using namespace halftape::testing;

TEST_CASE("gather, the scatters and random numbers give the same bits in every layout") {
  for (const auto* dtypes : {&floats, &whole}) {
    for (const Dtype d : *dtypes) {
      for (const int dim : {0, 1, 2}) {
        const Shape s{9, 11, 7};
        Shape picked = s;
        picked[dim] = 40;
        check(
            {"gather",
             {numbers(picked, d)},
             {numbers(s, d, 2), integers(picked, s[dim])},
             [dim](const Arrays& y, const Arrays& x) { tested().gather(y[0], x[0], dim, x[1]); }});
        check(
            {"scatter",
             {numbers(s, d, 3)},
             {numbers(picked, d, 2), integers(picked, s[dim])},
             [dim](const Arrays& y, const Arrays& x) { tested().scatter(y[0], x[0], dim, x[1]); }});
        if (d == kBool) continue;
        for (OpId op = 0; op < static_cast<OpId>(ReduceOps::size); ++op)
          check({"scatter_reduce",
                 {numbers(s, d, 3, false)},
                 {numbers(picked, d, 2, false), integers(picked, s[dim])},
                 [dim, op](const Arrays& y, const Arrays& x) {
                   tested().scatter_reduce(op, y[0], x[0], dim, x[1]);
                 }});
      }
      check({"gather of rows",
             {numbers({300, 33}, d)},
             {numbers({50, 33}, d, 2), integers({300, 33}, 50)},
             [](const Arrays& y, const Arrays& x) { tested().gather(y[0], x[0], 0, x[1]); }});
    }
  }
  for (const auto kind :
       {Distribution::Uniform, Distribution::Normal, Distribution::Bernoulli, Distribution::Bits})
    for (const Dtype d : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64})
      for (const Shape& s : {Shape{0}, Shape{1}, Shape{7, 33}, Shape{3, many(8193, 3001)}})
        check({"random", {numbers(s, d)}, {}, [kind](const Arrays& y, const Arrays&) {
                 tested().random(y[0], kind, 0.25, 5, {.seed = 7, .offset = 3});
               }});
}

TEST_CASE("dropout drops what random numbers with its key say, in every layout") {
  const double p = 0.3;
  const RandomKey key{.seed = 7, .offset = 3};
  for (const Dtype d : floats)
    for (const Shape& s :
         {Shape{0}, Shape{1}, Shape{7}, Shape{7, 33}, Shape{3, many(8193, 3001)}}) {
      CAPTURE(d);
      CAPTURE(s);
      const Array x = numbers(s, d, 2, false), kept(s, d, kCPU), wanted(s, d, kCPU);
      check({"dropout", {numbers(s, d)}, {x}, [&](const Arrays& y, const Arrays& in) {
               tested().run(DropoutTask{y[0], in[0], p, key});
             }});
      cpu_backend().random(kept, Distribution::Bernoulli, 1 - p, 0, key);
      cpu_backend().binary(BinaryOps::index<formula::Mul>(), wanted, x, kept);
      cpu_backend().unary(UnaryOps::index<formula::DivScalar>(), wanted, wanted, {1 - p});
      const Array y = there(numbers(s, d));
      tested().run(DropoutTask{y, there(x), p, key});
      const Array got = y.to(kCPU);
      const auto bytes = static_cast<size_t>(got.numel()) * element_size(d);
      CHECK((bytes == 0 || std::memcmp(got.raw(), wanted.raw(), bytes) == 0));
    }
}

TEST_CASE("unscale and the optimizer updates give the same bits in every layout") {
  const Array half = full({1}, 0.5, kFloat32, kCPU), zero = full({1}, 0, kFloat32, kCPU);
  const Array inverse = there(half), none = there(zero);
  const UpdateRule rules[] = {
      SgdRule{.lr = 0.1, .weight_decay = 0.01},
      SgdRule{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01},
      AdamRule{.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8},
      AdamRule{.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .amsgrad = true},
      RmspropRule{.lr = 0.1, .alpha = 0.9, .eps = 1e-8, .momentum = 0.9, .centered = true},
      AdagradRule{.lr = 0.1, .lr_decay = 0.1, .eps = 1e-8, .weight_decay = 0.01},
      LionRule{.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.01}};
  for (const Dtype d : floats) {
    for (const Shape& s :
         {Shape{}, Shape{0}, Shape{31}, Shape{7, 33}, Shape{3, many(5477, 1500)}}) {
      const auto random = [&](uint32_t seed) { return numbers(s, d, seed, false); };
      for (const bool special : {false, true})
        check({"unscale",
               {numbers(s, d, 1, special), random(2), zero},
               {},
               [&](const Arrays& y, const Arrays&) {
                 tested().unscale(std::span(y.data(), 2), inverse, y[2]);
               }});
      check({"update, clipping",
             {random(1), random(2), zero},
             {},
             [&](const Arrays& y, const Arrays&) {
               const UpdateSlot slot{.param = y[0], .grad = y[1], .step = y[2]};
               tested().update({&slot, 1}, rules[0], {.found_inf = none, .clip = inverse});
             }});
      // Three moments, of which the rules take what they need; one of them may be missing.
      for (const UpdateRule& rule : rules) {
        for (const bool low : {false, true})
          check(
              {"update",
               {random(1), random(2), random(5), random(6), zero, numbers(s, kBFloat16, 7, false)},
               {random(3)},
               [&](const Arrays& y, const Arrays& x) {
                 UpdateSlot slot{.param = y[0], .grad = x[0], .step = y[4]};
                 for (int i = 0; i < 3; ++i) {
                   tested().unary(UnaryOps::index<formula::Abs>(), y[i + 1], y[i + 1], {});
                   slot.moments[i] = y[i + 1];
                 }
                 if (low) slot.low = y[5];
                 tested().update({&slot, 1}, rule, {.found_inf = none, .inv_scale = inverse});
               }});
      }
    }
  }
  for (const Dtype d : floats)
    for (const Dtype given : floats)
      check({"push",
             {numbers({9}, d), full({1}, 25, kInt64, kCPU)},
             {numbers({1}, given)},
             [](const Arrays& y, const Arrays& x) {
               tested().run(Push{y[0], y[1], x[0]});
             }});
  check({"push",
         {full({4, 3}, 7, kInt64, kCPU), full({1}, 6, kInt64, kCPU)},
         {full({3}, 1 << 30, kInt64, kCPU)},
         [](const Arrays& y, const Arrays& x) {
           tested().run(Push{y[0], y[1], x[0]});
         }});
  check({"transition",
         {full({1}, 1024, kFloat32, kCPU), full({2}, 0, kInt32, kCPU), full({8}, 0, kInt64, kCPU)},
         {half, full({1}, 4, kInt64, kCPU)},
         [](const Arrays& y, const Arrays& x) {
           const CheckResult result{x[0], x[1]};
           tested().transition({y[0], y[1], y[2], {&result, 1}});
         }});
}

TEST_CASE("numbers are counted by powers of two, in every layout") {
  const auto count = [](const Arrays& y, const Arrays& x) {
    tested().count_numbers(CountBy::Exponent, y[0], x[0]);
  };
  const std::vector<Shape> long_ones = large();
  for (const Dtype d : floats)
    for (const auto* shapes : {&small, &long_ones}) {
      for (const Shape& s : *shapes) {
        const Array x = numbers(s, d);
        check({"count_exponents", {full({kExponentSlots}, 3, kInt64, kCPU)}, {x}, count, true});
        const Array counts = there(full({kExponentSlots}, 0, kInt64, kCPU));
        count({counts}, {there(x)});
        std::vector<int64_t> found(kExponentSlots), expected(kExponentSlots);
        tested().read(found.data(), counts);
        const Array wide(s, kFloat64, kCPU);
        backend(kCPU).copy(wide, x);
        for (int64_t i = 0; i < wide.numel(); ++i) {
          const double v = static_cast<const double*>(wide.raw())[i];
          int exponent;
          const bool power = std::frexp(std::abs(v), &exponent) == 0.5;
          const int slot = std::isnan(v)            ? 510
                           : std::isinf(v)          ? 511
                           : v == 0                 ? 1
                           : std::abs(v) < 0x1p-126 ? 0
                                                    : 2 * (exponent + 126) + power;
          ++expected[static_cast<size_t>(slot)];
        }
        CHECK(found == expected);
      }
    }
}

TEST_CASE("numbers are counted by their class, in every layout") {
  const auto count = [](const Arrays& y, const Arrays& x) {
    tested().count_numbers(CountBy::Class, y[0], x[0]);
  };
  const std::vector<Shape> long_ones = large();
  for (const Dtype d : floats) {
    const double least = d == kFloat16 ? 0x1p-14 : d == kFloat64 ? 0x1p-1022 : 0x1p-126;
    for (const auto* shapes : {&small, &long_ones}) {
      for (const Shape& s : *shapes) {
        const Array x = numbers(s, d);
        check({"count_classes", {full({kNumberClasses}, 3, kInt64, kCPU)}, {x}, count, true});
        const Array counts = there(full({kNumberClasses}, 0, kInt64, kCPU));
        count({counts}, {there(x)});
        std::vector<int64_t> found(kNumberClasses), expected(kNumberClasses);
        tested().read(found.data(), counts);
        const Array wide(s, kFloat64, kCPU), doubled(s, d, kCPU), twice(s, kFloat64, kCPU);
        backend(kCPU).copy(wide, x);
        backend(kCPU).binary(BinaryOps::index<formula::Add>(), doubled, x, x);
        backend(kCPU).copy(twice, doubled);
        for (int64_t i = 0; i < wide.numel(); ++i) {
          const double v = std::abs(static_cast<const double*>(wide.raw())[i]);
          const NumberClass c = std::isnan(v)   ? NumberClass::NaN
                                : std::isinf(v) ? NumberClass::Infinite
                                : v == 0        ? NumberClass::Zero
                                : v < least     ? NumberClass::Subnormal
                                : std::isinf(static_cast<const double*>(twice.raw())[i])
                                    ? NumberClass::Large
                                    : NumberClass::Normal;
          ++expected[static_cast<size_t>(c)];
        }
        CHECK(found == expected);
      }
    }
  }
}

TEST_CASE("of all patterns of a 16-bit format, as many are of each class as its definition says") {
  for (const Dtype d : {kFloat16, kBFloat16}) {
    const int64_t fraction = d == kFloat16 ? 1024 : 128, exponents = d == kFloat16 ? 32 : 256;
    const Array x({0x10000}, d, kCPU), counts = there(full({kNumberClasses}, 0, kInt64, kCPU));
    for (uint32_t i = 0; i < 0x10000; ++i)
      static_cast<uint16_t*>(x.raw())[i] = static_cast<uint16_t>(i);
    tested().count_numbers(CountBy::Class, counts, there(x));
    std::vector<int64_t> found(kNumberClasses);
    tested().read(found.data(), counts);
    // Zero, Subnormal, Normal, Large, Infinite, NaN; each with both signs.
    CHECK(found == std::vector<int64_t>{2, 2 * (fraction - 1), 2 * (exponents - 3) * fraction,
                                        2 * fraction, 2, 2 * (fraction - 1)});
  }
}
