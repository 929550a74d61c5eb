// The words of formulas for one float, accurate to half an ulp by way of double.
#pragma once
#include <cmath>

namespace halftape::cpu::math {

inline double exp(double x) { return std::exp(x); }
inline double log(double x) { return std::log(x); }
inline double log1p(double x) { return std::log1p(x); }
inline double tanh(double x) { return std::tanh(x); }
inline double erf(double x) { return std::erf(x); }
inline double erfc(double x) { return std::erfc(x); }
inline double sigmoid(double x) {
  const double e = std::exp(-std::fabs(x));
  return (x >= 0 ? 1 : e) / (1 + e);
}
inline float exp(float x) { return static_cast<float>(exp(static_cast<double>(x))); }
inline float log(float x) { return static_cast<float>(log(static_cast<double>(x))); }
inline float log1p(float x) { return static_cast<float>(log1p(static_cast<double>(x))); }
inline float tanh(float x) { return static_cast<float>(tanh(static_cast<double>(x))); }
inline float erf(float x) { return static_cast<float>(erf(static_cast<double>(x))); }
inline float erfc(float x) { return static_cast<float>(erfc(static_cast<double>(x))); }
inline float sigmoid(float x) { return static_cast<float>(sigmoid(static_cast<double>(x))); }

}  // namespace halftape::cpu::math
