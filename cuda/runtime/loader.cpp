// Finds and loads the CUDA library at the first call, or says why there is none.
#include <atomic>
#include <filesystem>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

#include "halftape/core/capture/capture.h"
#include "halftape/core/check.h"
#include "halftape/core/machine/os.h"
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

namespace fs = std::filesystem;
constexpr const char* kLibrary = "libhalftape_cuda.so";

/// Where the library may lie, the likeliest place first. Only folders that are as hard to write to
/// as this code itself: neither the current folder nor a search path of the system is among them.
/// * The folder of the program, or of libhalftape.so.
/// * PREFIX/lib for a program in PREFIX/bin, so that an installation may be moved as a whole.
/// * The folders that the program's linker wrote into it, such as that of a build.
/// A folder beside the program may belong to somebody else, as it does in /tmp. So the file in any
/// but the last must belong to the program's owner, who is trusted already, or to root.
std::vector<fs::path> places() {
  std::vector<fs::path> all;
  const void* const here = reinterpret_cast<void*>(&places);
  const fs::path code = os::place_of(here).file;
  if (code.is_absolute()) {
    const fs::path folder = code.parent_path();
    all.push_back(folder / kLibrary);
    if (folder.filename() == "bin")
      all.push_back(folder.parent_path() / HALFTAPE_LIB_FOLDER / kLibrary);
    std::erase_if(all, [&](const fs::path& file) { return !os::is_as_safe_as(file, code); });
  }
  for (const fs::path& folder : os::run_path_of(here)) {
    std::error_code unreadable;
    if (fs::is_regular_file(folder / kLibrary, unreadable)) all.push_back(folder / kLibrary);
  }
  return all;
}

Runtime* open(const std::string& place, std::string& why_not) {
  void* const library = os::load_library(place, why_not);
  if (!library) return nullptr;
  const auto version = reinterpret_cast<decltype(&halftape_cuda_version)>(
      os::symbol(library, "halftape_cuda_version"));
  const auto start =
      reinterpret_cast<decltype(&halftape_cuda_open)>(os::symbol(library, "halftape_cuda_open"));
  if (!version || !start || version() != kRuntimeVersion)
    why_not = place + " belongs to another version of halftape";
  else if (Runtime* runtime = start(&why_not))
    return runtime;
  return nullptr;  // stays loaded: unloading the CUDA runtime is not safe
}

Runtime* load(std::string& why_not) {
  if (!*HALFTAPE_LIB_FOLDER) {
    why_not = "the CUDA backend is for Linux alone";
    return nullptr;
  }
  if (const char* said = os::secure_environment("HALFTAPE_CUDA_LIBRARY")) {
    std::error_code unreadable;
    const fs::path file = fs::absolute(said, unreadable);
    if (fs::is_regular_file(file, unreadable)) return open(file.string(), why_not);
    why_not = "HALFTAPE_CUDA_LIBRARY: there is no file " + std::string(said);
    return nullptr;
  }
  // Without a driver there is nothing to load: cuBLASLt alone is half a gigabyte.
  if (!os::load_library("libcuda.so.1", why_not)) {
    why_not = "no NVIDIA driver is installed";
    return nullptr;
  }
  const std::vector<fs::path> all = places();
  if (!all.empty()) return open(all.front().string(), why_not);
  why_not = std::string("the CUDA backend is not installed: ") + kLibrary +
            " lies neither beside the program nor in a folder of its run path; if it lies "
            "elsewhere, HALFTAPE_CUDA_LIBRARY names it";
  return nullptr;
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
void synchronize(Device device) { require(device).backend(device.index()).synchronize(); }

int64_t memory_allocated(Device device) { return memory(device).allocated; }
int64_t max_memory_allocated(Device device) { return memory(device).peak; }
int64_t memory_reserved(Device device) { return memory(device).reserved; }
void reset_peak_memory_stats(Device device) {
  if (is_available()) require(device).reset_peak(device.index());
}
void empty_cache(Device device) {
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
void Stream::synchronize() const { require(device_).synchronize_stream(device_.index(), handle_); }
bool Stream::query() const { return require(device_).query_stream(handle_); }
Stream current_stream(Device device) {
  if (Capture* capture = Capture::on(device))
    capture->settle();  // before what the caller puts there
  return {device, require(device).current_stream(device.index())};
}

StreamGuard::StreamGuard(const Stream& stream) : before_(current_stream(stream.device())) {
  require(stream.device()).set_current_stream(stream.device().index(), stream.handle());
}
StreamGuard::~StreamGuard() {
  runtime()->set_current_stream(before_.device().index(), before_.handle());
}

Event::Event(bool enable_timing, Device device)
    : handle_(require(device).create_event(device.index(), enable_timing),
              [](void* e) { runtime()->destroy_event(e); }),
      timing_(enable_timing) {}
void Event::record(const Stream& stream) {
  runtime()->record_event(handle_.get(), stream.handle());
}
void Event::block(const Stream& stream) const {
  runtime()->wait_event(stream.handle(), handle_.get());
}
void Event::synchronize() const { runtime()->synchronize_event(handle_.get()); }
bool Event::query() const { return runtime()->query_event(handle_.get()); }
float Event::elapsed_time(const Event& later) const {
  HALFTAPE_CHECK(timing_ && later.timing_,
                 "Event::elapsed_time: both events must be made with enable_timing");
  return runtime()->elapsed_time(handle_.get(), later.handle_.get());
}

}  // namespace cuda

Backend& cuda_backend(Device device) { return cuda::require(device).backend(device.index()); }

}  // namespace halftape
