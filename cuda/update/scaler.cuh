// A GradScaler's work on one element of a gradient, on a loss, and its transition. Each takes one
// thread, which may be in the last block of another launch.
#pragma once
#include "halftape/core/contract/backend.h"
#include "halftape/cuda/runtime/context.h"
#include "halftape/cuda/vector/chunk.cuh"

namespace halftape::cuda {

/// x − x is 0 for finite x and NaN otherwise.
template <class S>
__device__ bool is_finite(S x) {
  return x - x == S(0);
}

/// True if a gradient's element, or its product with `by`, is not finite. `divides`: the product is
/// written back.
template <class S>
__device__ bool check_element(void* at, Dtype d, S by, bool divides) {
  const S x = load<S>(at, d);
  bool bad = !is_finite(x);
  if (by == S(1)) return bad;
  if (!divides) return bad || !is_finite(x * by);
  store(at, d, x * by);
  return bad || !is_finite(load<S>(at, d));  // rounding to 16 bits may overflow once more
}

/// The CheckedScale of a loss with one element.
struct ScaledLoss {
  const void* loss;
  void* scaled;
  Dtype loss_dtype, scaled_dtype;
  const float* scale;
  float* bad_loss;
  bool begins;
  float *factor, *inverse, *found_inf;  // or null
  int64_t* first;                       // or null

  template <class S>
  __device__ void run() const {
    const S value = load<S>(loss, loss_dtype);
    const float by = *scale;
    store(scaled, scaled_dtype, value * S(by));
    const float bad = !is_finite(value) ? 1 : begins ? 0 : *bad_loss;
    *bad_loss = bad;
    if (factor) *factor = by;
    if (inverse) *inverse = 1 / by;
    if (found_inf) *found_inf = bad;
    if (first) *first = -1;
  }
};

/// Where a gradient was not finite.
struct Finding {
  const float* found_inf;
  const int64_t* first;  // or null
  int64_t list;
};
struct Overflow {
  bool found;
  int64_t list, position;

  __device__ void seek(const Finding& f) {
    if (!found && *f.found_inf != 0) *this = {true, f.list, f.first ? *f.first : -1};
  }
};

/// A GradScaler's state and its law.
struct ScalerArrays {
  float* scale;
  int32_t* trackers;
  int64_t* counts;  // or null
  const float* bad_loss;
  int64_t warn_after;
  Board::Skips* note;
  ScaleLaw law;
  SkipReport report;

  __device__ void move(const Overflow& overflow) const {
    const bool bad = bad_loss && *bad_loss != 0;
    const Verdict verdict = bad              ? Verdict::BadLoss
                            : overflow.found ? Verdict::Overflow
                                             : Verdict::Finite;
    const float before = *scale;
    const ScaleState after = next({before, trackers[0], trackers[1]}, verdict, law);
    *scale = after.scale;
    trackers[0] = after.growth_tracker;
    trackers[1] = after.overflows;
    if (!counts) return;
    auto& all = *reinterpret_cast<ScaleCounts*>(counts);
    all = counted(all, verdict, before, after.scale);
    if (overflow.found) all.list = overflow.list, all.position = overflow.position;
    if (verdict == Verdict::Finite || all.skips_in_row != warn_after || !report) return;
    if (atomicCAS(&note->taken, 0u, 1u) != 0) return;
    note->in_row = all.skips_in_row;
    note->scale = after.scale;
    note->bad_loss = bad;
    note->report = report;
    __threadfence_system();
    *static_cast<volatile unsigned*>(&note->ready) = 1;
  }
};

/// The address of a one-element array, or null if it is undefined.
template <class T>
T* place_of(const Array& one) {
  return one.defined() ? one.data<T>() : nullptr;
}

inline ScaledLoss scaled_loss(const CheckedScale& s) {
  return {s.x.raw(),
          s.y.raw(),
          s.x.dtype(),
          s.y.dtype(),
          s.scale.data<float>(),
          s.nonfinite.data<float>(),
          s.begins,
          place_of<float>(s.factor),
          place_of<float>(s.inverse),
          place_of<float>(s.found_inf),
          place_of<int64_t>(s.first)};
}
inline Finding finding(const CheckResult& r) {
  return {r.found_inf.data<float>(), place_of<int64_t>(r.first), r.list};
}
/// Trackers and counts must be contiguous.
inline ScalerArrays scaler_arrays(const Queue& q, const Transition& t) {
  return {t.scale.data<float>(),
          t.trackers.data<int32_t>(),
          place_of<int64_t>(t.counts),
          place_of<float>(t.bad_loss),
          t.warn_after,
          &q.context.board()->skips,
          t.rule,
          t.report};
}

}  // namespace halftape::cuda
