// A backend that passes every call on to another one, and looks at it first.
#pragma once
#include <string>
#include <vector>

#include "halftape/core/contract/backend.h"

namespace halftape {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(Backend& to) : to_(to) {}
  Backend& to() const { return to_; }

  const char* name() const override { return to_.name(); }
  BufferPtr allocate(size_t bytes) override { return to_.allocate(bytes); }
  BufferPtr allocate_pinned(size_t bytes) override { return to_.allocate_pinned(bytes); }
  void copy(const Array& to, const Array& from) override;
  void copy_across(const Array& to, const Array& from, bool non_blocking) override;
  void read(void* host, const Array& from) override;
  void fill(const Array& to, Scalar value) override;
  void unary(OpId op, const Array& y, const Array& x, const Params<Scalar>& p) override;
  void unary_grad(OpId op, const Array& dx, const Array& g, const Array& saved,
                  Params<double> p) override;
  void binary(OpId op, const Array& y, const Array& a, const Array& b) override;
  void where(const Array& y, const Array& condition, const Array& a, const Array& b) override;
  void reduce(OpId op, const Array& y, const Array& x, const Dims& dims) override;
  void argmax(const Array& y, const Array& x, int dim) override;
  void argmin(const Array& y, const Array& x, int dim) override;
  void scan(OpId op, const Array& y, const Array& x, int dim, bool reverse) override;
  void argsort(const Array& y, const Array& x, int dim, bool descending) override;
  void gemm(const Gemm& g) override;
  void softmax(const Array& y, const Array& x, bool log) override;
  void softmax_grad(const Array& dx, const Array& g, const Array& y, bool log) override;
  void cross_entropy(const CrossEntropy& c) override;
  void cross_entropy_grad(const Array& dx, const Array& slopes, const Array& g,
                          const Array& total) override;
  void mlp_loss(const MlpLoss& m) override;
  void row_norm(const Array& y, const Norm& norm) override;
  void row_norm_grad(const NormGrads& d, const Array& g, const Norm& norm) override;
  void batch_norm(const Array& y, const Norm& norm, bool training,
                  const RunningStats& running) override;
  void batch_norm_grad(const NormGrads& d, const Array& g, const Norm& norm,
                       bool training) override;
  void fold(const Array& y, const Array& g, const Windows& windows) override;
  void argmax_windows(const Array& y, const Array& x, const Windows& windows) override;
  void gather(const Array& y, const Array& x, int dim, const Array& index, IndexUse use) override;
  void scatter(const Array& y, const Array& x, int dim, const Array& index, IndexUse use) override;
  void scatter_reduce(OpId op, const Array& y, const Array& g, int dim, const Array& index,
                      IndexUse use) override;
  void flat_index(const Array& y, std::span<const Array> indices, const Shape& sizes,
                  IndexUse use) override;
  void nonzero(const Array& y, const Array& x) override;
  void random(const Array& y, Distribution kind, double a, double b, RandomKey key) override;
  void check_finite(std::span<const Array> xs, const Array& found_inf, const Array& inv_scale,
                    const Array& first) override;
  void unscale(std::span<const Array> grads, const Array& inv_scale, const Array& found_inf,
               const Array& first) override;
  void list_norm(const ListNorm& n) override;
  void update(std::span<const UpdateSlot> slots, const UpdateRule& rule,
              const StepControl& control) override;
  void scale_loss(const LossScaling& s) override;
  void scaler_update(const ScalerUpdate& update, const ScalerLaw& law) override;
  void push(const Array& ring, const Array& count, const Array& value) override;
  void cross_entropy_and_scale(const CrossEntropy& c, const LossScaling& scaling) override;
  void mlp_loss_and_scale(const MlpLoss& m, const LossScaling& scaling,
                          const std::optional<GradientCheck>& check) override;
  void check_and_norm(const GradientCheck& check, const ListNorm& n) override;
  void update_and_move_scale(std::span<const UpdateSlot> slots, const UpdateRule& rule,
                             const StepControl& control, const ScalerUpdate& moved,
                             const ScalerLaw& law) override;
  void synchronize() override;
  std::unique_ptr<Recording> new_recording() override { return to_.new_recording(); }
  std::unique_ptr<QueueMoment> now() override { return to_.now(); }
  std::unique_ptr<SideQueue> new_side_queue() override { return to_.new_side_queue(); }

 protected:
  /// The arrays that a call is given; undefined ones among them. What is also written is a write.
  struct Touched {
    std::vector<const Array*> writes = {}, reads = {};
    void join(const ListNorm& norm);
    void join(const LossScaling& scaling);
    void join(const ScalerUpdate& update);
  };
  /// Comes before each call, which it may refuse by throwing. `call`: "gemm", or the formula's name
  /// ("tanh", "tanh_grad"); a copy between dtypes is a "cast".
  virtual void before(const std::string& call, const Touched& touched) = 0;

 private:
  static Touched touched_by(const CrossEntropy& c);
  static Touched touched_by(const MlpLoss& m);
  static Touched touched_by(std::span<const Array> xs, bool divides, const Array& inv_scale,
                            const Array& found_inf, const Array& first);
  static Touched touched_by(std::span<const UpdateSlot> slots, const StepControl& control);
  Backend& to_;
};

}  // namespace halftape
