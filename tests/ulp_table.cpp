// How far the elementary functions are off in float32: every float, or every n-th with an argument
// n, against the standard library in double. Prints docs/accuracy.md (scripts/ulp_table).
#include <halftape/halftape.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

using halftape::Tensor;

struct Function {
  const char* name;
  Tensor (*ours)(const Tensor&);
  double (*exact)(double);
  double limit = 0.51;  // ulp
};
#define FUNCTION_WITHIN(word, limit)                                                              \
  Function {                                                                                      \
#word,                                                                                        \
        [](const Tensor& x) { return halftape::word(x); },                                        \
                                                        [](double x) { return std::word(x); },    \
                                                                                            limit \
  }
#define FUNCTION(word) FUNCTION_WITHIN(word, 0.51)
const Function kFunctions[] = {
    FUNCTION_WITHIN(exp, 0.54),
    FUNCTION(exp2),
    FUNCTION(expm1),
    FUNCTION_WITHIN(log, 0.58),
    FUNCTION(log1p),
    FUNCTION(log2),
    FUNCTION(log10),
    FUNCTION_WITHIN(sin, 0.53),
    FUNCTION_WITHIN(cos, 0.53),
    FUNCTION(tan),
    FUNCTION(asin),
    FUNCTION(acos),
    FUNCTION(atan),
    FUNCTION(sinh),
    FUNCTION(cosh),
    FUNCTION_WITHIN(tanh, 0.60),
    FUNCTION(asinh),
    FUNCTION(acosh),
    FUNCTION(atanh),
    FUNCTION_WITHIN(erf, 0.53),
    FUNCTION(erfc),
    {"erfinv", [](const Tensor& x) { return halftape::erfinv(x); },
     [](double x) { return halftape::erfinv(x); }},
    {"sigmoid", [](const Tensor& x) { return halftape::sigmoid(x); },
     [](double x) { return 1 / (1 + std::exp(-x)); }},
    FUNCTION(sqrt),
    {"gelu", [](const Tensor& x) { return halftape::gelu(x); },
     [](double x) { return x < -1000 ? -0.0 : x * (0.5 * std::erfc(-x * std::sqrt(0.5))); }, 9},
};

/// |got − exact| in units of the last place of a float of the exact value's size; infinite where
/// one of them is NaN or rounds to infinity and the other is not, or where signs differ.
double ulps(float got, double exact) {
  const auto nearest = static_cast<float>(exact);
  if (std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(nearest) && !std::isfinite(nearest))
    return 0;
  if (std::isnan(got) && std::isnan(nearest)) return 0;
  if (!std::isfinite(got) || !std::isfinite(nearest) || std::signbit(got) != std::signbit(nearest))
    return HUGE_VAL;
  const int exponent = exact == 0 ? -126 : std::max(std::ilogb(exact), -126);
  return std::fabs(static_cast<double>(got) - exact) * std::ldexp(1.0, 23 - exponent);
}

struct Worst {
  double error = 0;
  float at = 0;
  int64_t not_nearest = 0, count = 0;
};
Worst worst_of(const Function& f, uint64_t stride) {
  constexpr int64_t kBlock = 16384;
  Worst worst;
  Tensor x = halftape::empty({kBlock});
  auto* in = x.data_ptr<float>();
  for (uint64_t bits = 0; bits < uint64_t{1} << 32;) {
    int64_t n = 0;
    if (bits == 0)  // whatever the stride
      for (const float special : {-0.0f, 1.0f, -1.0f, HUGE_VALF, -HUGE_VALF, NAN})
        in[n++] = special;
    for (; n < kBlock && bits < uint64_t{1} << 32; bits += stride)
      in[n++] = std::bit_cast<float>(static_cast<uint32_t>(bits));
    const Tensor y = f.ours(x);
    const auto* out = y.const_data_ptr<float>();
    for (int64_t i = 0; i < n; ++i) {
      const double exact = f.exact(in[i]);
      const bool nearest =
          std::bit_cast<uint32_t>(out[i]) == std::bit_cast<uint32_t>(static_cast<float>(exact));
      const double error = ulps(out[i], exact);
      worst.not_nearest += !nearest && !std::isnan(out[i]);
      if (error > worst.error) worst.error = error, worst.at = in[i];
    }
    worst.count += n;
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t given = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const uint64_t stride = given == 0 ? 1 : given;
  halftape::set_num_threads(1);
  const halftape::NoGradGuard no_grad;
  const std::string which = stride > 1
                                ? "one of every " + std::to_string(stride) + " float32 arguments"
                                : std::string("every float32 argument");
  std::printf(
      "# How far functions are off in float32\n\n"
      "Made by `scripts/ulp_table %s`, which compares %s, subnormal numbers, infinities\n"
      "and NaN among them, with the standard library's double (erfinv: with this library's; asin,\n"
      "acos and atan are the standard library's, rounded). An ulp is a unit in the last place of\n"
      "the exact result; a correctly rounded one is within 0.5. Any level of the instruction set "
      "with\nfused multiply-add gives the same bits; without it one of some ten million results "
      "may "
      "differ.\n\n"
      "| function | largest error, ulp | at x | not the nearest float |\n"
      "| --- | ---: | ---: | ---: |\n",
      std::to_string(stride).c_str(), which.c_str());
  int failures = 0;
  for (const Function& f : kFunctions) {
    const Worst w = worst_of(f, stride);
    std::printf("| %s | %.4f | %.9g | %.4f %% |\n", f.name, w.error, static_cast<double>(w.at),
                100.0 * static_cast<double>(w.not_nearest) / static_cast<double>(w.count));
    std::fflush(stdout);
    failures += !(w.error <= f.limit);
  }
  return failures;
}
