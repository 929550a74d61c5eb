// The contract: what a device can do. Outputs are allocated by the caller; all calls may run
// asynchronously, and none but read() and copy_across() to the host waits. Arguments have been
// checked by the caller (shapes, dtypes, devices). Every kernel loads its elements, computes in
// float (double for float64, int64 for integers), and rounds once on the way out. Reductions and
// products accumulate in float (double), in an order that depends on the logical shape alone: same
// bits for any thread count, alignment and layout.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "halftape/core/array.h"
#include "halftape/core/contract/step_control.h"
#include "halftape/core/contract/windows.h"
#include "halftape/core/formula/scaler.h"
#include "halftape/core/formula/update.h"
#include "halftape/core/formula/weights.h"
#include "halftape/core/random/random.h"

namespace halftape {

/// What becomes of a product's sum v, in float (double), before it is rounded into d.
enum class Epilogue : uint8_t {
  None,   // d = v
  Relu,   // d = v where it is not ≤ 0, else 0; NaN stays.  aux, if defined ← where, as a mask
  Gelu,   // d = formula::GeluTanh of v.  aux, if defined ← v, rounded
  DRelu,  // d = v where aux, which Relu wrote, has its bit, else 0
  DGelu,  // d = v times the derivative of GeluTanh at aux, which Gelu wrote
};

/// d = epilogue(v), v = alpha·a·b + beta·d (+ bias along the last dimension).
/// d (…, m, n), a (…, m, k), b (…, k, n), bias (n); the leading dimensions are equal. Strides say
/// what is transposed. a and b have equal dtypes; d may be wider. bias has any floating dtype.
///
/// aux of gelu has d's shape and dtype. That of relu is a contiguous mask of bytes (…, m,
/// relu_mask_bytes(n)): bit j % 8 of byte j / 8 is column j's, those behind the last mean nothing.
/// A v above 0 that d rounds to 0 may have its bit or not.
///
/// bias_grad (d of rank 2; any floating dtype), if defined ← Σᵢ d[i, :] (n) after DRelu and DGelu,
/// whose d is a gradient, of d's elements or of what is rounded to them; Σₖ a[:, k] (m) after None,
/// where a is one and d the weight's. With an epilogue or bias_grad all dtypes are floating.
struct Gemm {
  Array d, a, b;
  const Array* bias = nullptr;
  double alpha = 1, beta = 0;
  Epilogue epilogue = Epilogue::None;
  Array aux = {};
  Array bias_grad = {};
};
/// A row of a mask: whole words of 128 bits, as cuBLASLt wants them.
constexpr int64_t relu_mask_bytes(int64_t n) { return (n + 127) / 128 * 16; }

/// Cross-entropy of rows of logits x with the numbers of their classes, and its gradient, in one
/// pass: with q = weight·((1 − smoothing)·[class is target] + smoothing/C), a row's loss is
/// −Σ q·log softmax(x). A target is checked as an index is, unless it is `ignored`: then its row
/// loses nothing. All but x are contiguous, and float32 (float64 where x is) but for the target.
/// x is read as it is, whatever its floating dtype.
struct CrossEntropy {
  Array x;            // (…, C), C > 0
  Array target;       // (…) int64
  Array weight = {};  // (C); undefined: 1
  int64_t ignored = -100;
  double smoothing = 0;
  Array loss;          // (…)
  Array counted = {};  // (…): the target's weight, 0 where it is ignored; undefined: not wanted
  Array grad = {};     // (…, C): of each row's loss by the row; undefined: not wanted
  // One element each, both undefined if not wanted; with them, counted is.
  Array total = {};  // Σ counted
  Array mean = {};   // Σ loss / total
};

/// The mean loss of an MLP and its gradients, forward and backward in one call. Layers are h ←
/// activation(h·wᵀ + b), the last one without activation; the loss is the mean over all outputs of
/// (output − target)², or over the rows of the cross-entropy with their classes, each of which is
/// checked as an index is. What is multiplied is of one dtype: x, weights and biases are rounded to
/// it as they are read, outputs of hidden layers and gradients at the outputs of layers as they are
/// made (after the activation and its derivative, which see the sums). Outputs are not rounded.
struct MlpLoss {
  Array x;                               // (rows, in), with rows; of any floating dtype
  std::optional<Dtype> multiplied = {};  // the dtype of what is; none: x's
  Array target;                          // (rows, out) floating, or (rows) int64: classes
  std::vector<Array> weights;            // (width, in), …, (out, width), of any floating dtypes
  std::vector<Array> biases = {};        // as many, of which any may be undefined; or none
  std::optional<OpId> activation = {};   // of UnaryOps, without parameters; none: nothing
  // What is wanted; undefined ones are not. Gradients are of g·loss.
  Array loss = {};                                 // (), float32 (float64 where that is multiplied)
  Array g = {};                                    // of loss's shape and dtype; undefined: 1
  Array dx = {};                                   // of x's shape, of any floating dtype
  std::vector<Array> dweights = {}, dbiases = {};  // none or as many, of any floating dtypes

