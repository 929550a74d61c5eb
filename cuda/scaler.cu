// What a GradScaler does with a loss, and its transition: by one thread each.
#include "halftape/cuda/chunk.cuh"
#include "halftape/cuda/kernels.h"

namespace halftape::cuda {
namespace {

struct ScaledLoss {
  const void* loss;
  void* scaled;
  Dtype loss_dtype, scaled_dtype;
  const float* scale;
  float* bad_loss;
  bool begins;
  float *factor, *inverse, *found_inf;  // or null
  int64_t* first;                       // or null
};

template <class S>
__global__ void scale_one_loss(ScaledLoss a) {
  const S loss = load<S>(a.loss, a.loss_dtype);
  const float scale = *a.scale;
  store(a.scaled, a.scaled_dtype, loss * S(scale));
  const bool finite = loss - loss == S(0);
  const float bad = !finite ? 1 : a.begins ? 0 : *a.bad_loss;
  *a.bad_loss = bad;
  if (a.factor) *a.factor = scale;
  if (a.inverse) *a.inverse = 1 / scale;
  if (a.found_inf) *a.found_inf = bad;
  if (a.first) *a.first = -1;
}

/// Where a gradient was not finite.
struct Finding {
  const float* found_inf;
  const int64_t* first;  // or null
  int64_t optimizer;
};
struct Overflow {
  bool found;
  int64_t optimizer, parameter;
};

struct Findings {
  static constexpr int kMost = 128;
  int count;
  Finding list[kMost];
};

struct ScalerArrays {
  float* scale;
  int32_t* trackers;
  int64_t* counts;  // or null
  const float* bad_loss;
  int64_t warn_after;
  Board::Skips* note;
};

__device__ void seek(const Findings& findings, Overflow& overflow) {
  for (int i = 0; i < findings.count && !overflow.found; ++i) {
    const Finding& f = findings.list[i];
    if (*f.found_inf != 0) overflow = {true, f.optimizer, f.first ? *f.first : -1};
  }
}
/// Those beyond what the last launch has room for.
__global__ void seek_overflow(const __grid_constant__ Findings findings, Overflow* overflow,
                              bool begin) {
  if (begin) *overflow = {};
  seek(findings, *overflow);
}

__global__ void update_scaler(const __grid_constant__ Findings findings, const Overflow* before,
                              ScalerArrays a, ScalerLaw law) {
  Overflow overflow = before ? *before : Overflow{};
  seek(findings, overflow);
  const bool bad_loss = a.bad_loss && *a.bad_loss != 0;
  const Verdict verdict = bad_loss         ? Verdict::BadLoss
                          : overflow.found ? Verdict::Overflow
                                           : Verdict::Finite;
  const float scale = *a.scale;
  const ScalerState after = next({scale, a.trackers[0], a.trackers[1]}, verdict, law);
  *a.scale = after.scale;
  a.trackers[0] = after.growth_tracker;
  a.trackers[1] = after.overflows;
  if (!a.counts) return;
  auto& counts = *reinterpret_cast<ScalerCounts*>(a.counts);
  counts = counted(counts, verdict, scale, after.scale);
  if (overflow.found) counts.optimizer = overflow.optimizer, counts.parameter = overflow.parameter;
  if (verdict == Verdict::Finite || counts.skips_in_row != a.warn_after) return;
  if (atomicCAS(&a.note->taken, 0u, 1u) != 0) return;
  a.note->in_row = counts.skips_in_row;
  a.note->scale = after.scale;
  a.note->bad_loss = bad_loss;
  __threadfence_system();
  *static_cast<volatile unsigned*>(&a.note->ready) = 1;
}

/// Its address, or null when it is not there.
template <class T>
T* place_of(const Array& one) {
  return one.defined() ? one.data<T>() : nullptr;
}

}  // namespace

bool scale_loss(const LossScaling& s) {
  if (s.loss.numel() != 1) return false;
  const Queue q = queue(s.loss);
  const ScaledLoss a{s.loss.raw(),
                     s.scaled.raw(),
                     s.loss.dtype(),
                     s.scaled.dtype(),
                     s.scale.data<float>(),
                     s.bad_loss.data<float>(),
                     s.begins,
                     place_of<float>(s.factor),
                     place_of<float>(s.inverse),
                     place_of<float>(s.found_inf),
                     place_of<int64_t>(s.first)};
  const bool wide = s.scaled.dtype() == kFloat64 || s.loss.dtype() == kFloat64;
  launch(q, "scale_loss", wide ? scale_one_loss<double> : scale_one_loss<float>, 1, 1, 0, a);
  return true;
}

void scaler_update(const ScalerUpdate& u, const ScalerLaw& law) {
  const Queue q = queue(u.scale);
  const BufferPtr carried =
      u.findings.size() > Findings::kMost ? q.context.allocate(sizeof(Overflow)) : BufferPtr();
  auto* const overflow = carried ? static_cast<Overflow*>(carried->bytes()) : nullptr;
  Findings part{};
  for (size_t i = 0; i < u.findings.size(); ++i) {
    if (part.count == Findings::kMost) {
      launch(q, "scaler_update", seek_overflow, 1, 1, 0, part, overflow, i == Findings::kMost);
      part.count = 0;
    }
    const ScalerFinding& f = u.findings[i];
    part.list[part.count++] = {f.found_inf.data<float>(),
                               f.first.defined() ? f.first.data<int64_t>() : nullptr, f.optimizer};
  }
  const Array trackers = u.trackers.to_contiguous();
  const Array counts = u.counts.defined() ? u.counts.to_contiguous() : Array();
  const ScalerArrays arrays{u.scale.data<float>(),
                            trackers.data<int32_t>(),
                            counts.defined() ? counts.data<int64_t>() : nullptr,
                            float_of(u.bad_loss),
                            u.warn_after,
                            &q.context.board()->skips};
  launch(q, "scaler_update", update_scaler, 1, 1, 0, part, overflow, arrays, law);
  if (!u.trackers.contiguous()) copy(u.trackers, trackers);
  if (counts.defined() && !u.counts.contiguous()) copy(u.counts, counts);
  for (const Array* a : {&u.scale, &u.trackers, &u.counts})
    if (a->defined()) a->bump_version();
}

}  // namespace halftape::cuda
