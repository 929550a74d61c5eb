// The CPU's kernels, one file per family; the contract is documented in core/contract/backend.h.
#pragma once
#include <optional>

#include "halftape/core/contract/backend.h"

namespace halftape::cpu {

void copy(const Array& to, const Array& from);
void fill(const Array& to, Scalar value);
void random(const Array& y, Distribution kind, double a, double b, RandomKey key);
void unary(OpId op, const Array& y, const Array& x, const Params<Scalar>& p);
void unary_grad(OpId op, const Array& dx, const Array& g, const Array& saved, Params<double> p);
void binary(OpId op, const Array& y, const Array& a, const Array& b);
void where(const Array& y, const Array& condition, const Array& a, const Array& b);
void reduce(OpId op, const Array& y, const Array& x, const Dims& dims);
void argmax(const Array& y, const Array& x, int dim);
void argmin(const Array& y, const Array& x, int dim);
void scan(OpId op, const Array& y, const Array& x, int dim, bool reverse);
void argsort(const Array& y, const Array& x, int dim, bool descending);
void gemm(const Gemm&);
void softmax(const Array& y, const Array& x, bool log);
void softmax_grad(const Array& dx, const Array& g, const Array& y, bool log);
void row_norm(const Array& y, const Norm& norm);
void row_norm_grad(const NormGrads& d, const Array& g, const Norm& norm);
void batch_norm(const Array& y, const Norm& norm, bool training, const RunningStats& running);
void batch_norm_grad(const NormGrads& d, const Array& g, const Norm& norm, bool training);
void cross_entropy(const CrossEntropy&);
/// Throws unless low ≤ index < limit everywhere, or `exempt`. A dimension along which the index
/// repeats is looked at once, so that the position is one in what the caller wrote.
void check_index(const Array& index, int64_t low, int64_t limit, IndexUse use,
                 std::optional<int64_t> exempt = {});
void fold(const Array& y, const Array& g, const Windows& windows);
void argmax_windows(const Array& y, const Array& x, const Windows& windows);
void gather(const Array& y, const Array& x, int dim, const Array& index, IndexUse use);
void scatter(const Array& y, const Array& x, int dim, const Array& index, IndexUse use);
void scatter_reduce(OpId op, const Array& y, const Array& g, int dim, const Array& index,
                    IndexUse use);
void flat_index(const Array& y, std::span<const Array> indices, const Shape& sizes, IndexUse use);
void nonzero(const Array& y, const Array& x);
void check_finite(std::span<const Array> xs, const Array& found_inf, const Array& inv_scale,
                  const Array& first);
void unscale(std::span<const Array> grads, const Array& inv_scale, const Array& found_inf,
             const Array& first);
void list_norm(const ListNorm& n);
void update(std::span<const UpdateSlot>, const UpdateRule&, const StepControl&);
/// False, and nothing done: not a loss of one element.
bool scale_loss(const LossScaling& s);
void scaler_update(const ScalerUpdate& update, const ScalerLaw& law);

}  // namespace halftape::cpu
