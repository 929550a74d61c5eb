// The GPU's side of the contract, and the library's entry. Calls put their work into the current
// stream and return.
#include <memory>

#include "halftape/core/contract/mlp_loss_unfused.h"
#include "halftape/cuda/kernels.h"
#include "halftape/cuda/runtime/gpu.h"
#include "halftape/cuda/runtime/recording.h"
#include "halftape/cuda/runtime/side_queue.h"

namespace halftape::cuda {
namespace {

size_t bytes_of(const Array& a) { return static_cast<size_t>(a.numel()) * element_size(a.dtype()); }

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(DeviceIndex index) : context_(Context::of(index)) {}
  const char* name() const override { return "cuda"; }
  BufferPtr allocate(size_t bytes) override { return context_.allocate(bytes); }
  void copy(const Array& to, const Array& from) override { cuda::copy(to, from); }
  BufferPtr allocate_pinned(size_t bytes) override { return context_.allocate_pinned(bytes); }
  void copy_across(const Array& to, const Array& from, bool non_blocking) override {
    if (to.numel() == 0) return;
    const Queue q = queue(to.device().is_cuda() ? to : from);
    const auto kind = to.device().is_cpu()     ? cudaMemcpyDeviceToHost
                      : from.device().is_cpu() ? cudaMemcpyHostToDevice
                                               : cudaMemcpyDefault;
    // Between two devices: what the other one still has to do comes first.
    if (kind == cudaMemcpyDefault) Context::of(from).synchronize(Context::of(from).current());
    context_.check_earlier(cudaMemcpyAsync(to.raw(), from.raw(), bytes_of(to), kind, q.stream),
                           "copying between host and device");
    // From memory that is not pinned, CUDA itself returns only when it has read all of it.
    const Buffer& host = to.device().is_cpu() ? *to.buffer() : *from.buffer();
    if (non_blocking && host.pinned()) return;
    if (to.device().is_cpu() || host.pinned()) q.context.synchronize(q.stream);
  }
  void read(void* host, const Array& from) override {
    if (from.numel() == 0) return;
    const Queue q = queue(from);
    context_.check_earlier(
        cudaMemcpyAsync(host, from.raw(), bytes_of(from), cudaMemcpyDeviceToHost, q.stream),
        "reading from the device");
    q.context.synchronize(q.stream);
  }
  void fill(const Array& to, Scalar value) override { cuda::fill(to, value); }
  void unary(OpId op, const Array& y, const Array& x, const Params<Scalar>& p) override {
    cuda::unary(op, y, x, p);
  }
  void unary_grad(OpId op, const Array& dx, const Array& g, const Array& saved,
                  Params<double> p) override {
    cuda::unary_grad(op, dx, g, saved, p);
  }
  void binary(OpId op, const Array& y, const Array& a, const Array& b) override {
    cuda::binary(op, y, a, b);
  }
  void where(const Array& y, const Array& condition, const Array& a, const Array& b) override {
    cuda::where(y, condition, a, b);
  }
  void reduce(OpId op, const Array& y, const Array& x, const Dims& dims) override {
    cuda::reduce(op, y, x, dims);
  }
  void argmax(const Array& y, const Array& x, int dim) override { cuda::argmax(y, x, dim); }
  void argmin(const Array& y, const Array& x, int dim) override { cuda::argmin(y, x, dim); }
  void scan(OpId op, const Array& y, const Array& x, int dim, bool reverse) override {
    cuda::scan(op, y, x, dim, reverse);
  }
  void argsort(const Array& y, const Array& x, int dim, bool descending) override {
    cuda::argsort(y, x, dim, descending);
  }
  void gemm(const Gemm& g) override { cuda::gemm(g); }
  void softmax(const Array& y, const Array& x, bool log) override { cuda::softmax(y, x, log); }
  void softmax_grad(const Array& dx, const Array& g, const Array& y, bool log) override {
    cuda::softmax_grad(dx, g, y, log);
  }
  void row_norm(const Array& y, const Norm& norm) override { cuda::row_norm(y, norm); }
  void row_norm_grad(const NormGrads& d, const Array& g, const Norm& norm) override {
    cuda::row_norm_grad(d, g, norm);
  }
  void batch_norm(const Array& y, const Norm& norm, bool training,
                  const RunningStats& running) override {
    cuda::batch_norm(y, norm, training, running);
  }
  void batch_norm_grad(const NormGrads& d, const Array& g, const Norm& norm,
                       bool training) override {
    cuda::batch_norm_grad(d, g, norm, training);
  }
  void cross_entropy(const CrossEntropy& o) override {
    if (!cuda::cross_entropy(o)) mean_in_steps(o);
  }
  void cross_entropy_grad(const Array& dx, const Array& slopes, const Array& g,
                          const Array& total) override {
    cuda::cross_entropy_grad(dx, slopes, g, total);
  }
  void mlp_loss(const MlpLoss& m) override {
    if (!mlp_loss_at_once(m)) mlp_loss_unfused(*this, m);
  }
  void fold(const Array& y, const Array& g, const Windows& windows) override {
    cuda::fold(y, g, windows);
  }
  void argmax_windows(const Array& y, const Array& x, const Windows& windows) override {
    cuda::argmax_windows(y, x, windows);
  }
  void gather(const Array& y, const Array& x, int dim, const Array& index, IndexUse use) override {
    cuda::gather(y, x, dim, index, use);
  }
  void scatter(const Array& y, const Array& x, int dim, const Array& index, IndexUse use) override {
    cuda::scatter(y, x, dim, index, use);
  }
  void scatter_reduce(OpId op, const Array& y, const Array& g, int dim, const Array& index,
                      IndexUse use) override {
    cuda::scatter_reduce(op, y, g, dim, index, use);
  }
  void flat_index(const Array& y, std::span<const Array> indices, const Shape& sizes,
                  IndexUse use) override {
    cuda::flat_index(y, indices, sizes, use);
  }
  void nonzero(const Array& y, const Array& x) override { cuda::nonzero(y, x); }
  void random(const Array& y, Distribution kind, double a, double b, RandomKey key) override {
    cuda::random(y, kind, a, b, key);
  }
  void check_finite(std::span<const Array> xs, const Array& found_inf, const Array& inv_scale,
                    const Array& first) override {
    cuda::check_finite(xs, found_inf, inv_scale, first);
  }
  void unscale(std::span<const Array> grads, const Array& inv_scale, const Array& found_inf,
               const Array& first) override {
    cuda::unscale(grads, inv_scale, found_inf, first);
  }
  void list_norm(const ListNorm& n) override { cuda::list_norm(n); }
  void update(std::span<const UpdateSlot> slots, const UpdateRule& rule,
              const StepControl& control) override {
    cuda::update(slots, rule, control);
  }
  void scale_loss(const LossScaling& s) override {
    if (!cuda::scale_loss(s)) Backend::scale_loss(s);
  }
  void scaler_update(const ScalerUpdate& update, const ScalerLaw& law) override {
    cuda::scaler_update(update, law);
  }
  void push(const Array& ring, const Array& count, const Array& value) override {
    cuda::push(ring, count, value);
  }
  void cross_entropy_and_scale(const CrossEntropy& o, const LossScaling& scaling) override {
    if (cuda::cross_entropy(o, &scaling)) return;
    mean_in_steps(o);
    scale_loss(scaling);
  }
  void mlp_loss_and_scale(const MlpLoss& m, const LossScaling& scaling,
                          const std::optional<GradientCheck>& check) override {
    if (!mlp_loss_at_once(m, &scaling, check ? &*check : nullptr))
      Backend::mlp_loss_and_scale(m, scaling, check);
  }
  void check_and_norm(const GradientCheck& check, const ListNorm& n) override {
    cuda::check_and_norm(check, n);
  }
  void update_and_move_scale(std::span<const UpdateSlot> slots, const UpdateRule& rule,
                             const StepControl& control, const ScalerUpdate& moved,
                             const ScalerLaw& law) override {
    cuda::update_and_move_scale(slots, rule, control, moved, law);
  }
  void synchronize() override { context_.synchronize(); }
  std::unique_ptr<Recording> new_recording() override {
    return std::make_unique<CudaRecording>(context_);
  }
  std::unique_ptr<QueueMoment> now() override { return std::make_unique<CudaMoment>(context_); }
  std::unique_ptr<SideQueue> new_side_queue() override {
    return std::make_unique<CudaSideQueue>(context_);
  }

