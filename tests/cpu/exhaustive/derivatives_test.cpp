// Every unary op's derivative on all 65,536 float16 and bfloat16 values of what it saves, against
// the same expression in MPFR: what the backward kernel makes of tails, kinks and special values.
// Right to 1 ulp (2 for few), or to the smallest normal float32 where the square of a bfloat16
// overflows.
#include <doctest/doctest.h>

#if HALFTAPE_HAVE_MPFR
#include <sstream>
#include <string>
#include <vector>

#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/unary.h"
#include "halftape/tests/support/rows/unary_rows.h"

using namespace halftape;
using testing::ordered;

namespace {

struct UnaryOp {
  std::string name;
  OpId id;
};

std::vector<UnaryOp> all_unary_ops() {
  std::vector<UnaryOp> all;
  UnaryOps::each([&]<class Op>(std::type_identity<Op>) {
    all.push_back({Op::name, UnaryOps::index<Op>()});
  });
  return all;
}

template <class T>
void check_all() {
  const Array saved({65536}, dtype_of<T>, kCPU), g = full({65536}, 1, dtype_of<T>, kCPU),
                                                 dx({65536}, dtype_of<T>, kCPU);
  for (uint32_t bits = 0; bits < 65536; ++bits)
    saved.data<T>()[bits] = T::from_bits(static_cast<uint16_t>(bits));
  int most = 0;
  std::string exceptions;
  for (const UnaryOp& op : all_unary_ops()) {
    const testing::UnaryRow* row = testing::find_unary_row(op.name);
    REQUIRE_MESSAGE(row, op.name);
    const Params<double> p = row->use.parameters;
    INFO(op.name << " in " << std::string(std::is_same_v<T, Half> ? "float16" : "bfloat16"));
    cpu_backend().unary_grad(op.id, dx, g, saved, p);
    int wrong_class = 0, any = 0, off_by_one = 0, beyond = 0;
    std::ostringstream first;
    for (uint32_t i = 0; i < 65536; ++i) {
      const double in = static_cast<double>(saved.data<T>()[i]);
      const T got = dx.data<T>()[i], exact(row->derivative.exact(in, p).rounded_to_odd());
      const double d = static_cast<double>(got), e = static_cast<double>(exact);
      const int distance = std::abs(ordered(got.bits) - ordered(exact.bits));
      const bool classes_differ = std::isnan(d) != std::isnan(e) ||
                                  (!std::isnan(e) && (std::isinf(d) != std::isinf(e) || d * e < 0));
      if (!std::isnan(e) && distance > 0) ++any;
      const bool differs = !std::isnan(e) && distance > 0 && std::abs(d - e) >= 0x1p-126;
      if (differs) ++off_by_one;
      if (classes_differ || (differs && distance > row->use.ulps)) {
        if (wrong_class + beyond == 0)
          first << "first at " << in << ": got " << d << ", exactly " << e;
        ++(classes_differ ? wrong_class : beyond);
      }
    }
    INFO(first.str());
    CHECK(wrong_class == 0);
    CHECK(beyond == 0);
    // A few roundings in float32 before the one to 16 bits, and ties that they hide.
    CHECK(any < 1024);  // with those that differ by less than 2^-126
    CHECK(off_by_one <= row->use.misrounded_derivatives);
    if (off_by_one > 8)
      exceptions += ", " + std::to_string(off_by_one) + " of " + op.name;
    else
      most = std::max(most, off_by_one);
  }
  MESSAGE("at most ", most, " of the 65,536 derivatives of an op are misrounded", exceptions);
}

}  // namespace

TEST_CASE("every unary derivative is right for all 65,536 float16 values") { check_all<Half>(); }
TEST_CASE("every unary derivative is right for all 65,536 bfloat16 values") {
  check_all<BFloat16>();
}

#endif