  Dtype dtype() const { return multiplied.value_or(x.dtype()); }
};

enum class Distribution : uint8_t {
  Uniform,    // a + (b − a)·u, u in [0, 1)
  Normal,     // mean a, standard deviation b
  Bernoulli,  // 1 with probability a
  Bits,       // integers in [a, b)
};

/// Who indexes with what, for the message of an index out of range:
/// "one_hot: class 7 at position 2 is out of range [0, 5)".
struct IndexUse {
  const char* op;
  const char* argument = "index";
};

/// How a parameter of 16 bits is kept (core/formula/weights.h); others are Plain.
struct Keeping {
  Weights weights = Weights::Plain;
  /// Master: float32, of the parameter's shape. Kahan: of its shape and dtype. Stochastic: int64
  /// (2): the key of its Philox stream, and the updates so far; raised by the update itself.
  Array extra = {};
};
/// One parameter in a list-wise update. Arrays beyond grad may be undefined where the rule or an
/// option of it does not need them.
struct UpdateSlot {
  Array param, grad;
  std::array<Array, kMostMoments> moments = {};  // in the order of the rule
  Array step = {};  // one float32 element: updates applied so far; raised by the update itself
  Keeping keeping = {};
  Array low = {};  // of the parameter's shape, in 16 bits: becomes the new parameter, rounded once
};
/// A loss is multiplied by a GradScaler's scale, and looked at. Of one element each, but for the
/// first two.
struct LossScaling {
  Array loss = {};      // of any floating dtype and shape
  Array scaled = {};    // of its shape: loss · scale
  Array scale;          // float32
  Array bad_loss;       // float32: 1 if an element of the loss is not finite, else as it was
  bool begins = false;  // bad_loss was 0, whatever it holds
  // What becomes of a step's constants, and how a finding begins: all of them, or undefined.
  Array factor = {}, inverse = {};   // float32: the scale, and 1 / scale
  Array found_inf = {}, first = {};  // float32 and int64: bad_loss, and −1
};
/// check_finite() of a list of gradients, or unscale().
struct GradientCheck {
  std::vector<Array> grads;
  Array inv_scale = {}, found_inf = {}, first = {};
  bool divides = false;  // unscale()
};
/// The norm of all elements of all arrays, unit·(Σ |x / unit|ᵖ)^(1/p), or the largest |x| where p
/// is infinite; sums are kept in double. And what brings it to `most`: 1 where it is that at most,
/// or not finite; else most / (norm + 1e-6).
struct ListNorm {
  std::span<const Array> xs;  // of floating dtypes
  double p = 2;
  Array unit = {};  // one float64; undefined: 1
  double most = 0;
  Array norm, factor;  // one each, float32 or float64
};
/// One transition of a GradScaler's state.
struct ScalerUpdate {
  Array scale;                              // one float32
  Array trackers;                           // int32 (2): growth_tracker and overflows
  Array counts;                             // int64 (8): ScalerCounts; undefined: not kept
  std::span<const ScalerFinding> findings;  // one for each optimizer that stepped
  Array bad_loss;          // one float32; non-zero: a loss was not finite; undefined: not known
  int64_t warn_after = 0;  // skips in a row at which the device says so; 0: never
};

/// What brings rows or channels to mean 0 and variance 1: y = (x − mean)·rstd·weight + bias.
struct Norm {
  Array x = {};
  Array weight = {}, bias = {};  // (C), of any floating dtype; undefined: 1 and 0
  Array mean = {}, rstd = {};    // contiguous, float32 (float64 of a float64 x)
  double eps = 0;
};
/// Undefined: not wanted.
struct NormGrads {
  Array dx = {}, dweight = {}, dbias = {};
};
/// The running averages (C) of a batch norm in training, of any floating dtype.
struct RunningStats {
  Array mean = {}, var = {};   // undefined: not kept
  Array batches = {};          // one int64: how many have gone in; undefined: not counted
  double momentum = 0.1;       // the share of the newest batch; negative: all count alike
  bool skip_nonfinite = true;  // a batch with a statistic that is not finite changes nothing
};

/// Work that a device has written down, to do it again and again without the host.
class Recording {
 public:
  virtual ~Recording() = default;
  /// Calls `work`, whose calls of the backend are carried out, in the queue that record() will use;
  /// waits for them.
  virtual void rehearse(const std::function<void()>& work) = 0;
  /// Calls `work`, whose calls of the backend are written down instead of carried out. Memory that
  /// is allocated meanwhile stays with the recording.
  virtual void record(const std::function<void()>& work) = 0;
  /// Does it all in the current queue. Returns before it is done.
  virtual void replay() = 0;
  /// Kernels and copies that are written down.
  virtual int64_t size() const = 0;
};

/// A moment in a queue of a device: when all that it had got by then is done.
class QueueMoment {
 public:
  virtual ~QueueMoment() = default;
  /// What this thread gives to the device from now on is done after it. The host does not wait.
  virtual void await() = 0;
};
/// A queue of a device beside those into which its threads put their work.
class SideQueue {
 public:
  virtual ~SideQueue() = default;
  /// Calls `work`, in whose course this thread's queue is this one.
  virtual void use(const std::function<void()>& work) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;

