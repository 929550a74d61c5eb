// The entry of the CUDA library: devices, streams and events, for the loader in the main library.
#include "halftape/cuda/runtime/runtime.h"

#include <memory>
#include <mutex>

#include "halftape/cuda/cuda_backend.h"

namespace halftape::cuda {
namespace {

class CudaRuntime final : public Runtime {
 public:
  explicit CudaRuntime(int count) : devices_(static_cast<size_t>(count)) {}
  DeviceIndex device_count() const override { return static_cast<DeviceIndex>(devices_.size()); }
  std::string device_name(DeviceIndex i) const override { return Context::of(i).properties().name; }
  int compute_capability(DeviceIndex i) const override {
    const cudaDeviceProp& p = Context::of(i).properties();
    return 10 * p.major + p.minor;
  }
  Backend& backend(DeviceIndex i) override {
    Lazy& device = devices_[static_cast<size_t>(i)];
    std::call_once(device.once, [&] { device.backend = std::make_unique<CudaBackend>(i); });
    return *device.backend;
  }
  void use_device(DeviceIndex i) override { Context::of(i).choose(); }

  MemoryStats memory(DeviceIndex i) override { return Context::of(i).memory(); }
  void reset_peak(DeviceIndex i) override { Context::of(i).reset_peak(); }
  void empty_cache(DeviceIndex i) override { Context::of(i).empty_cache(); }
  void set_blocking(bool on) override { Context::blocking = on; }
  void allow_fp16_reduced_precision_reduction(bool allowed) override {
    Context::reduced_sums = allowed;
  }

  void* next_stream(DeviceIndex i, bool high_priority) override {
    return Context::of(i).next_stream(high_priority);
  }
  void* current_stream(DeviceIndex i) override { return Context::of(i).current(); }
  void set_current_stream(DeviceIndex i, void* stream) override {
    Context::of(i).set_current(static_cast<cudaStream_t>(stream));
  }
  std::function<void()> streams_of_thread() override { return Context::streams_of_thread(); }
  void synchronize_stream(DeviceIndex i, void* stream) override {
    Context::of(i).synchronize(static_cast<cudaStream_t>(stream));
  }
  bool query_stream(void* stream) override {
    return is_done(cudaStreamQuery(static_cast<cudaStream_t>(stream)));
  }
  void* create_event(DeviceIndex i, bool timing) override {
    use_device(i);
    cudaEvent_t event;
    check(cudaEventCreateWithFlags(&event, timing ? cudaEventDefault : cudaEventDisableTiming),
          "making an event");
    return event;
  }
  void destroy_event(DeviceIndex i, void* event) noexcept override {
    (void)cudaSetDevice(i);
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
  void synchronize_event(DeviceIndex i, void* event) override {
    Context& context = Context::of(i);
    context.check_earlier(cudaEventSynchronize(static_cast<cudaEvent_t>(event)),
                          "waiting for an event");
    context.read_board();
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
  /// A GPU that nobody uses costs no memory, and one that cannot be used does not hide the others.
  struct Lazy {
    std::once_flag once;
    std::unique_ptr<CudaBackend> backend;
  };
  std::vector<Lazy> devices_;
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
  std::string first;
  for (int i = 0; i < Context::count(); ++i) {
    const std::string why_not = Context::obstacle(static_cast<DeviceIndex>(i));
    if (why_not.empty()) return "";
    if (first.empty()) first = Device(kCUDA, static_cast<DeviceIndex>(i)).str() + ": " + why_not;
  }
  return first;
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