 private:
  Context& context_;
};

class CudaRuntime final : public Runtime {
 public:
  explicit CudaRuntime(int count) {
    for (int i = 0; i < count; ++i)
      backends_.push_back(std::make_unique<CudaBackend>(static_cast<DeviceIndex>(i)));
  }
  DeviceIndex device_count() const override { return static_cast<DeviceIndex>(backends_.size()); }
  std::string device_name(DeviceIndex i) const override { return Context::of(i).properties().name; }
  int compute_capability(DeviceIndex i) const override {
    const cudaDeviceProp& p = Context::of(i).properties();
    return 10 * p.major + p.minor;
  }
  Backend& backend(DeviceIndex i) override { return *backends_[static_cast<size_t>(i)]; }

  MemoryStats memory(DeviceIndex i) override { return Context::of(i).memory(); }
  void reset_peak(DeviceIndex i) override { Context::of(i).reset_peak(); }
  void empty_cache(DeviceIndex i) override { Context::of(i).empty_cache(); }
  void set_blocking(bool on) override { Context::blocking = on; }
  void allow_fp16_reduced_precision_reduction(bool allowed) override {
    allow_reduced_sums(allowed);
  }

  void* next_stream(DeviceIndex i, bool high_priority) override {
    return Context::of(i).next_stream(high_priority);
  }
  void* current_stream(DeviceIndex i) override { return Context::of(i).current(); }
  void set_current_stream(DeviceIndex i, void* stream) override {
    HALFTAPE_CHECK(!Context::capturing(), "StreamGuard: a captured step runs in one stream");
    Context::of(i).set_current(static_cast<cudaStream_t>(stream));
  }
  void synchronize_stream(DeviceIndex i, void* stream) override {
    Context::of(i).synchronize(static_cast<cudaStream_t>(stream));
  }
  bool query_stream(void* stream) override {
    return is_done(cudaStreamQuery(static_cast<cudaStream_t>(stream)));
  }
  void* create_event(DeviceIndex i, bool timing) override {
    check(cudaSetDevice(i), "choosing the device");
    cudaEvent_t event;
    check(cudaEventCreateWithFlags(&event, timing ? cudaEventDefault : cudaEventDisableTiming),
          "making an event");
    return event;
  }
  void destroy_event(void* event) noexcept override {
    (void)cudaEventDestroy(static_cast<cudaEvent_t>(event));
  }
  void record_event(void* event, void* stream) override {
    check(cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)),
          "recording an event");
  }
  void wait_event(void* stream, void* event) override {
    check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event)),
          "waiting for an event");
  }
  void synchronize_event(void* event) override {
    check(cudaEventSynchronize(static_cast<cudaEvent_t>(event)), "waiting for an event");
  }
  bool query_event(void* event) override {
    return is_done(cudaEventQuery(static_cast<cudaEvent_t>(event)));
  }
  float elapsed_time(void* from, void* to) override {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(from),
                               static_cast<cudaEvent_t>(to)),
          "measuring between events");
    return milliseconds;
  }

 private:
  static bool is_done(cudaError_t result) {
    if (result == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return false;
    }
    check(result, "asking for progress");
    return true;
  }
  std::vector<std::unique_ptr<CudaBackend>> backends_;
};

