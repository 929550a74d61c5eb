// Finds and loads the CUDA library at the first call, or says why there is none.
#include <atomic>
#include <mutex>
#include <string>

#include "halftape/core/capture/capture.h"
#include "halftape/core/check.h"
#include "halftape/core/machine/module.h"
#include "halftape/core/machine/warn.h"
#include "halftape/cuda/cuda.h"
#include "halftape/cuda/runtime/runtime.h"

namespace halftape {
namespace cuda {
namespace {

struct Loaded {
  std::mutex mutex;
  std::atomic<Runtime*> runtime{nullptr};
  bool tried = false;
  std::string why_not;
};
Loaded& loaded() {
  static Loaded* one = new Loaded;  // NOLINT: outlives every static tensor
  return *one;
}

Runtime* load(std::string& why_not) {
  // Without a driver there is nothing to load: cuBLASLt alone is half a gigabyte.
  const detail::Module library{"cuda", "the CUDA backend", kRuntimeVersion, "libcuda.so.1",
                               "no NVIDIA driver is installed"};
  const auto start =
      reinterpret_cast<decltype(&halftape_cuda_open)>(detail::load_module(library, why_not));
  return start ? start(&why_not) : nullptr;
}

Runtime& require(Device device) {
  Runtime* r = runtime();
  HALFTAPE_CHECK(r, device, " is not available: ", unavailable_reason(), "; use \"cpu\"");
  HALFTAPE_CHECK(device.is_cuda(), "cuda: ", device, " is not a CUDA device");
  HALFTAPE_CHECK(device.index() < r->device_count(), device, " is not available: there ",
                 r->device_count() == 1 ? "is 1 GPU" : "are ",
                 r->device_count() == 1 ? "" : std::to_string(r->device_count()) + " GPUs",
                 ", counted from 0");
  return *r;
}

/// The runtime, for a call on that device in this thread.
Runtime& on(Device device) {
  runtime()->use_device(device.index());
  return *runtime();
}

MemoryStats memory(Device device) {
  return is_available() ? require(device).memory(device.index()) : MemoryStats{};
}

}  // namespace

Runtime* runtime() {
  Loaded& l = loaded();
  if (Runtime* r = l.runtime.load(std::memory_order_acquire)) return r;
  const std::lock_guard lock(l.mutex);
  if (!l.tried) {
    l.tried = true;
    std::string why_not;
    Runtime* r = load(why_not);
    l.why_not = r ? "" : why_not;
    if (r) l.runtime.store(r, std::memory_order_release);
  }
  return l.runtime.load(std::memory_order_relaxed);
}

Runtime* use_runtime(Runtime* r) {
  Loaded& l = loaded();
  const std::lock_guard lock(l.mutex);
  l.tried = true;
  l.why_not = r ? "" : "it was taken away";
  return l.runtime.exchange(r, std::memory_order_acq_rel);
}

bool is_available() { return runtime() != nullptr; }

std::string unavailable_reason() {
  if (runtime()) return "";
  const std::lock_guard lock(loaded().mutex);
  return loaded().why_not;
}

DeviceIndex device_count() {
  const Runtime* r = runtime();
  return r ? r->device_count() : DeviceIndex{0};
}
std::string device_name(Device device) { return require(device).device_name(device.index()); }
int compute_capability(Device device) { return require(device).compute_capability(device.index()); }
void use_device(Device device) { require(device).use_device(device.index()); }
void synchronize(Device device) {
  require(device);
  halftape::backend(device).synchronize();  // which a Graph may refuse
}

int64_t memory_allocated(Device device) { return memory(device).allocated; }
int64_t max_memory_allocated(Device device) { return memory(device).peak; }
int64_t memory_reserved(Device device) { return memory(device).reserved; }
void reset_peak_memory_stats(Device device) {
  if (is_available()) require(device).reset_peak(device.index());
}
namespace {
void refuse_in_step(const char* call) {
  HALFTAPE_CHECK(!Capture::active(), call, " inside a captured step; call it outside");
}
}  // namespace
void empty_cache(Device device) {
  refuse_in_step("empty_cache()");
  if (is_available()) require(device).empty_cache(device.index());
}
void set_blocking(bool blocking) {
  if (Runtime* r = runtime()) r->set_blocking(blocking);
}
void allow_fp16_reduced_precision_reduction(bool allowed) {
  if (Runtime* r = runtime()) r->allow_fp16_reduced_precision_reduction(allowed);
}

Stream::Stream(Device device, bool high_priority)
    : Stream(device, require(device).next_stream(device.index(), high_priority)) {}
void Stream::synchronize() const {
  refuse_in_step("Stream::synchronize()");
  require(device_).synchronize_stream(device_.index(), handle_);
}
bool Stream::query() const {
  refuse_in_step("Stream::query()");
  return on(device_).query_stream(handle_);
}
Stream current_stream(Device device) {
  if (Capture* capture = Capture::on(device))
    capture->settle();  // before what the caller puts there
  return {device, require(device).current_stream(device.index())};
}

StreamGuard::StreamGuard(const Stream& stream) : before_(current_stream(stream.device())) {
  HALFTAPE_CHECK(!Capture::active_or_tried(),
                 "StreamGuard: the step of a Graph runs in one stream");
  require(stream.device()).set_current_stream(stream.device().index(), stream.handle());
}
StreamGuard::~StreamGuard() {
  if (Capture::active_or_tried())
    warn("a StreamGuard ends inside the step of a Graph, and is without effect");
  else
    runtime()->set_current_stream(before_.device().index(), before_.handle());
}

Event::Event(bool enable_timing, Device device)
    : handle_(require(device).create_event(device.index(), enable_timing),
              [device](void* e) { runtime()->destroy_event(device.index(), e); }),
      device_(device),
      timing_(enable_timing) {}
void Event::record(const Stream& stream) {
  refuse_in_step("Event::record()");
  on(stream.device()).record_event(handle_.get(), stream.handle());
}
void Event::block(const Stream& stream) const {
  refuse_in_step("Event::block()");
  on(stream.device()).wait_event(stream.handle(), handle_.get());
}
void Event::synchronize() const {
  refuse_in_step("Event::synchronize()");
  on(device_).synchronize_event(device_.index(), handle_.get());
}
bool Event::query() const {
  refuse_in_step("Event::query()");
  return on(device_).query_event(handle_.get());
}
float Event::elapsed_time(const Event& later) const {
  HALFTAPE_CHECK(timing_ && later.timing_,
                 "Event::elapsed_time: both events must be made with enable_timing");
  return on(device_).elapsed_time(handle_.get(), later.handle_.get());
}

}  // namespace cuda

std::function<void()> queues_of_thread() {
  cuda::Runtime* const r = cuda::loaded().runtime.load(std::memory_order_acquire);
  return r ? r->streams_of_thread() : [] {};
}
Backend& cuda_backend(Device device) { return cuda::require(device).backend(device.index()); }

}  // namespace halftape
