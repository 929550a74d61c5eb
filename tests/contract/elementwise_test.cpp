// Copies and element-wise calls of the contract.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "halftape/core/formula/binary.h"
#include "halftape/core/formula/unary.h"
#include "halftape/tests/support/placed.h"

using namespace halftape;
using namespace halftape::testing;

TEST_CASE("copies, casts, constants and reads give the same bits in every layout") {
  for (const Dtype to :
       {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64})
    for (const Dtype from :
         {kBool, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64})
      for (const Shape& s : {Shape{7, 33}, Shape{33}, Shape{0}, Shape{130, 130}})
        check({"copy", {numbers(s, to)}, {numbers(s, from)}, [](const Arrays& y, const Arrays& x) {
                 tested().copy(y[0], x[0]);
               }});
  for (const int64_t n : {15, 16, (1 << 20) - 1, (1 << 20) + 1})  // bytes: see cuda/copy.cu
    check({"copy",
           {numbers({n}, kUInt8)},
           {numbers({n}, kUInt8, 2)},
           [](const Arrays& y, const Arrays& x) { tested().copy(y[0], x[0]); },
           true});
  for (const Dtype d : floats) {
    for (const Shape& s : small)
      check({"fill", {numbers(s, d)}, {}, [](const Arrays& y, const Arrays&) {
               tested().fill(y[0], 0.1);
             }});
    check({"copy",
           {numbers({2, many(20011, 5003)}, d)},
           {numbers({2, many(20011, 5003)}, kFloat32)},
           [](const Arrays& y, const Arrays& x) { tested().copy(y[0], x[0]); }});
    check({"copy_across and read",
           {numbers({1000}, d), numbers({1000}, d)},
           {numbers({1000}, d)},
           [](const Arrays& y, const Arrays& x) {
             const Array from = x[0].to_contiguous(), to(y[1].shape(), y[1].dtype(), kCPU);
             tested().copy_across(y[0], from, false);
             tested().read(to.raw(), from);
             tested().copy(y[1], to.to(get_default_device()));
           },
           true});
  }
}

TEST_CASE(
    "element-wise kernels of one argument and their gradients give the same bits in every layout") {
  const Params<double> p{1.5, 2.5};
  const Params<Scalar> numbered{p.a, p.b};
  UnaryOps::each([&](auto tag) {
    using Op = typename decltype(tag)::type;
    const OpId op = UnaryOps::index<Op>();
    auto value = [&](const Shape& s, Dtype d) {
      check({Op::name, {numbers(s, d)}, {numbers(s, d, 2)}, [=](const Arrays& y, const Arrays& x) {
               tested().unary(op, y[0], x[0], numbered);
             }});
    };
    for (const Dtype d : floats) {
      for (const Shape& s : {Shape{33}, Shape{0}, Shape{7, 33}}) {
        value(s, d);
        check({std::string(Op::name) + "_grad",
               {numbers(s, d)},
               {numbers(s, d, 2), numbers(s, d, 3)},
               [=](const Arrays& y, const Arrays& x) {
                 tested().unary_grad(op, y[0], x[0], x[1], p);
               }});
      }
    }
    value({65, 257}, kFloat32);
    if constexpr (Op::integers)
      for (const Dtype d : {kUInt8, kInt8, kInt16, kInt32, kInt64}) value({7, 33}, d);
  });
  for (const Dtype d : floats)
    for (const auto& shapes : {small, large()})
      for (const Shape& s : shapes)
        check({"gelu", {numbers(s, d)}, {numbers(s, d, 2)}, [&](const Arrays& y, const Arrays& x) {
                 tested().unary(UnaryOps::index<formula::Gelu>(), y[0], x[0], numbered);
               }});
}

TEST_CASE("a part of 1 to 64 elements at any of 16 offsets has the bits of the whole") {
  constexpr int64_t kOffsets = 16, kLengths = 64, kRow = kLengths + kOffsets;
  constexpr double kBeside = 77;
  int64_t parts = 0, wrong = 0;
  UnaryOps::each([&](auto tag) {
    using Op = typename decltype(tag)::type;
    for (const Dtype d : floats) {
      INFO(Op::name << " of " << d);
      const int64_t before = wrong;
      const auto bytes = element_size(d);
      const Array x = there(numbers({kRow}, d, 3)), y = there(numbers({kRow}, d, 4));
      const auto go = [&](const Array& to, const Array& from) {
        tested().unary(UnaryOps::index<Op>(), to, from, {1.5, 2.5});
      };
      go(y, x);
      const Array all = y.to(kCPU), beside = full({kRow}, kBeside, d, kCPU);
      for (int64_t offset = 0; offset < kOffsets; ++offset) {
        const Array rows = full({kLengths, kRow}, kBeside, d, get_default_device());
        const auto to = [&](int64_t n) { return (offset + n) % kOffsets; };
        for (int64_t n = 1; n <= kLengths; ++n)
          go(rows.select(0, n - 1).slice(0, to(n), to(n) + n), x.slice(0, offset, offset + n));
        const Array got = rows.to(kCPU);
        for (int64_t n = 1; n <= kLengths; ++n, ++parts) {
          const Array expected = beside.clone();
          backend(kCPU).copy(expected.slice(0, to(n), to(n) + n), all.slice(0, offset, offset + n));
          const auto* row = static_cast<const char*>(got.raw()) + (n - 1) * kRow * bytes;
          wrong += std::memcmp(row, expected.raw(), kRow * bytes) != 0;
        }
      }
      CHECK(wrong == before);
    }
  });
  MESSAGE(parts, " parts, ", wrong, " with other bits than the whole");
}

