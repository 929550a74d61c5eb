// The settings of the simulated device.
#pragma once
#include <cstddef>
#include <utility>

namespace simt {

/// When the work of a stream runs.
enum class Mode {
  Immediate,  // as soon as it is enqueued
  Deferred,   // at the last possible moment, in the call that waits: a missing wait shows
};

/// The order in which the threads of a block, and the blocks of a grid, run.
enum class Order { Forward, Reverse, Random };

/// Whether host code that touches device memory is stopped.
enum class Protect {
  Never,
  Sometimes,  // with much memory in use, after every so-many-th kernel only: it takes time
  Always,
};

/// The result of cuBLASLt's ReLU for NaN, which is not documented.
enum class NanInRelu {
  Swallowed,    // 0, as max(x, 0) gives
  Kept,         // NaN, and its bit in the mask is set
  KeptWithout,  // NaN, and its bit is not set
};

/// Which products cuBLASLt refuses, although its documentation does not say so.
struct Refusals {
  enum Of { None, Epilogues, Halves, All } of = None;
  int status = 15;           // a cublasStatus_t: CUBLAS_STATUS_NOT_SUPPORTED
  bool when_called = false;  // else when an algorithm is chosen
  int left = -1;             // so many more; −1: without end
};

struct Settings {
  Mode mode = Mode::Immediate;
  Order order = Order::Forward;
  unsigned seed = 1;   // of Order::Random
  int os_threads = 1;  // over which the blocks of a grid are spread
  Protect protect = Protect::Sometimes;
  bool quiet = false;  // faults are kept in reports(), and not printed as well
  int devices = 1;
  std::size_t memory = std::size_t{1} << 30;  // of each device; more is cudaErrorMemoryAllocation
  int multiprocessors = 4;                    // few, so that grid-stride loops have strides
  int compute_major = 9, compute_minor = 0;
  std::size_t shared_memory = 232448;  // bytes that a block may ask for, at most these of an H100
  unsigned foreign = 0;                // bits of devices for which the kernels were not compiled
  unsigned busy = 0;                   // bits of devices that another process has for itself
  bool memory_pools = true;            // the device has them
  bool pageable_access = false;        // it reads the host's memory late, pinned or not
  // While it says true, kernels, products, copies and fills are counted and logged, but not carried
  // out: for steps that are too large for the CPU. The host reads zeros. Memory that is allocated
  // meanwhile takes addresses alone, and is neither poisoned nor checked.
  bool (*counts_only)() = nullptr;
  // cuBLASLt:
  NanInRelu nan_in_relu = NanInRelu::Swallowed;
  bool gelu_by_erf = false;          // its GELU is not the tanh form
  double tanh_error = 0;             // of that form, relative: 2^-11 by the hardware's tanh
  bool turned_masks = false;         // the bits of a mask's bytes lie the other way round
  bool zeros_have_bits = false;      // ReLU's mask lets the gradient of an exact 0 pass
  bool bias_after_rounding = false;  // 16-bit results are rounded before C or a bias is added, too
  bool more_kernels = false;  // long sums and bias gradients are completed by kernels of their own
  Refusals refuses{};
  bool wide_bias_gradients = true;  // has algorithms for BGRADA and BGRADB of a float32 D of halves
};
inline Settings settings;
inline bool counts_only() { return settings.counts_only && settings.counts_only(); }

/// Settings for as long as this lives: `simt::With deferred({.mode = simt::Mode::Deferred});`
class [[nodiscard]] With {
 public:
  explicit With(Settings s) : before_(std::exchange(settings, s)) {}
  ~With() { settings = before_; }
  With(const With&) = delete;
  With& operator=(const With&) = delete;

 private:
  Settings before_;
};

/// Runs body() once in each order of threads.
template <class Body>
void in_every_order(Body&& body) {
  for (const Order order : {Order::Forward, Order::Reverse, Order::Random}) {
    Settings s = settings;
    s.order = order;
    const With with(s);
    body();
  }
}

}  // namespace simt
