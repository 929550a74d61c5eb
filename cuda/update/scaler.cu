// A GradScaler's scaled loss, its transition, and a history of losses: kernels of one thread.
#include "halftape/cuda/update/scaler.cuh"

#include "halftape/cuda/copy.h"
#include "halftape/cuda/cuda_backend.h"
#include "halftape/cuda/fused.h"

namespace halftape::cuda {
namespace {

template <class S>
__global__ void scale_one_loss(ScaledLoss a) {
  a.run<S>();
}

struct Findings {
  static constexpr int kMost = 128;
  int count;
  Finding list[kMost];

  __device__ void seek(Overflow& overflow) const {
    for (int i = 0; i < count; ++i) overflow.seek(list[i]);
  }
};

/// Looks for an overflow among the findings that do not fit into the parameters of the last launch.
__global__ void seek_overflow(const __grid_constant__ Findings findings, Overflow* overflow,
                              bool begin) {
  if (begin) *overflow = {};
  findings.seek(*overflow);
}

__global__ void update_scaler(const __grid_constant__ Findings findings, const Overflow* before,
                              ScalerArrays scaler) {
  Overflow overflow = before ? *before : Overflow{};
  findings.seek(overflow);
  scaler.move(overflow);
}

/// One block, whose threads share the row.
__global__ void push_row(char* ring, Dtype dtype, int64_t row_bytes, int64_t rows, int64_t* count,
                         const char* value, Dtype value_dtype, int64_t row) {
  const int64_t n = *count;
  char* const to = ring + n % rows * row_bytes;
  const auto item = static_cast<int64_t>(element_size(dtype)),
             value_item = static_cast<int64_t>(element_size(value_dtype));
  const bool wide = dtype == Dtype::Float64 || value_dtype == Dtype::Float64;
  for (int64_t i = threadIdx.x; i < row; i += blockDim.x) {
    char* const at = to + i * item;
    const char* const from = value + i * value_item;
    if (!is_floating_point(dtype))
      store(at, dtype, load<int64_t>(from, value_dtype));
    else if (wide)
      store(at, dtype, load<double>(from, value_dtype));
    else
      store(at, dtype, load<float>(from, value_dtype));
  }
  __syncthreads();  // all have read the count
  if (threadIdx.x == 0) *count = n + 1;
}

}  // namespace

bool scale_fused(const CheckedScale& s) {
  if (s.x.numel() != 1) return false;
  const bool wide = s.y.dtype() == kFloat64 || s.x.dtype() == kFloat64;
  launch(queue(s.x), "checked_scale", wide ? scale_one_loss<double> : scale_one_loss<float>, 1, 1,
         0, scaled_loss(s));
  return true;
}

void CudaBackend::transition(const Transition& t) {
  const Queue q = queue(t.scale);
  const BufferPtr carried =
      t.results.size() > Findings::kMost ? q.context.allocate(sizeof(Overflow)) : BufferPtr();
  auto* const overflow = carried ? static_cast<Overflow*>(carried->bytes()) : nullptr;
  Findings part{};
  for (size_t i = 0; i < t.results.size(); ++i) {
    if (part.count == Findings::kMost) {
      launch(q, "transition", seek_overflow, 1, 1, 0, part, overflow, i == Findings::kMost);
      part.count = 0;
    }
    part.list[part.count++] = finding(t.results[i]);
  }
  Transition flat = t;
  flat.trackers = t.trackers.to_contiguous();
  if (t.counts.defined()) flat.counts = t.counts.to_contiguous();
  launch(q, "transition", update_scaler, 1, 1, 0, part, overflow, scaler_arrays(q, flat));
  if (!t.trackers.contiguous()) copy(t.trackers, flat.trackers);
  if (t.counts.defined() && !t.counts.contiguous()) copy(t.counts, flat.counts);
  for (const Array* a : {&t.scale, &t.trackers, &t.counts})
    if (a->defined()) a->bump_version();
}

bool push_fused(const Push& p) {
  if (!p.value.contiguous() || !p.ring.select(0, 0).contiguous()) return false;
  const auto stride = p.ring.strides()[0] * static_cast<int64_t>(element_size(p.ring.dtype()));
  const int64_t row = p.value.numel();
  launch(queue(p.ring), "push", push_row, 1, row == 1 ? 1 : kThreads, 0,
         static_cast<char*>(p.ring.raw()), p.ring.dtype(), stride, p.ring.size(0),
         p.count.data<int64_t>(), static_cast<const char*>(p.value.raw()), p.value.dtype(), row);
  return true;
}

}  // namespace halftape::cuda
