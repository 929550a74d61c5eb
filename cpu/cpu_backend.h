// The CPU's side of the contract (core/contract/backend.h): calls run at once, on the caller and
// the pool. Each member is defined in the file of its family of kernels.
#pragma once
#include "halftape/core/contract/backend.h"

namespace halftape::cpu {

class CpuBackend final : public Backend {
 public:
  const char* name() const override { return "cpu"; }
  // cpu_backend.cpp
  BufferPtr allocate(size_t bytes) override;
  void copy_across(const Array& to, const Array& from, bool non_blocking) override;
  void read(void* host, const Array& from) override;
  void synchronize() override {}
  // copy.cpp
  void copy(const Array& to, const Array& from) override;
  void fill(const Array& to, Scalar value) override;
  void random(const Array& y, Distribution kind, double a, double b, RandomKey key) override;
  // map.cpp
  void unary(OpId op, const Array& y, const Array& x, const Params<Scalar>& p) override;
  void unary_grad(OpId op, const Array& dx, const Array& g, const Array& saved,
                  Params<double> p) override;
  void binary(OpId op, const Array& y, const Array& a, const Array& b) override;
  void where(const Array& y, const Array& condition, const Array& a, const Array& b) override;
  // reduce.cpp, scan.cpp, sort.cpp
  void reduce(OpId op, const Array& y, const Array& x, const Dims& dims) override;
  void arg_extremum(const Array& y, const Array& x, int dim, bool least) override;
  void scan(OpId op, const Array& y, const Array& x, int dim, bool reverse) override;
  void argsort(const Array& y, const Array& x, int dim, bool descending) override;
  // gemm/gemm.cpp
  void gemm(const Gemm& g) override;
  // rows.cpp
  void softmax(const Array& y, const Array& x, bool log) override;
  void softmax_grad(const Array& dx, const Array& g, const Array& y, bool log) override;
  void cross_entropy(const CrossEntropy& o) override;
  // norm.cpp
  void row_norm(const Array& y, const Norm& norm) override;
  void row_norm_grad(const NormGrads& d, const Array& g, const Norm& norm) override;
  void batch_norm(const Array& y, const Norm& norm, bool training,
                  const RunningStats& running) override;
  void batch_norm_grad(const NormGrads& d, const Array& g, const Norm& norm,
                       bool training) override;
  // windows.cpp
  void fold(const Array& y, const Array& g, const Windows& windows) override;
  void argmax_windows(const Array& y, const Array& x, const Windows& windows) override;
  // index.cpp
  void gather(const Array& y, const Array& x, int dim, const Array& index, IndexUse use) override;
  void scatter(const Array& y, const Array& x, int dim, const Array& index, IndexUse use) override;
  void scatter_reduce(OpId op, const Array& y, const Array& g, int dim, const Array& index,
                      IndexUse use) override;
  void flat_index(const Array& y, std::span<const Array> indices, const Shape& sizes,
                  IndexUse use) override;
  void nonzero(const Array& y, const Array& x) override;
  // update/
  void check(const GradientCheck& c) override;
  void list_norm(const ListNorm& n) override;
  void update(std::span<const UpdateSlot> slots, const UpdateRule& rule,
              const StepControl& control) override;
  void transition(const Transition& t) override;
  bool try_fused(std::span<const Call> calls) override;
};

}  // namespace halftape::cpu