  // Memory. copy: any strides, any dtypes; this is also the cast. copy_across: contiguous, of one
  // dtype, between host and device or between two devices; the host's side may be changed as soon
  // as it returns, unless that is pinned and the call non-blocking.
  virtual BufferPtr allocate(size_t bytes) = 0;
  virtual BufferPtr allocate_pinned(size_t bytes);  // throws where there is no such memory
  virtual void copy(const Array& to, const Array& from) = 0;
  virtual void copy_across(const Array& to, const Array& from, bool non_blocking) = 0;
  virtual void read(void* host, const Array& from) = 0;  // contiguous elements, in from's dtype
  virtual void fill(const Array& to, Scalar value) = 0;

  // Element-wise. Inputs have y's shape; broadcasting is a stride of 0. Dtypes may differ from each
  // other. Integers wrap around; an integer divided by zero throws where a kernel can, else is 0.
  virtual void unary(OpId op, const Array& y, const Array& x, const Params<Scalar>& p) = 0;
  virtual void unary_grad(OpId op, const Array& dx, const Array& g, const Array& saved,
                          Params<double> p) = 0;
  virtual void binary(OpId op, const Array& y, const Array& a, const Array& b) = 0;
  virtual void where(const Array& y, const Array& condition, const Array& a, const Array& b) = 0;

