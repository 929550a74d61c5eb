// Printing as LibTorch's: rows of numbers of one width, matrices one after another, then type and
// shape.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "halftape/autograd/tensor.h"

namespace halftape {
namespace {

/// The format of all numbers of a vector or matrix: printf's conversion, width, common factor.
struct Format {
  char conversion = 'g';  // g: six digits as needed; f: four decimals; e: four decimals, exponent
  int width = 0;
  double scale = 1;

  std::string operator()(double v) const {
    char text[64] = "nan";  // whose sign says nothing
    if (!std::isnan(v))
      std::snprintf(text, sizeof text,
                    conversion == 'g'   ? "%g"
                    : conversion == 'f' ? "%.4f"
                                        : "%.4e",
                    v / scale);
    // MinGW's %*g loses the width where it drops zeros.
    const auto length = static_cast<int>(std::strlen(text));
    return std::string(static_cast<size_t>(std::max(width - length, 0)), ' ') + text;
  }
  std::string factor() const {
    char text[40];
    std::snprintf(text, sizeof text, "%g *\n", scale);
    return scale == 1 ? "" : text;
  }
};

/// Digits before the point of the smallest and the largest magnitude decide; infinities and NaN do
/// not count.
Format format_of(const double* v, int64_t n) {
  bool integers = true;
  double least = 0, most = 0;
  int64_t finite = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(v[i])) continue;
    integers = integers && v[i] == std::ceil(v[i]);
    const double size = std::abs(v[i]);
    least = finite == 0 ? size : std::min(least, size);
    most = std::max(most, size);
    ++finite;
  }
  auto digits = [](double size) {
    return size == 0 ? 1 : static_cast<int>(std::floor(std::log10(size))) + 1;
  };
  const int low = digits(least), high = digits(most);
  if (integers) return high > 9 ? Format{'e', 11} : Format{'g', high + 1};
  if (high - low > 4) return {'e', high > 99 || std::abs(low) > 99 ? 12 : 11};
  // A factor below the normal numbers would lose digits, or be 0.
  if (high > 5 || high < 0) return {'f', 7, std::pow(10, std::max(high - 1, -307))};
  return {'f', high == 0 ? 7 : high + 6};
}

/// In as many blocks of columns as the line needs.
void print_matrix(std::ostream& out, const double* v, int64_t rows, int64_t columns,
                  int64_t line_width, int indent) {
  const Format format = format_of(v, rows * columns);
  const std::string margin(static_cast<size_t>(indent), ' ');
  const int64_t fit = std::max<int64_t>((line_width - indent) / (format.width + 1), 1);
  out << margin;
  for (int64_t first = 0; first < columns; first += fit) {
    const int64_t last = std::min(first + fit, columns);
    if (fit < columns)
      out << (first ? "\n" : "") << "Columns " << first + 1 << " to " << last << margin;
    if (format.scale != 1) out << format.factor() << margin;
    for (int64_t r = 0; r < rows; ++r) {
      if (r > 0) out << margin << (format.scale != 1 ? " " : "");
      for (int64_t c = first; c < last; ++c)
        out << format(v[r * columns + c]) << (c + 1 < last ? " " : "\n");
    }
  }
}

/// The matrices of the last two dimensions. As in LibTorch the first index runs fastest.
void print_matrices(std::ostream& out, const double* v, const Shape& shape, int64_t line_width) {
  const int lead = shape.size() - 2;
  const int64_t rows = shape[lead], columns = shape[lead + 1];
  Dims at = Dims::filled(lead, 0);
  for (bool first = true, done = false; !done; first = false) {
    int64_t offset = 0;
    out << (first ? "(" : "\n(");
    for (int d = 0; d < lead; ++d) {
      offset = offset * shape[d] + at[d];
      out << at[d] + 1 << ',';
    }
    out << ".,.) = \n";
    print_matrix(out, v + offset * rows * columns, rows, columns, line_width, 1);
    int d = 0;
    while (d < lead && ++at[d] == shape[d]) at[d++] = 0;
    done = d == lead;
  }
}

}  // namespace

const char* type_name(Dtype d) { return traits(d).type_name; }

std::ostream& print(std::ostream& out, const Tensor& t, int64_t line_width) {
  if (!t.defined()) return out << "[ Tensor (undefined) ]";
  const Shape& shape = t.sizes();
  if (t.dim() == 0 && !t.is_floating_point()) {
    out << t.item<int64_t>() << '\n';  // every digit, where LibTorch's go through double
  } else if (t.dim() == 0) {
    out << Format{}(t.item<double>()) << '\n';
  } else if (t.numel() > 0) {
    const auto v = t.detach().to_vector();
    if (t.dim() == 1) {
      const Format format = format_of(v.data(), t.numel());
      out << format.factor();
      for (double x : v) out << format(x) << '\n';
    } else if (t.dim() == 2) {
      print_matrix(out, v.data(), shape[0], shape[1], line_width, 0);
    } else {
      print_matrices(out, v.data(), shape, line_width);
    }
  }
  out << "[ " << (t.device().is_cpu() ? "CPU" : "CUDA") << type_name(t.dtype()) << "Type{";
  for (int i = 0; i < shape.size(); ++i) out << (i ? "," : "") << shape[i];
  return out << "} ]";
}

void print(const Tensor& t, int64_t line_width) { print(std::cout, t, line_width); }

std::ostream& operator<<(std::ostream& out, const Tensor& t) { return print(out, t, 80); }

}  // namespace halftape
