// Printing in LibTorch's manner: rows of numbers, matrices one after another, then type and shape.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "halftape/autograd/tensor.h"

namespace halftape {
namespace {

std::string number(int64_t v) { return std::to_string(v); }
std::string number(double v) {
  if (std::isnan(v)) return "nan";  // its sign says nothing
  const double size = std::abs(v);
  const bool exponent = std::isfinite(v) && v != 0 && (size >= 1e5 || size < 1e-4);
  char text[40];
  std::snprintf(text, sizeof text, exponent ? "%.4e" : "%.4f", v);
  return text;
}

template <class T>
std::vector<std::string> numbers(const Tensor& t) {
  std::vector<std::string> text;
  for (T v : t.to_vector<T>()) text.push_back(number(v));
  return text;
}

const char* type_name(Dtype d) {
  constexpr const char* names[] = {"Bool", "Byte",     "Int",   "Long",
                                   "Half", "BFloat16", "Float", "Double"};
  return names[static_cast<size_t>(d)];
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& t) {
  if (!t.defined()) return out << "[ Tensor (undefined) ]";
  const auto text = t.is_floating_point() ? numbers<double>(t) : numbers<int64_t>(t);
  size_t width = 0;
  for (const std::string& s : text) width = std::max(width, s.size());
  const auto rank = static_cast<int>(t.dim());
  if (rank == 0) {
    out << text[0] << '\n';
  } else if (rank == 1) {
    for (const auto& s : text) out << std::string(width + 1 - s.size(), ' ') << s << '\n';
  } else if (!text.empty()) {
    const auto rows = static_cast<size_t>(t.size(-2)), columns = static_cast<size_t>(t.size(-1));
    for (size_t start = 0; start < text.size(); start += rows * columns) {
      if (rank > 2) {  // which matrix of the leading dimensions this is, counted from 1
        Dims at;
        size_t rest = start / (rows * columns);
        for (int d = rank - 3; d >= 0; --d) {
          at.insert(0, static_cast<int64_t>(rest % static_cast<size_t>(t.size(d))) + 1);
          rest /= static_cast<size_t>(t.size(d));
        }
        out << '(';
        for (int64_t i : at) out << i << ',';
        out << ".,.) = \n";
      }
      for (size_t r = 0; r < rows; ++r, out << '\n')
        for (size_t c = 0; c < columns; ++c) {
          const std::string& s = text[start + r * columns + c];
          out << std::string(width + 1 - s.size(), ' ') << s;
        }
    }
  }
  out << "[ " << (t.device().is_cpu() ? "CPU" : "CUDA") << type_name(t.dtype()) << "Type{";
  for (int i = 0; i < rank; ++i) out << (i ? "," : "") << t.size(i);
  return out << "} ]";
}

}  // namespace halftape