TEST_CASE("element-wise kernels of two arguments and where give the same bits in every layout") {
  auto binary = [](const char* name, OpId op, const Shape& s, Dtype y, Dtype a, Dtype b) {
    check({name,
           {numbers(s, y)},
           {numbers(s, a, 2), is_floating_point(b) ? numbers(s, b, 3) : divisors(s, b, 3)},
           [op](const Arrays& to, const Arrays& x) { tested().binary(op, to[0], x[0], x[1]); }});
  };
  BinaryOps::each([&](auto tag) {
    using Op = typename decltype(tag)::type;
    const OpId op = BinaryOps::index<Op>();
    for (const Shape& s : {Shape{33}, Shape{0}, Shape{7, 33}}) {
      if constexpr (Op::of_integers) {
        for (const Dtype d : whole) binary(Op::name, op, s, d, d, d);
        continue;
      }
      for (const Dtype d : floats) binary(Op::name, op, s, Op::compares ? kBool : d, d, d);
      if (!Op::of_floats)
        for (const Dtype d : whole) binary(Op::name, op, s, Op::compares ? kBool : d, d, d);
      binary(Op::name, op, s, Op::compares ? kBool : kFloat32, kFloat16, kBFloat16);
      binary(Op::name, op, s, Op::compares ? kBool : kFloat16, kInt64, kFloat16);
    }
  });
  for (const Shape& s : large())
    for (const Dtype d : floats) binary("mul", BinaryOps::index<formula::Mul>(), s, d, d, d);
  for (const auto* dtypes : {&floats, &whole})
    for (const Dtype d : *dtypes)
      for (const Shape& s : {Shape{7, 33}, Shape{1000}, Shape{130, 130}})
        check({"where",
               {numbers(s, d)},
               {numbers(s, kBool, 2), numbers(s, d, 3), numbers(s, d, 4)},
               [](const Arrays& y, const Arrays& x) { tested().where(y[0], x[0], x[1], x[2]); }});
}

TEST_CASE("a function of NaN is NaN of the same sign, wherever it stands") {
#if !defined(HALFTAPE_SIMT)
  if (get_default_device().is_cuda()) return;  // the sign of a GPU's NaN is its own
#endif
  const auto of_sign = [](int64_t i) {
    return std::copysign(std::nan(""), i % 3 == 1 ? 1.0 : -1.0);
  };
  const auto test = [&](auto op, auto type, const Array& x, const Array& ones) {
    using Op = typename decltype(op)::type;
    using T = typename decltype(type)::type;
    const Array y = empty_like(x), dx = empty_like(x);
    tested().unary(UnaryOps::index<Op>(), y, x, {1.5, 2.5});
    tested().unary_grad(UnaryOps::index<Op>(), dx, ones, x, {1.5, 2.5});
    const Array values = y.to(kCPU), slopes = dx.to(kCPU);
    int64_t wrong = 0;
    for (int64_t i = 0; i < x.numel(); ++i) {
      if (i % 3 == 0) continue;  // a number
      const double sign = std::is_same_v<Op, formula::Neg>   ? -of_sign(i)
                          : std::is_same_v<Op, formula::Abs> ? std::fabs(of_sign(i))
                                                             : of_sign(i);
      const T expected = convert<T>(sign);
      wrong += std::memcmp(values.data<T>() + i, &expected, sizeof(T)) != 0;
      wrong += std::memcmp(slopes.data<T>() + i, slopes.data<T>() + i % 3, sizeof(T)) != 0;
    }
    CHECK(wrong == 0);
  };
  for (const Dtype d : floats)
    visit(d, [&](auto type) {
      using T = typename decltype(type)::type;
      const Array here({101}, d, kCPU);
      for (int64_t i = 0; i < here.numel(); ++i)
        here.data<T>()[i] = convert<T>(i % 3 == 0 ? 0.75 : of_sign(i));
      const Array x = here.to(get_default_device()), ones = full({101}, 1, d, get_default_device());
      UnaryOps::each([&](auto op) {
        CAPTURE(d);
        CAPTURE(decltype(op)::type::name);
        test(op, type, x, ones);
      });
    });
}
