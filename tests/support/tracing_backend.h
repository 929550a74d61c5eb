// A backend that notes every call and passes it on: what a machine without a GPU can say about
// launches, host reads and allocations.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "halftape/core/backend.h"
#include "halftape/core/formula/binary.h"
#include "halftape/core/formula/unary.h"

namespace halftape::testing {

class TracingBackend final : public Backend {
 public:
  TracingBackend() : former_(swap_backend(kCPU, this)) {}
  ~TracingBackend() override { swap_backend(kCPU, former_); }

  std::vector<std::string> calls;
  std::vector<size_t> allocations;
  std::vector<const void*> lowered;  // where that lies which was cast to 16 bits
  int64_t count(const std::string& call) const {
    return std::count(calls.begin(), calls.end(), call);
  }
  void clear() { calls.clear(), allocations.clear(), lowered.clear(); }

  const char* name() const override { return "tracing"; }
  BufferPtr allocate(size_t bytes) override {
    return allocations.push_back(bytes), cpu().allocate(bytes);
  }
  void copy(const Array& to, const Array& from) override {
    note(to.dtype() == from.dtype() ? "copy" : "cast"), cpu().copy(to, from);
    if (to.dtype() != from.dtype() && is_16bit(to.dtype())) lowered.push_back(from.raw());
  }
  void copy_across(const Array& to, const Array& from, bool non_blocking) override {
    note("copy_across"), cpu().copy_across(to, from, non_blocking);
  }
  void read(void* host, const Array& from) override { note("read"), cpu().read(host, from); }
  void fill(const Array& to, Scalar value) override { note("fill"), cpu().fill(to, value); }
  void unary(OpId op, const Array& y, const Array& x, const Params<Scalar>& p) override {
    note(name_of<UnaryOps>(op)), cpu().unary(op, y, x, p);
  }
  void unary_grad(OpId op, const Array& dx, const Array& g, const Array& saved,
                  Params<double> p) override {
    note(name_of<UnaryOps>(op) + "_grad"), cpu().unary_grad(op, dx, g, saved, p);
  }
  void binary(OpId op, const Array& y, const Array& a, const Array& b) override {
    note(name_of<BinaryOps>(op)), cpu().binary(op, y, a, b);
  }
  void where(const Array& y, const Array& c, const Array& a, const Array& b) override {
    note("where"), cpu().where(y, c, a, b);
  }
  void reduce(OpId op, const Array& y, const Array& x, const Dims& dims) override {
    note("reduce"), cpu().reduce(op, y, x, dims);
  }
  void argmax(const Array& y, const Array& x, int dim) override {
    note("argmax"), cpu().argmax(y, x, dim);
  }
  void argmin(const Array& y, const Array& x, int dim) override {
    note("argmin"), cpu().argmin(y, x, dim);
  }
  void scan(OpId op, const Array& y, const Array& x, int dim, bool reverse) override {
    note("scan"), cpu().scan(op, y, x, dim, reverse);
  }
  void argsort(const Array& y, const Array& x, int dim, bool descending) override {
    note("argsort"), cpu().argsort(y, x, dim, descending);
  }
  void gemm(const Gemm& g) override { note("gemm"), cpu().gemm(g); }
  void softmax(const Array& y, const Array& x, bool log) override {
    note("softmax"), cpu().softmax(y, x, log);
  }
  void softmax_grad(const Array& dx, const Array& g, const Array& y, bool log) override {
    note("softmax_grad"), cpu().softmax_grad(dx, g, y, log);
  }
  void row_norm(const Array& y, const Norm& norm) override {
    note("row_norm"), cpu().row_norm(y, norm);
  }
  void row_norm_grad(const NormGrads& d, const Array& g, const Norm& norm) override {
    note("row_norm_grad"), cpu().row_norm_grad(d, g, norm);
  }
  void batch_norm(const Array& y, const Norm& norm, bool training,
                  const RunningStats& running) override {
    note("batch_norm"), cpu().batch_norm(y, norm, training, running);
  }
  void batch_norm_grad(const NormGrads& d, const Array& g, const Norm& norm,
                       bool training) override {
    note("batch_norm_grad"), cpu().batch_norm_grad(d, g, norm, training);
  void cross_entropy(const CrossEntropy& o) override {
    note("cross_entropy"), cpu().cross_entropy(o);
  }
  void gather(const Array& y, const Array& x, int dim, const Array& index, IndexUse use) override {
    note("gather"), cpu().gather(y, x, dim, index, use);
  }
  void scatter(const Array& y, const Array& x, int dim, const Array& index, IndexUse use) override {
    note("scatter"), cpu().scatter(y, x, dim, index, use);
  }
  void scatter_reduce(OpId op, const Array& y, const Array& g, int dim, const Array& index,
                      IndexUse use) override {
    note("scatter_reduce"), cpu().scatter_reduce(op, y, g, dim, index, use);
  }
  void flat_index(const Array& y, std::span<const Array> indices, const Shape& sizes,
                  IndexUse use) override {
    note("flat_index"), cpu().flat_index(y, indices, sizes, use);
  }
  void nonzero(const Array& y, const Array& x) override { note("nonzero"), cpu().nonzero(y, x); }
  void random(const Array& y, Distribution kind, double a, double b, RandomKey key) override {
    note("random"), cpu().random(y, kind, a, b, key);
  }
  void check_finite(std::span<const Array> xs, const Array& found_inf, const Array& inv_scale,
                    const Array& first) override {
    note("check_finite"), cpu().check_finite(xs, found_inf, inv_scale, first);
  }
  void unscale(std::span<const Array> grads, const Array& inv_scale, const Array& found_inf,
               const Array& first) override {
    note("unscale"), cpu().unscale(grads, inv_scale, found_inf, first);
  }
  void update(std::span<const UpdateSlot> slots, const UpdateRule& rule,
              const StepControl& control) override {
    std::visit([&](const auto& r) { note(r.name); }, rule), cpu().update(slots, rule, control);
  }
  void scaler_update(const ScalerUpdate& update, const ScalerLaw& law) override {
    note("scaler_update"), cpu().scaler_update(update, law);
  }
  void synchronize() override { note("synchronize"), cpu().synchronize(); }

 private:
  static Backend& cpu() { return cpu_backend(); }
  void note(std::string call) { calls.push_back(std::move(call)); }
  template <class List>
  static std::string name_of(OpId op) {
    std::string found;
    OpId at = 0;
    List::each([&](auto tag) {
      if (at++ == op) found = decltype(tag)::type::name;
    });
    return found;
  }
  Backend* former_;
};

}  // namespace halftape::testing
