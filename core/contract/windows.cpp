#include "halftape/core/contract/windows.h"

#include <algorithm>

#include "halftape/core/contract/backend.h"

namespace halftape {

Array window_view(const Array& x, const Windows& w, const Shape& count) {
  const int n = w.dims(), lead = x.dim() - n;
  Array padded = x;
  Shape room = x.shape();
  bool inside = true;
  for (int i = 0; i < n; ++i) {
    const int64_t reach = (count[i] - 1) * w.stride[i] + w.span(i);  // in the padded x
    const int64_t length = std::max(reach, x.size(lead + i) + w.padding[i]);
    inside = inside && length == x.size(lead + i);
    room[lead + i] = length;
  }
  if (!inside) {
    padded = full(room, 0, x.dtype(), x.device());
    Array middle = padded;
    for (int i = 0; i < n; ++i)
      middle = middle.slice(lead + i, w.padding[i], w.padding[i] + x.size(lead + i));
    backend(x.device()).copy(middle, x);
  }
  Shape shape = x.shape().slice(0, lead);
  Strides strides = padded.strides().slice(0, lead);
  // The stride of a single element or window may be any number.
  for (int i = 0; i < n; ++i) {
    shape.push_back(w.size[i]);
    strides.push_back(w.size[i] > 1 ? padded.strides()[lead + i] * w.dilation[i] : 0);
  }
  for (int i = 0; i < n; ++i) {
    shape.push_back(count[i]);
    strides.push_back(count[i] > 1 ? padded.strides()[lead + i] * w.stride[i] : 0);
  }
  return padded.as_strided(shape, strides, padded.offset());
}

}  // namespace halftape
