// The kernels of the GPU, one file per family; the contract is documented in
// core/contract/backend.h.
#pragma once
#include <string>

#include "halftape/core/contract/backend.h"

namespace halftape::cuda {

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
/// Gives whether the mean, if it is wanted, is there, too; then it is scaled, if that is wanted.
bool cross_entropy(const CrossEntropy&, const LossScaling* scaling = nullptr);
void cross_entropy_grad(const Array& dx, const Array& slopes, const Array& g, const Array& total);
/// False, and nothing done, where this is for the formula (core/contract/mlp_loss_unfused.h).
bool mlp_loss_at_once(const MlpLoss& m, const LossScaling* scaling = nullptr,
                      const GradientCheck* check = nullptr);
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
void check_and_norm(const GradientCheck& check, const ListNorm& n);
void update(std::span<const UpdateSlot>, const UpdateRule&, const StepControl&);
void update_and_move_scale(std::span<const UpdateSlot>, const UpdateRule&, const StepControl&,
                           const ScalerUpdate&, const ScalerLaw&);
/// A loss of one element; false, and nothing is done, for others.
bool scale_loss(const LossScaling& s);
void scaler_update(const ScalerUpdate& update, const ScalerLaw& law);
void push(const Array& ring, const Array& count, const Array& value);

/// May sums of float16 products be joined in float16?
void allow_reduced_sums(bool allowed);
/// Why this library's kernels cannot run on the GPUs that are there; empty when they can.
std::string kernels_obstacle();

}  // namespace halftape::cuda
