#include "plain.h"

#include <algorithm>
#include <type_traits>

namespace halftape::fuzz {

double stored(double value, Dtype dtype, Dtype from) {
  return visit(dtype, [&]<class T>(Type<T>) {
    if constexpr (is_narrow(dtype_of<T>))
      return static_cast<double>(convert<float>(convert<T>(static_cast<float>(value))));
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      if (!is_floating_point(from))
        return static_cast<double>(static_cast<T>(static_cast<int64_t>(value)));
    return convert<double>(convert<T>(value));
  });
}

int64_t product(const Index& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

void for_each_index(const Index& sizes, const std::function<void(const Index&)>& f) {
  Index index(sizes.size(), 0);
  for (int64_t n = product(sizes); n > 0; --n) {
    f(index);
    for (size_t d = sizes.size(); d-- > 0;) {
      if (++index[d] < sizes[d]) break;
      index[d] = 0;
    }
  }
}

Plain computed(Dtype dtype, const Index& sizes, const std::function<double(const Index&)>& f) {
  Plain y(dtype, sizes);
  size_t i = 0;
  for_each_index(sizes, [&](const Index& index) { (*y.storage)[i++] = stored(f(index), dtype); });
  return y;
}

std::optional<Index> broadcast(const Index& a, const Index& b) {
  Index out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

namespace {
int kind(Dtype d) { return is_floating_point(d) ? 2 : d == kBool ? 0 : 1; }
}  // namespace

Dtype result_dtype(const Plain& a, const Plain& b) {
  if ((a.dim() == 0) == (b.dim() == 0)) return promote(a.dtype, b.dtype);
  const Dtype strong = a.dim() == 0 ? b.dtype : a.dtype;
  const Dtype weak = a.dim() == 0 ? a.dtype : b.dtype;
  return kind(weak) > kind(strong) ? promote(strong, weak) : strong;
}

}  // namespace halftape::fuzz
