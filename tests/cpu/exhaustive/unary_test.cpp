// Every unary op on all 65,536 values of float16 and bfloat16, against MPFR rounded correctly.
#include <doctest/doctest.h>

#if HALFTAPE_HAVE_MPFR
#include <sstream>

#include "halftape/tests/support/rows/unary_rows.h"

using namespace halftape;
using namespace halftape::testing;

namespace {

template <class T>
void check_all() {
  Tensor x = empty({65536}, TensorOptions(dtype_of<T>).device(kCPU));
  for (uint32_t bits = 0; bits < 65536; ++bits)
    x.data_ptr<T>()[bits] = T::from_bits(static_cast<uint16_t>(bits));
  const Tensor given = x.to(get_default_device());
  int most = 0;
  std::string exceptions;
  for (const UnaryEntry& op : unary_ops()) {
    const UnaryRow* row = find_unary_row(op.name);
    REQUIRE_MESSAGE(row, op.name);
    std::vector<Params<double>> parameters = row->use.values_at;
    if (parameters.empty()) parameters = {row->use.parameters};
    for (const Params<double> p : parameters) {
      INFO(std::string(op.name) << " with parameter " << p.a << " in "
                                << std::string(std::is_same_v<T, Half> ? "float16" : "bfloat16"));
      const Tensor y = op.call(given, {p.a, p.b}).cpu();
      REQUIRE(y.dtype() == dtype_of<T>);
      int wrong_class = 0, off_by_one = 0, beyond = 0;
      std::ostringstream first;
      for (uint32_t i = 0; i < 65536; ++i) {
        const double in = static_cast<double>(x.const_data_ptr<T>()[i]);
        const T got = y.const_data_ptr<T>()[i], exact(row->value.exact(in, p).rounded_to_odd());
        const double g = static_cast<double>(got), e = static_cast<double>(exact);
        const int distance = std::abs(ordered(got.bits) - ordered(exact.bits));
        const bool classes_differ = std::isnan(g) != std::isnan(e) ||
                                    (!std::isnan(e) && (std::isinf(g) != std::isinf(e) ||
                                                        std::signbit(g) != std::signbit(e)));
        if (!std::isnan(e) && distance == 1) ++off_by_one;
        if (classes_differ || (!std::isnan(e) && distance > 1)) {
          if (wrong_class + beyond == 0)
            first << "first at x = " << in << ": got " << g << ", exactly " << e;
          ++(classes_differ ? wrong_class : beyond);
        }
      }
      INFO(first.str());
      CHECK(wrong_class == 0);
      CHECK(beyond == 0);
      // Computed in float32, a result is the correctly rounded one but for values very near a tie.
      // A GPU has functions of its own.
      CHECK(off_by_one <= (given.device().is_cpu() ? row->use.misrounded : 31));
      if (off_by_one > 8)
        exceptions += ", " + std::to_string(off_by_one) + " of " + op.name;
      else
        most = std::max(most, off_by_one);
    }
  }
  MESSAGE("at most ", most, " of the 65,536 results of an op are misrounded", exceptions);
}

}  // namespace

TEST_CASE("every unary op is right for all 65,536 float16 inputs") { check_all<Half>(); }
TEST_CASE("every unary op is right for all 65,536 bfloat16 inputs") { check_all<BFloat16>(); }

#endif