  // Reductions over `dims` (wrapped, sorted) of x; y has the kept dimensions. argmax, argmin: first
  // of equals; NaN wins.
  virtual void reduce(OpId op, const Array& y, const Array& x, const Dims& dims) = 0;
  virtual void argmax(const Array& y, const Array& x, int dim) = 0;  // y: int64
  virtual void argmin(const Array& y, const Array& x, int dim) = 0;  // y: int64
  // Running reductions: y[i] is the reduction (op of ReduceOps) of x[0] … x[i] along `dim`, from
  // the other end when `reverse`. y has x's shape. Sums and products of floats are kept in double.
  virtual void scan(OpId op, const Array& y, const Array& x, int dim, bool reverse) = 0;
  // The order that sorts x along `dim`: y (int64, x's shape) holds positions, or the first ones
  // where it is shorter along `dim`. Stable both ways; NaN is greater than every number, zeros are
  // equal.
  virtual void argsort(const Array& y, const Array& x, int dim, bool descending) = 0;

  // Matrix products, rows and channels. Rows are the last dimension; leading dimensions are free. A
  // product that a library makes may have other last digits in another layout or alignment.
  virtual void gemm(const Gemm&) = 0;
  virtual void softmax(const Array& y, const Array& x, bool log) = 0;
  virtual void softmax_grad(const Array& dx, const Array& g, const Array& y, bool log) = 0;
  // Rows of C elements with weights along them; mean and rstd, one for each row, are written by
  // the first and read by the second. Without mean: y = x·rstd·weight, rstd = 1/√(mean of x² +
  // eps).
  virtual void row_norm(const Array& y, const Norm& norm) = 0;
  virtual void row_norm_grad(const NormGrads& d, const Array& g, const Norm& norm) = 0;
  // x (N, C, S), with statistics and weights for each channel. Training: statistics are those of
  // the batch, written to mean and rstd, and taken into `running`. Otherwise they are given, and
  // constants to the gradient.
  virtual void batch_norm(const Array& y, const Norm& norm, bool training,
                          const RunningStats& running) = 0;
  virtual void batch_norm_grad(const NormGrads& d, const Array& g, const Norm& norm,
                               bool training) = 0;
  virtual void cross_entropy(const CrossEntropy&) = 0;
  // dx = slopes · (g / total), where slopes are `grad` of a CrossEntropy, and g is that of its
  // mean: one element. dx has any floating dtype.
  virtual void cross_entropy_grad(const Array& dx, const Array& slopes, const Array& g,
                                  const Array& total);
  // By other calls of the backend, unless it knows better (core/contract/mlp_loss_unfused.h).
  virtual void mlp_loss(const MlpLoss&);

  // Windows over the last dimensions. fold: y (…, lengths…) becomes the sum of the elements of g
  // (…, sizes…, windows…) that lie on it, in the row-major order of their positions in the window.
  // argmax_windows: y (…, windows…), int64: where the first largest element of each window of x
  // (…, lengths…) is, as a position in the windowed dimensions made one. NaN wins; −1 for a window
  // that covers nothing.
  virtual void fold(const Array& y, const Array& g, const Windows& windows) = 0;
  virtual void argmax_windows(const Array& y, const Array& x, const Windows& windows) = 0;

  // Indexing along `dim`. index: int64, checked by the kernel before anything is written (throws,
  // naming value and position; dimensions along which the index repeats by a stride of 0 count
  // once). gather: y[i…] = x[… index[i…] …]; scatter: y[… index[i…] …] = x[i…], of equal positions
  // the last in the order of i stays; scatter_reduce: y[… index[i…] …] becomes its reduction (op of
  // ReduceOps) with g[i…], in the order of i, rounded once; scatter_add: the sum.
  virtual void gather(const Array& y, const Array& x, int dim, const Array& index,
                      IndexUse use = {"gather"}) = 0;
  virtual void scatter(const Array& y, const Array& x, int dim, const Array& index,
                       IndexUse use = {"scatter"}) = 0;
  virtual void scatter_reduce(OpId op, const Array& y, const Array& g, int dim, const Array& index,
                              IndexUse use = {"scatter_reduce"}) = 0;
  void scatter_add(const Array& y, const Array& g, int dim, const Array& index,
                   IndexUse use = {"scatter_add"});
  // Indices into neighbouring dimensions of these sizes, all of y's shape and checked as above, as
  // one index into those dimensions made one. Negative ones count from the end. y: contiguous.
  virtual void flat_index(const Array& y, std::span<const Array> indices, const Shape& sizes,
                          IndexUse use) = 0;
  // y (n, x.dim()), contiguous: where the n elements of x that are not zero lie, in row-major
  // order.
  virtual void nonzero(const Array& y, const Array& x) = 0;

