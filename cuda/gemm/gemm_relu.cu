// ReLU with its mask of bits, beside the product where the library's own does not do.
#include "halftape/cuda/gemm/gemm.h"
#include "halftape/cuda/vector/lanes.cuh"

namespace halftape::cuda {
namespace {

/// Rows of n elements one behind the other, each with `width` bytes of mask.
struct Masked {
  char* d;
  Dtype dtype;
  uint8_t* mask;
  int64_t rows, n, width;
  bool packs;  // eight elements are a pack
};

/// A byte of the mask, and its eight elements, at a time.
template <class S>
__global__ void relu_with_mask(Masked a, bool gradient) {
  const int64_t across = (a.n + kPack - 1) / kPack;
  const auto item = static_cast<int64_t>(element_size(a.dtype));
  for (int64_t i = thread_number(); i < a.rows * across; i += thread_count()) {
    const int64_t row = i / across, first = i % across * kPack;
    const int count = static_cast<int>(a.n - first < kPack ? a.n - first : kPack);
    char* at = a.d + (row * a.n + first) * item;
    uint8_t& mask = a.mask[row * a.width + first / kPack];
    S x[kPack] = {};
    bool whole = false;
    if constexpr (std::is_same_v<S, float>) whole = a.packs;
    if constexpr (std::is_same_v<S, float>)
      if (whole) load_pack(x, a.d, a.dtype, i);
    if (!whole)
      for (int k = 0; k < count; ++k) x[k] = load<S>(at + k * item, a.dtype);
    unsigned bits = gradient ? mask : 0u;
    for (int k = 0; k < kPack; ++k) {
      if (!gradient && k < count && !(x[k] <= 0)) bits |= 1u << k;
      if (!(bits >> k & 1u)) x[k] = 0;
    }
    if (!gradient) mask = static_cast<uint8_t>(bits);
    if constexpr (std::is_same_v<S, float>)
      if (whole) store_pack(x, a.d, a.dtype, i);
    if (!whole)
      for (int k = 0; k < count; ++k) store(at + k * item, a.dtype, x[k]);
  }
}

}  // namespace

void masked_relu(const Array& d, const Array& mask, bool gradient) {
  if (d.numel() == 0) return;
  const Queue q = queue(d);
  const int64_t n = d.size(d.dim() - 1), rows = d.numel() / n;
  const bool pack =
      packs(d.dtype()) && n % kPack == 0 && reinterpret_cast<uintptr_t>(d.raw()) % 16 == 0;
  const Masked a{static_cast<char*>(d.raw()), d.dtype(), mask.data<uint8_t>(), rows, n,
                 mask.size(mask.dim() - 1),   pack};
  launch(q, gradient ? "relu gradient" : "relu",
         d.dtype() == kFloat64 ? relu_with_mask<double> : relu_with_mask<float>,
         blocks_for(q, rows * ((n + kPack - 1) / kPack)), kThreads, 0, a, gradient);
}

}  // namespace halftape::cuda
