// Matrix products. An operand that the library cannot read is copied, leading dimensions become
// batches of one stride, by copies where many calls would be needed, and the epilogues that the
// library lacks follow the product. Sums are kept in float (double) and rounded once. Their order,
// and so their last digits, depends on the library's algorithm, which is the same for the same
// shapes, strides and alignment.
#include <algorithm>

#include "halftape/core/contract/collapsed.h"
#include "halftape/core/contract/unfused.h"
#include "halftape/core/formula/binary.h"
#include "halftape/core/formula/ops.h"
#include "halftape/cuda/copy.h"
#include "halftape/cuda/cuda_backend.h"
#include "halftape/cuda/gemm/gemm.h"

namespace halftape::cuda {
namespace {

// Matrices of one call. The library's limit is 65,535 in places, that of a grid's third dimension;
// a power of two keeps the alignment.
constexpr int64_t kMostMatrices = 1 << 15;
// Calls of one product. Rather than make more, which a GPU can finish faster than they are
// launched, operands are copied so that one is enough.
constexpr int64_t kMostCalls = 4;

Order order_of(const Array& x) {
  const int last = x.dim() - 1;
  return cuda::order_of(x.size(last - 1), x.size(last), x.strides()[last - 1], x.strides()[last]);
}

bool aligned(const Array& x) { return reinterpret_cast<uintptr_t>(x.raw()) % 16 == 0; }

/// True if base and rows are aligned like those of a contiguous matrix of these sizes. For others
/// the library takes other kernels than the one that finishes_right() has tried.
bool has_alignment_of_sizes(const Array& x) {
  const int last = x.dim() - 1;
  for (const int d : {last - 1, last})
    if (x.size(d) > 1 && x.strides()[d] > 1 &&
        (x.strides()[d] - x.size(d == last ? last - 1 : last)) % 8 != 0)
      return false;
  return aligned(x);
}

/// x, or a copy that the library can read, with the alignment of its sizes `if_finished`. Expanded
/// dimensions stay expanded.
Array readable(const Array& x, bool if_finished = false) {
  if (order_of(x) != Order::Neither && (!if_finished || has_alignment_of_sizes(x))) return x;
  Array once = x;
  for (int d = 0; d < x.dim() - 2; ++d)
    if (x.strides()[d] == 0) once = once.slice(d, 0, 1);
  const Array y(once.shape(), x.dtype(), x.device());
  copy(y, once);
  return y.expand(x.shape());
}

/// True if no rounding is needed to bring the bias into the result's dtype.
bool is_addable(const Array& bias, Dtype result) {
  return bias.dtype() == result || (result == kFloat32 && is_16bit(bias.dtype()));
}
/// The bias as multiply_in_library() needs it.
Array addable(const Array& bias, Dtype dtype) {
  if (bias.dtype() == dtype && bias.contiguous() && aligned(bias)) return bias;
  const Array y(bias.shape(), dtype, bias.device());
  copy(y, bias);
  return y;
}

/// A batch of matrices times one matrix as the product of one matrix with many rows.
Gemm joined(const Gemm& g) {
  const int rank = g.d.dim();
  for (int d = 0; d < rank - 2; ++d)
    if (g.b.size(d) > 1 && g.b.strides()[d] != 0) return g;
  const int64_t k = g.b.size(rank - 2), n = g.b.size(rank - 1), rows = g.d.numel() / n;
  Gemm y = g;
  if (!g.d.try_view({rows, n}, y.d) || !g.a.try_view({rows, k}, y.a)) return g;
  y.b = g.b.as_strided({k, n}, {g.b.strides()[rank - 2], g.b.strides()[rank - 1]}, g.b.offset());
  return y;
}

/// The first elements of matrices.
Array leading(const Array& x) {
  const auto count = static_cast<size_t>(x.dim() - 2);
  return x.as_strided(Shape(std::span(x.shape().begin(), count)),
                      Strides(std::span(x.strides().begin(), count)), x.offset());
}

/// True if there is one stride from each matrix to the next.
bool has_one_stride(const Array& x) {
  const Array first = leading(x);
  return CollapsedDims<1>({&first}).shape.size() == 1;
}
/// x, or a copy of which that is true.
Array with_one_stride(const Array& x) {
  if (has_one_stride(x)) return x;
  const int last = x.dim() - 1;
  if (order_of(x) == Order::ByRows) return x.clone();
  return x.transpose(last - 1, last).clone().transpose(last - 1, last);
}

/// The calls that the leading dimensions of these matrices take.
int64_t calls_for(const Array& d, const Array& a, const Array& b) {
  const Array d0 = leading(d), a0 = leading(a), b0 = leading(b);
  const CollapsedDims<3> batch({&d0, &a0, &b0});
  return d0.numel() / *std::max_element(batch.shape.begin(), batch.shape.end());
}

/// Calls f(Product) for g, with the leading dimensions as few batches of one stride.
template <class F>
void each_product(const Gemm& g, F&& f) {
  const int rank = g.d.dim();
  const auto matrices = [rank](const Array& x, char* at, int64_t next) {
    return Matrices{at, x.dtype(), x.strides()[rank - 2], x.strides()[rank - 1], next};
  };
  const Array d = leading(g.d), a = leading(g.a), b = leading(g.b);
  const CollapsedDims<3> batch({&d, &a, &b});
  const int dims = batch.shape.size();
  int longest = 0;  // the dimension of a call; the others become a loop
  for (int i = 1; i < dims; ++i)
    if (batch.shape[i] > batch.shape[longest]) longest = i;
  const int64_t length = batch.shape[longest], loops = d.numel() / length;
  const auto stride = [&](size_t which, int i) { return batch.operands[which].strides[i]; };
  const auto next = [&](size_t which) {
    return length == 1 ? 0 : stride(which, longest) / batch.operands[which].item;
  };
  Product p{.m = g.d.size(rank - 2),
            .n = g.d.size(rank - 1),
            .k = g.a.size(rank - 1),
            .count = 0,
            .d = matrices(g.d, nullptr, next(0)),
            .a = matrices(g.a, nullptr, next(1)),
            .b = matrices(g.b, nullptr, next(2)),
            .bias = {},
            .alpha = g.alpha,
            .beta = g.beta};
  if (g.bias)
    p.bias = {static_cast<const char*>(g.bias->raw()), g.bias->dtype(), g.bias->strides()[0]};
  for (int64_t loop = 0; loop < loops; ++loop) {
    for (int64_t first = 0; first < length; first += kMostMatrices) {
      p.count = std::min(kMostMatrices, length - first);
      size_t which = 0;
      for (Matrices* x : {&p.d, &p.a, &p.b}) {
        x->base = batch.operands[which].base + first * stride(which, longest);
        int64_t rest = loop;
        for (int i = dims - 1; i >= 0; --i) {
          if (i == longest) continue;
          x->base += rest % batch.shape[i] * stride(which, i);
          rest /= batch.shape[i];
        }
        ++which;
      }
      f(p);
    }
  }
}

/// True if the library may do all of g at once: d is one matrix by rows, to be overwritten.
bool can_finish(const Gemm& g) {
  const Dtype factors = g.a.dtype(), result = g.d.dtype();
  const bool gradient = g.epilogue == Epilogue::DRelu || g.epilogue == Epilogue::DGelu;
  if (g.d.dim() != 2 || g.d.numel() == 0 || g.a.numel() == 0 || g.beta != 0 ||
      factors == kFloat64 || (result != factors && result != kFloat32) ||
      order_of(g.d) != Order::ByRows || !has_alignment_of_sizes(g.d))
    return false;
  if (g.bias && (gradient || g.bias_grad.defined() || !is_addable(*g.bias, result))) return false;
  if (const Array& s = g.bias_grad; s.defined())
    if (s.dtype() != result || !s.contiguous() || !aligned(s)) return false;
  if (!g.aux.defined()) return true;
  const bool mask = g.aux.dtype() == kUInt8;
  return aligned(g.aux) &&
         (mask || (g.aux.dtype() == result && g.aux.strides()[1] == 1 &&
                   g.aux.strides()[0] % 8 == 0 && g.aux.strides()[0] >= g.d.size(1)));
}

/// The FusedGemm for products that can_finish() accepts, of readable factors.
Outcome multiply_fused(const Queue& q, const Gemm& g) {
  const Array bias = g.bias ? addable(*g.bias, g.d.dtype()) : Array();
  const auto address = [](const Array& x) {
    return x.defined() ? static_cast<const char*>(x.raw()) : nullptr;
  };
  const int64_t aux_bits = g.aux.defined() && g.aux.dtype() == kUInt8 ? 8 : 1;
  Outcome outcome = Outcome::Refused;
  each_product({.d = g.d, .a = g.a, .b = g.b, .bias = g.bias ? &bias : nullptr, .alpha = g.alpha},
               [&](Product p) {
                 p.finish = {g.epilogue, address(g.aux),
                             g.aux.defined() ? g.aux.strides()[0] * aux_bits : 0,
                             address(g.bias_grad)};
                 outcome = multiply_in_library(q, p);
               });
  return outcome;
}

/// The product alone.
void multiply(CudaBackend& on, const Gemm& given) {
  if (given.d.numel() == 0) return;
  const Queue q = queue(given.d);
  const Dtype factors = given.a.dtype(), result = given.d.dtype();
  if (given.a.numel() == 0) {  // k is 0; d replaces the factors, which are not read
    Gemm g = given;
    g.a = g.b = g.d;
    each_product(g, [&](Product p) {
      p.k = 0;
      multiply_in_kernel(q, p);
    });
    return;
  }
  if (!is_floating_point(factors) || !is_floating_point(result)) {
    each_product(given, [&](const Product& p) { multiply_in_kernel(q, p); });
    return;
  }
  const Gemm g = joined(given);
  const Dtype wide = compute_dtype(factors);  // of the sums
  Array a = readable(g.a), b = readable(g.b);
  const bool joins = calls_for(g.d, a, b) > kMostCalls;
  if (joins) a = with_one_stride(a), b = with_one_stride(b);
  const bool spread = joins && !has_one_stride(g.d);  // d is copied to where it belongs
  const Order order = order_of(g.d);
  const bool writable = order != Order::Neither && (result == factors || result == wide);
  // The library adds a bias along columns if it need not round it; some of its kernels add it to
  // sums that are rounded already.
  bool fused = g.bias && writable && !spread && order == Order::ByRows && g.beta == 0 &&
               result != kFloat64 && is_addable(*g.bias, result) &&
               (result == wide || (g.d.dim() == 2 && has_alignment_of_sizes(g.d)));
  if (fused && result != wide) {
    Gemm finished = g;
    finished.a = a = readable(a, true), finished.b = b = readable(b, true);
    fused = finishes_right(q, finished, multiply_fused);
  }
  // What is added later is added before the rounding. Not all of the library's kernels do so with
  // what d holds.
  const bool rounds = writable && (result == wide || (g.beta == 0 && (!g.bias || fused))),
             in_place = rounds && !spread;
  const Array d = in_place ? g.d : Array(g.d.shape(), rounds ? result : wide, g.d.device());
  if (!in_place && g.beta != 0) copy(d, g.d);
  const Array bias = fused ? addable(*g.bias, result) : Array();
  each_product(
      {.d = d, .a = a, .b = b, .bias = fused ? &bias : nullptr, .alpha = g.alpha, .beta = g.beta},
      [&](const Product& p) {
        if (multiply_in_library(q, p) != Outcome::Done) multiply_in_kernel(q, p);
      });
  if (g.bias && !fused)
    on.binary(BinaryOps::index<formula::Add>(), g.d, d, g.bias->expand(g.d.shape()));
  else if (!in_place)
    copy(g.d, d);
}

}  // namespace

void CudaBackend::gemm(const Gemm& g) {
  if (g.epilogue == Epilogue::None && !g.bias_grad.defined()) {
    multiply(*this, g);
    return;
  }
  Gemm finished = g;
  if (can_finish(g)) {
    const Queue q = queue(g.d);
    finished.a = readable(g.a, true), finished.b = readable(g.b, true);
    if (finishes_right(q, finished, multiply_fused) && multiply_fused(q, finished) == Outcome::Done)
      return;
  }
  gemm_unfused(*this, finished, {masked_relu, gelu_and_input});
}

}  // namespace halftape::cuda
