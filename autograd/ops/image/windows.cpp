#include "halftape/autograd/ops/image/windows.h"

#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"

namespace halftape::detail {

Tensor windows(const Tensor& x, const Windows& w, const Shape& count) {
  return record("windows", window_view(x.array(), w, count), {&x},
                [w, lengths = last_dims(x.sizes(), w.dims())](Node&, const Tensor& g) -> Grads {
                  return {fold(g, w, lengths)};
                });
}

Tensor fold(const Tensor& g, const Windows& w, const Shape& lengths, std::optional<Dtype> dtype) {
  const int n = w.dims();
  const Array y(joined(leading_dims(g.sizes(), 2 * n), lengths), dtype.value_or(g.dtype()),
                g.device());
  backend(g.device()).fold(y, g.array(), w);
  return record("fold", y, {&g},
                [w, count = last_dims(g.sizes(), n), from = g.dtype()](
                    Node&, const Tensor& gg) -> Grads { return {windows(gg.to(from), w, count)}; });
}

Shape window_count(const char* op, const Windows& w, const Shape& lengths, bool ceil) {
  w.check_reach(op, lengths);
  Shape count;
  for (int i = 0; i < w.dims(); ++i) {
    const int64_t room = lengths[i] + 2 * w.padding[i], left = room - w.span(i);
    const bool reaches = ceil && left + w.stride[i] > 0 && lengths[i] + w.padding[i] > 0;
    HALFTAPE_CHECK(left >= 0 || reaches, op, ": kernel ", w.size, " with dilation ", w.dilation,
                   " covers ", w.span(i), " elements, the input ", lengths, " with padding ",
                   w.padding, " has ", room);
    int64_t n = left / w.stride[i] + 1;  // 1 where a window reaches beyond the end, too
    if (ceil && left > 0 && left % w.stride[i] != 0 && n * w.stride[i] < lengths[i] + w.padding[i])
      ++n;
    count.push_back(n);
  }
  return count;
}

Windows windows_of(const char* op, int n, const Dims& kernel_size, const Dims& stride,
                   const Dims& padding, const Dims& dilation) {
  return {each_dim(op, "kernel_size", kernel_size, n, 1), each_dim(op, "stride", stride, n, 1),
          each_dim(op, "dilation", dilation, n, 1), each_dim(op, "padding", padding, n, 0)};
}

void check_size(const Shape& shape, Dtype dtype) {
  checked_mul(numel(shape), static_cast<int64_t>(element_size(dtype)));
}

Dims each_dim(const char* op, const char* argument, const Dims& given, int n, int64_t least) {
  HALFTAPE_CHECK(given.size() == n || given.size() == 1, op, ": ", argument, ' ', given, " has ",
                 given.size(), " numbers; expected ", n, ", or one for all");
  const Dims all = given.size() == n ? given : Dims::filled(n, given[0]);
  for (int64_t v : all)
    HALFTAPE_CHECK(v >= least, op, ": ", argument, ' ', all, " must not be ",
                   least > 0 ? "0 or negative" : "negative");
  return all;
}

}  // namespace halftape::detail