  virtual void random(const Array& y, Distribution kind, double a, double b, RandomKey key) = 0;

  // Lists of arrays in one launch. Undefined arrays are passed over. check_finite: found_inf ← 1 if
  // any element is not finite, as it is or times inv_scale (undefined: 1); first (one int64, or
  // undefined) ← the position in the list of the first such x. unscale: the same, and g ←
  // g·inv_scale; without found_inf and first that is all.
  virtual void check_finite(std::span<const Array> xs, const Array& found_inf,
                            const Array& inv_scale = {}, const Array& first = {}) = 0;
  virtual void unscale(std::span<const Array> grads, const Array& inv_scale,
                       const Array& found_inf = {}, const Array& first = {}) = 0;
  virtual void list_norm(const ListNorm&) = 0;
  // Every parameter takes one step by the rule; all that it may write has a new version then, also
  // where the step is skipped: that is known to the device alone.
  virtual void update(std::span<const UpdateSlot>, const UpdateRule&, const StepControl&) = 0;
  virtual void scale_loss(const LossScaling&);
  // state ← next(state, verdict, law) and counts ← counted(counts, verdict, …), where the verdict
  // is BadLoss, or else Overflow if any finding is.
  virtual void scaler_update(const ScalerUpdate& update, const ScalerLaw& law) = 0;
  // ring[count mod its size] ← value, and count ← count + 1. ring: (n), n > 0, of a floating dtype;
  // count: one int64; value: one element of any floating dtype.
  virtual void push(const Array& ring, const Array& count, const Array& value);

  virtual void synchronize() = 0;

  /// `total` and `mean` of what `loss` and `counted` hold.
  void mean_in_steps(const CrossEntropy& o);

  /// An empty one; null from a device that knows nothing of the kind.
  virtual std::unique_ptr<Recording> new_recording() { return nullptr; }

  // Neighbours in a training step as one call, which means what they do one after the other, and
  // is that unless a device knows better. scaling.loss is the mean, or the MLP's loss; the
  // gradients that are checked are some of the MLP's; the norm is that of all gradients that are
  // checked. A graph makes them of a step's calls (core/capture/peephole.h).
  virtual void cross_entropy_and_scale(const CrossEntropy&, const LossScaling& scaling);
  virtual void mlp_loss_and_scale(const MlpLoss&, const LossScaling& scaling,
                                  const std::optional<GradientCheck>& check);
  virtual void check_and_norm(const GradientCheck&, const ListNorm&);
  virtual void update_and_move_scale(std::span<const UpdateSlot>, const UpdateRule&,
                                     const StepControl&, const ScalerUpdate&, const ScalerLaw&);
  /// check_finite(), or unscale().
  void check(const GradientCheck&);

  /// Now, in this thread's queue; and a queue beside it. Null from a device that has done what it
  /// is told when a call returns.
  virtual std::unique_ptr<QueueMoment> now() { return nullptr; }
  virtual std::unique_ptr<SideQueue> new_side_queue() { return nullptr; }
};

/// The backend of a device; throws with the reason when this build or machine has none.
Backend& backend(Device);

// One per device folder.
Backend& cpu_backend();
Backend& cuda_backend(Device);

/// Replaces the backend of a device type for this process, for tests that watch calls; returns the
/// former one.
Backend* swap_backend(DeviceType, Backend*);

/// The backend of a device for this thread alone, for as long as it lives.
class [[nodiscard]] BackendGuard {
 public:
  BackendGuard(Device device, Backend& backend);
  ~BackendGuard();
  BackendGuard(const BackendGuard&) = delete;
  BackendGuard& operator=(const BackendGuard&) = delete;

 private:
  std::pair<Device, Backend*> before_;
};

}  // namespace halftape
