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
  void copy(const Array& to, const Array& from) override {
    seen(to.dtype() == from.dtype() ? "copy" : "cast", {{&to}, {&from}}).copy(to, from);
  }
  void copy_across(const Array& to, const Array& from, bool non_blocking) override {
    seen("copy_across", {{&to}, {&from}}).copy_across(to, from, non_blocking);
  }
  void read(void* host, const Array& from) override {
    seen("read", {{}, {&from}}).read(host, from);
  }
  void fill(const Array& to, Scalar value) override { seen("fill", {{&to}}).fill(to, value); }
  void random(const Array& y, Distribution kind, double a, double b, RandomKey key) override {
    seen("random", {{&y}}).random(y, kind, a, b, key);
  }
  void unary(OpId op, const Array& y, const Array& x, const Params<Scalar>& p) override {
    seen(unary_name(op), {{&y}, {&x}}).unary(op, y, x, p);
  }
  void unary_grad(OpId op, const Array& dx, const Array& g, const Array& saved,
                  Params<double> p) override {
    seen(unary_name(op) + "_grad", {{&dx}, {&g, &saved}}).unary_grad(op, dx, g, saved, p);
  }
  void binary(OpId op, const Array& y, const Array& a, const Array& b) override {
    seen(binary_name(op), {{&y}, {&a, &b}}).binary(op, y, a, b);
  }
  void where(const Array& y, const Array& condition, const Array& a, const Array& b) override {
    seen("where", {{&y}, {&condition, &a, &b}}).where(y, condition, a, b);
  }
  void reduce(OpId op, const Array& y, const Array& x, const Dims& dims) override {
    seen("reduce", {{&y}, {&x}}).reduce(op, y, x, dims);
  }
  void arg_extremum(const Array& y, const Array& x, int dim, bool least) override {
    seen(least ? "argmin" : "argmax", {{&y}, {&x}}).arg_extremum(y, x, dim, least);
  }
  void scan(OpId op, const Array& y, const Array& x, int dim, bool reverse) override {
    seen("scan", {{&y}, {&x}}).scan(op, y, x, dim, reverse);
  }
  void argsort(const Array& y, const Array& x, int dim, bool descending) override {
    seen("argsort", {{&y}, {&x}}).argsort(y, x, dim, descending);
  }
  void gemm(const Gemm& g) override { seen("gemm", touched_by(g)).gemm(g); }
  void softmax(const Array& y, const Array& x, bool log) override {
    seen("softmax", {{&y}, {&x}}).softmax(y, x, log);
  }
  void softmax_grad(const Array& dx, const Array& g, const Array& y, bool log) override {
    seen("softmax_grad", {{&dx}, {&g, &y}}).softmax_grad(dx, g, y, log);
  }
  void cross_entropy(const CrossEntropy& c) override { seen({&c}).cross_entropy(c); }
  void row_norm(const Array& y, const Norm& norm) override {
    seen("row_norm", {{&y, &norm.mean, &norm.rstd}, {&norm.x, &norm.weight, &norm.bias}})
        .row_norm(y, norm);
  }
  void row_norm_grad(const NormGrads& d, const Array& g, const Norm& norm) override {
    seen("row_norm_grad", touched_by(d, g, norm)).row_norm_grad(d, g, norm);
  }
  void batch_norm(const Array& y, const Norm& norm, bool training,
                  const RunningStats& running) override {
    seen("batch_norm", touched_by(y, norm, training, running))
        .batch_norm(y, norm, training, running);
  }
  void batch_norm_grad(const NormGrads& d, const Array& g, const Norm& norm,
                       bool training) override {
    seen("batch_norm_grad", touched_by(d, g, norm)).batch_norm_grad(d, g, norm, training);
  }
  void fold(const Array& y, const Array& g, const Windows& windows) override {
    seen("fold", {{&y}, {&g}}).fold(y, g, windows);
  }
  void argmax_windows(const Array& y, const Array& x, const Windows& windows) override {
    seen("argmax_windows", {{&y}, {&x}}).argmax_windows(y, x, windows);
  }
  void gather(const Array& y, const Array& x, int dim, const Array& index, IndexUse use) override {
    seen("gather", {{&y}, {&x, &index}}).gather(y, x, dim, index, use);
  }
  void scatter(const Array& y, const Array& x, int dim, const Array& index, IndexUse use) override {
    seen("scatter", {{&y}, {&x, &index}}).scatter(y, x, dim, index, use);
  }
  void scatter_reduce(OpId op, const Array& y, const Array& g, int dim, const Array& index,
                      IndexUse use) override {
    seen("scatter_reduce", {{&y}, {&g, &index}}).scatter_reduce(op, y, g, dim, index, use);
  }
  void flat_index(const Array& y, std::span<const Array> indices, const Shape& sizes,
                  IndexUse use) override {
    seen("flat_index", {{&y}, pointers(indices)}).flat_index(y, indices, sizes, use);
  }
  void nonzero(const Array& y, const Array& x) override {
    seen("nonzero", {{&y}, {&x}}).nonzero(y, x);
  }
  void check(const GradientCheck& c) override { seen({&c}).check(c); }
  void list_norm(const ListNorm& n) override { seen({&n}).list_norm(n); }
  void update(std::span<const UpdateSlot> slots, const UpdateRule& rule,
              const StepControl& control) override {
    const ListUpdate task{slots, rule, control};
    seen({&task}).update(slots, rule, control);
  }
  void transition(const Transition& t) override { seen({&t}).transition(t); }
  /// Always true: what the other backend cannot do at once it does one by one.
  bool try_fused(std::span<const Call> calls) override;
  void synchronize() override { seen("synchronize", {}).synchronize(); }
  std::unique_ptr<Recording> new_recording() override { return to_.new_recording(); }
  std::unique_ptr<QueueMoment> now() override { return to_.now(); }
  std::unique_ptr<SideQueue> new_side_queue() override { return to_.new_side_queue(); }

 protected:
  /// The arrays of a call, undefined ones among them. An array that is read and written is among
  /// the writes.
  struct Touched {
    std::vector<const Array*> writes = {}, reads = {};
  };
  /// Comes before each call, which it may refuse by throwing. `call`: "gemm", or the formula's name
  /// ("tanh", "tanh_grad"); a copy between dtypes is a "cast"; calls that are done at once are
  /// joined by ", ".
  virtual void before(const std::string& call, const Touched& touched) = 0;

 private:
  Backend& seen(const std::string& call, const Touched& touched) {
    before(call, touched);
    return to_;
  }
  Backend& seen(const Call& call) { return seen(name_of(call), touched_by(call)); }
  static std::string unary_name(OpId op);
  static std::string binary_name(OpId op);
  static std::string name_of(const Call& call);
  static std::vector<const Array*> pointers(std::span<const Array> arrays);
  static Touched touched_by(const Call& call);
  static Touched touched_by(const Gemm& g);
  static Touched touched_by(const NormGrads& d, const Array& g, const Norm& norm);
  static Touched touched_by(const Array& y, const Norm& norm, bool training,
                            const RunningStats& running);
  Backend& to_;
};

}  // namespace halftape
