// The CPU's side of the contract: calls run at once, on the caller and the pool.
#include <cstring>

#include "halftape/cpu/kernels.h"
#include "halftape/cpu/runtime/allocator.h"

namespace halftape {
namespace {

class CpuBackend final : public Backend {
 public:
  const char* name() const override { return "cpu"; }
  BufferPtr allocate(size_t bytes) override { return cpu::allocate(bytes); }
  void copy(const Array& to, const Array& from) override { cpu::copy(to, from); }
  void copy_across(const Array& to, const Array& from, bool) override { cpu::copy(to, from); }
  void read(void* host, const Array& from) override {
    std::memcpy(host, from.raw(), static_cast<size_t>(from.numel()) * element_size(from.dtype()));
  }
  void fill(const Array& to, Scalar value) override { cpu::fill(to, value); }
  void unary(OpId op, const Array& y, const Array& x, const Params<Scalar>& p) override {
    cpu::unary(op, y, x, p);
  }
  void unary_grad(OpId op, const Array& dx, const Array& g, const Array& saved,
                  Params<double> p) override {
    cpu::unary_grad(op, dx, g, saved, p);
  }
  void binary(OpId op, const Array& y, const Array& a, const Array& b) override {
    cpu::binary(op, y, a, b);
  }
  void where(const Array& y, const Array& condition, const Array& a, const Array& b) override {
    cpu::where(y, condition, a, b);
  }
  void reduce(OpId op, const Array& y, const Array& x, const Dims& dims) override {
    cpu::reduce(op, y, x, dims);
  }
  void argmax(const Array& y, const Array& x, int dim) override { cpu::argmax(y, x, dim); }
  void argmin(const Array& y, const Array& x, int dim) override { cpu::argmin(y, x, dim); }
  void scan(OpId op, const Array& y, const Array& x, int dim, bool reverse) override {
    cpu::scan(op, y, x, dim, reverse);
  }
  void argsort(const Array& y, const Array& x, int dim, bool descending) override {
    cpu::argsort(y, x, dim, descending);
  }
  void gemm(const Gemm& g) override { cpu::gemm(g); }
  void softmax(const Array& y, const Array& x, bool log) override { cpu::softmax(y, x, log); }
  void softmax_grad(const Array& dx, const Array& g, const Array& y, bool log) override {
    cpu::softmax_grad(dx, g, y, log);
  }
  void row_norm(const Array& y, const Norm& norm) override { cpu::row_norm(y, norm); }
  void row_norm_grad(const NormGrads& d, const Array& g, const Norm& norm) override {
    cpu::row_norm_grad(d, g, norm);
  }
  void batch_norm(const Array& y, const Norm& norm, bool training,
                  const RunningStats& running) override {
    cpu::batch_norm(y, norm, training, running);
  }
  void batch_norm_grad(const NormGrads& d, const Array& g, const Norm& norm,
                       bool training) override {
    cpu::batch_norm_grad(d, g, norm, training);
  }
  void cross_entropy(const CrossEntropy& o) override {
    cpu::cross_entropy(o);
    if (o.mean.defined()) mean_in_steps(o);
  }
  void fold(const Array& y, const Array& g, const Windows& windows) override {
    cpu::fold(y, g, windows);
  }
  void argmax_windows(const Array& y, const Array& x, const Windows& windows) override {
    cpu::argmax_windows(y, x, windows);
  }
  void gather(const Array& y, const Array& x, int dim, const Array& index, IndexUse use) override {
    cpu::gather(y, x, dim, index, use);
  }
  void scatter(const Array& y, const Array& x, int dim, const Array& index, IndexUse use) override {
    cpu::scatter(y, x, dim, index, use);
  }
  void scatter_reduce(OpId op, const Array& y, const Array& g, int dim, const Array& index,
                      IndexUse use) override {
    cpu::scatter_reduce(op, y, g, dim, index, use);
  }
  void flat_index(const Array& y, std::span<const Array> indices, const Shape& sizes,
                  IndexUse use) override {
    cpu::flat_index(y, indices, sizes, use);
  }
  void nonzero(const Array& y, const Array& x) override { cpu::nonzero(y, x); }
  void random(const Array& y, Distribution kind, double a, double b, RandomKey key) override {
    cpu::random(y, kind, a, b, key);
  }
  void check_finite(std::span<const Array> xs, const Array& found_inf, const Array& inv_scale,
                    const Array& first) override {
    cpu::check_finite(xs, found_inf, inv_scale, first);
  }
  void unscale(std::span<const Array> grads, const Array& inv_scale, const Array& found_inf,
               const Array& first) override {
    cpu::unscale(grads, inv_scale, found_inf, first);
  }
  void list_norm(const ListNorm& n) override { cpu::list_norm(n); }
  void update(std::span<const UpdateSlot> slots, const UpdateRule& rule,
              const StepControl& control) override {
    cpu::update(slots, rule, control);
  }
  void scale_loss(const LossScaling& s) override {
    if (!cpu::scale_loss(s)) Backend::scale_loss(s);
  }
  void scaler_update(const ScalerUpdate& update, const ScalerLaw& law) override {
    cpu::scaler_update(update, law);
  }
  void synchronize() override {}
};

}  // namespace
}  // namespace halftape

/// The only symbol of a level's kernels that others see.
extern "C" halftape::Backend* HALFTAPE_CPU_BACKEND() {
  static auto* instance = new halftape::CpuBackend;  // NOLINT: outlives every static tensor
  return instance;
}