/// Why no device can be used; empty when one can.
std::string obstacle() {
  int count = 0;
  const cudaError_t e = cudaGetDeviceCount(&count);
  (void)cudaGetLastError();
  if (e == cudaErrorInsufficientDriver) {
    int driver = 0, runtime = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (driver == 0) return "no NVIDIA driver is installed";
    return "the NVIDIA driver is for CUDA " + std::to_string(driver / 1000) + '.' +
           std::to_string(driver % 1000 / 10) + ", this build needs " +
           std::to_string(runtime / 1000) + '.' + std::to_string(runtime % 1000 / 10);
  }
  if (e == cudaErrorNoDevice || (e == cudaSuccess && count == 0)) return "there is no NVIDIA GPU";
  if (e != cudaSuccess)
    return std::string(cudaGetErrorString(e)) + " (" + cudaGetErrorName(e) + ")";
  return kernels_obstacle();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int halftape_cuda_version() {
  return kRuntimeVersion;
}
extern "C" __attribute__((visibility("default"))) Runtime* halftape_cuda_open(
    std::string* why_not) {
  try {
    *why_not = obstacle();
    if (!why_not->empty()) return nullptr;
    return new CudaRuntime(Context::count());  // NOLINT: for ever
  } catch (const std::exception& e) {
    *why_not = e.what();
    return nullptr;
  }
}

}  // namespace halftape::cuda
