// Gather and its transpose, in a fixed order.
#include <cstring>

#include "halftape/cpu/kernels.h"
#include "halftape/cpu/loop.h"

namespace halftape::cpu {
namespace {

/// The indices in row-major order, checked: nothing is written before all are known to be in range.
Array checked(const char* op, const Array& index, int64_t limit) {
  Array flat = index.to_contiguous();
  const int64_t* at = flat.data<int64_t>();
  for (int64_t i = 0; i < flat.numel(); ++i)
    HALFTAPE_CHECK(at[i] >= 0 && at[i] < limit, op, ": index ", at[i], " at position ", i,
                   " is out of range [0, ", limit, ")");
  return flat;
}

/// f(position in the index, element offset in an array of these strides) for every index, in
/// row-major order.
template <class F>
void positions(const Shape& shape, const Strides& strides, int dim, const int64_t* index,
               const F& f) {
  Dims at = Dims::filled(shape.size(), 0);
  const int64_t total = numel(shape);
  for (int64_t i = 0; i < total; ++i) {
    int64_t offset = 0;
    for (int d = 0; d < shape.size(); ++d) offset += (d == dim ? index[i] : at[d]) * strides[d];
    f(i, offset);
    for (int d = shape.size() - 1; d >= 0 && ++at[d] == shape[d]; --d) at[d] = 0;
  }
}

}  // namespace

void gather(const Array& y, const Array& x, int dim, const Array& index) {
  const Array flat = checked("gather", index, x.size(dim));
  const Array out = y.contiguous() ? y : empty_like(y);
  // A whole row behind each index (index_select of rows): copy rows instead of elements.
  const auto item = static_cast<int64_t>(element_size(x.dtype()));
  const char* from = static_cast<const char*>(x.raw());
  char* to = static_cast<char*>(out.raw());
  if (dim == 0 && index.dim() == 2 && index.strides()[1] == 0 && x.strides()[1] == 1 &&
      y.size(1) > 0) {
    for (int64_t r = 0; r < y.size(0); ++r) {
      const int64_t row = flat.data<int64_t>()[r * y.size(1)];
      std::memcpy(to + r * y.size(1) * item, from + row * x.strides()[0] * item,
                  static_cast<size_t>(y.size(1) * item));
    }
  } else {
    positions(y.shape(), x.strides(), dim, flat.data<int64_t>(), [&](int64_t i, int64_t offset) {
      std::memcpy(to + i * item, from + offset * item, static_cast<size_t>(item));
    });
  }
  if (!y.contiguous()) copy(y, out);
}

void scatter_add(const Array& y, const Array& g, int dim, const Array& index) {
  const Array flat = checked("scatter_add", index, y.size(dim));
  // 16-bit sums are kept in float and rounded once.
  const Dtype wide = is_16bit(y.dtype()) ? kFloat32 : y.dtype();
  const Array sum = is_16bit(y.dtype()) ? y.to(wide) : y;
  const Array add = g.to(wide).to_contiguous();
  visit(wide, [&](auto t) {
    using T = typename decltype(t)::type;
    if constexpr (!std::is_same_v<T, Half> && !std::is_same_v<T, BFloat16>) {
      T* out = static_cast<T*>(sum.raw());
      const T* in = add.data<T>();
      positions(
          g.shape(), sum.strides(), dim, flat.data<int64_t>(),
          [&](int64_t i, int64_t offset) { out[offset] = static_cast<T>(out[offset] + in[i]); });
    }
  });
  if (is_16bit(y.dtype())) copy(y, sum);
}

}  // namespace halftape::cpu
