#include "halftape/cuda/runtime/context.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

#include "halftape/core/machine/os.h"
#include "halftape/core/machine/warn.h"
#include "halftape/cuda/copy.h"
#include "halftape/cuda/runtime/arena.h"

namespace halftape::cuda {
namespace {

constexpr DeviceIndex kMostDevices = 64;
constexpr size_t kPoolOfStreams = 32;  // per device and priority; then they are reused in turn

thread_local std::array<cudaStream_t, kMostDevices> chosen{};  // null: the device's first
/// How many bad indices of each device this thread knows of, and 1; 0 before its first call.
thread_local std::array<uint64_t, kMostDevices> told{};

/// For memory of one device: a Buffer remembers the stream, and by its function the device.
template <DeviceIndex index>
void give_back_memory(void* bytes, size_t, void* stream) noexcept {
  if (Arena* arena = Context::capturing()) return arena->free_later(bytes, stream);
  Context::of(index).release(bytes, static_cast<cudaStream_t>(stream));
}
constexpr auto kGiveBack = []<size_t... index>(std::index_sequence<index...>) {
  return std::array<Buffer::GiveBack, kMostDevices>{
      &give_back_memory<static_cast<DeviceIndex>(index)>...};
}
(std::make_index_sequence<kMostDevices>());

std::string mebibytes(int64_t bytes) {
  std::ostringstream text;
  text.precision(1);
  text << std::fixed << static_cast<double>(bytes) / (1 << 20) << " MiB";
  return text.str();
}

/// True if the error has broken the device's context, so that every later call returns it.
bool breaks_device(cudaError_t e) {
  return e == cudaErrorIllegalAddress || e == cudaErrorLaunchFailure || e == cudaErrorAssert ||
         e == cudaErrorIllegalInstruction || e == cudaErrorMisalignedAddress ||
         e == cudaErrorInvalidAddressSpace || e == cudaErrorInvalidPc ||
         e == cudaErrorLaunchTimeout || e == cudaErrorHardwareStackError ||
         e == cudaErrorECCUncorrectable || e == cudaErrorNvlinkUncorrectable ||
         e == cudaErrorContained || e == cudaErrorTensorMemoryLeak ||
         e == cudaErrorExternalDevice || e == cudaErrorMpsClientTerminated;
}

/// Takes a note off the board; one of the threads that see it gets it.
template <class Note>
bool take(Note& note, Note& out) {
  const volatile unsigned& ready = note.ready;
  if (!ready) [[likely]]
    return false;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (!ready) return false;
  std::atomic_thread_fence(std::memory_order_acquire);
  out = note;
  note.ready = 0;
  std::atomic_thread_fence(std::memory_order_release);
  *static_cast<volatile unsigned*>(&note.taken) = 0;  // from here on a kernel may leave the next
  return true;
}

std::string text_of(cudaError_t e) {
  return std::string(cudaGetErrorString(e)) + " (" + cudaGetErrorName(e) + ")" +
         (breaks_device(e) ? "; the GPU cannot be used any more in this process" : "");
}

[[noreturn]] void fail(cudaError_t e, const char* what, const std::string& more = "") {
  (void)cudaGetLastError();  // clears it, unless it has broken the context
  const std::string text = detail::in_its_name(detail::str("cuda: ", what, ": ", text_of(e), more));
  if (e == cudaErrorMemoryAllocation) throw OutOfMemoryError(text);
  throw Error(text);
}

}  // namespace

std::atomic<bool> Context::blocking{os::is_asked_for("HALFTAPE_CUDA_BLOCKING")},
    Context::reduced_sums{false};

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) [[likely]]
    return;
  fail(result, what);
}

int Context::count() {
  int n = 0;
  if (cudaGetDeviceCount(&n) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return std::min<int>(n, kMostDevices);
}

std::string Context::obstacle(DeviceIndex index) {
  int pools = 0, major = 0, minor = 0;
  const std::pair<int*, cudaDeviceAttr> wanted[] = {{&pools, cudaDevAttrMemoryPoolsSupported},
                                                    {&major, cudaDevAttrComputeCapabilityMajor},
                                                    {&minor, cudaDevAttrComputeCapabilityMinor}};
  for (const auto& [value, attribute] : wanted)
    if (const cudaError_t e = cudaDeviceGetAttribute(value, attribute, index); e != cudaSuccess) {
      (void)cudaGetLastError();
      return text_of(e);
    }
  return pools ? architecture_obstacle(10 * major + minor)
               : "it has no memory pools, which some virtual GPUs lack";
}

namespace {
std::atomic<Context*>& slot_of(DeviceIndex index) {
  static auto* made = new std::array<std::atomic<Context*>, kMostDevices>{};  // NOLINT: for ever
  return (*made)[static_cast<size_t>(index)];
}
}  // namespace

Context& Context::of(DeviceIndex index) {
  static std::mutex mutex;
  HALFTAPE_CHECK(index >= 0 && index < kMostDevices, "cuda:", index, " is not available");
  auto& slot = slot_of(index);
  if (Context* c = slot.load(std::memory_order_acquire)) return *c;
  const std::lock_guard lock(mutex);
  if (!slot.load(std::memory_order_relaxed)) slot.store(new Context(index));  // NOLINT: for ever
  return *slot.load(std::memory_order_relaxed);
}

Context::Context(DeviceIndex index) : index_(index) {
  std::string why_not = obstacle(index);
  if (why_not.empty()) {
    const cudaError_t e = cudaSetDevice(index);  // which fails if another process has it for itself
    (void)cudaGetLastError();
    why_not = e == cudaSuccess ? kernels_obstacle() : text_of(e);
  }
  HALFTAPE_CHECK(why_not.empty(), Device(kCUDA, index), " cannot be used: ", why_not);
  check(cudaGetDeviceProperties(&properties_, index), "reading the device's properties");
  cudaMemPoolProps wanted{};
  wanted.allocType = cudaMemAllocationTypePinned;
  wanted.location = {cudaMemLocationTypeDevice, index};
  check(cudaMemPoolCreate(&pool_, &wanted), "making a memory pool");
  uint64_t keep = UINT64_MAX;  // freed memory stays for reuse until empty_cache()
  check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep),
        "setting up the memory pool");
  first_ = make_stream(0);
  void* board = nullptr;
  check(cudaHostAlloc(&board, sizeof(Board), cudaHostAllocMapped | cudaHostAllocPortable),
        "allocating pinned memory");
  std::memset(board, 0, sizeof(Board));
  board_ = static_cast<Board*>(board);
}

void Context::choose() const { check_earlier(cudaSetDevice(index_), "choosing the device"); }

Arena*& Context::capturing() {
  thread_local constinit Arena* arena = nullptr;
  return arena;
}

BufferPtr Context::allocate(size_t bytes) {
  if (Arena* arena = capturing(); arena && &arena->context() == this) return arena->allocate(bytes);
  const cudaStream_t stream = current();
  void* const block = from_pool(bytes, stream);
  const Buffer::GiveBack give_back = kGiveBack[static_cast<size_t>(index_)];
  try {
    return make_ref<Buffer>(block, bytes, Device(kCUDA, index_), give_back, stream);
  } catch (const std::bad_alloc&) {
    give_back(block, bytes, stream);
    out_of_memory(sizeof(Buffer));
  }
}

void* Context::from_pool(size_t bytes, cudaStream_t stream) {
  void* block = nullptr;
  const size_t size = std::max<size_t>(bytes, 1);
  choose();
  // The driver may take seconds to find out that it never has so much.
  cudaError_t result = size > properties_.totalGlobalMem
                           ? cudaErrorMemoryAllocation
                           : cudaMallocFromPoolAsync(&block, size, pool_, stream);
  if (result == cudaErrorMemoryAllocation && size <= properties_.totalGlobalMem) {
    (void)cudaGetLastError();
    if (!capturing()) empty_cache();  // which waits
    result = cudaMallocFromPoolAsync(&block, size, pool_, stream);
  }
  if (result == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    size_t free = 0, total = 0;
    (void)cudaMemGetInfo(&free, &total);
    const MemoryStats now = memory();
    std::ostringstream text;
    text << Device(kCUDA, index_) << " is out of memory: " << mebibytes(static_cast<int64_t>(bytes))
         << " asked for, " << mebibytes(now.allocated) << " held by arrays, "
         << mebibytes(static_cast<int64_t>(free)) << " of "
         << mebibytes(static_cast<int64_t>(total))
         << " free; use a smaller batch, a smaller model or 16-bit weights";
    throw OutOfMemoryError(detail::in_its_name(text.str()));
  }
  check_earlier(result, "allocating memory");
  return block;
}

void Context::release(void* bytes, cudaStream_t stream) noexcept {
  (void)cudaSetDevice(index_);  // as choose()
  const std::shared_lock no_capture_begins(begin_);
  // What a stream had to do before it began to capture is done. At the end of the process the
  // driver may be gone already.
  (void)cudaFreeAsync(bytes, captures(stream) ? first_ : stream);
}

unsigned* Context::block_count(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  return block_counts_.at(stream);
}

MemoryStats Context::memory() const {
  choose();
  uint64_t used = 0, high = 0, reserved = 0;
  check(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, &used), "reading statistics");
  check(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemHigh, &high), "reading statistics");
  check(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved),
        "reading statistics");
  return {static_cast<int64_t>(used), static_cast<int64_t>(high), static_cast<int64_t>(reserved)};
}

void Context::reset_peak() {
  choose();
  uint64_t zero = 0;
  check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrUsedMemHigh, &zero), "resetting statistics");
}

void Context::empty_cache() {
  synchronize();  // memory freed in a stream is free only when the stream has got there
  check(cudaMemPoolTrimTo(pool_, 0), "giving memory back");
  free_unused_pinned();
}

cudaStream_t Context::current() const {
  const cudaStream_t mine = chosen[static_cast<size_t>(index_)];
  return mine ? mine : first_;
}
void Context::set_current(cudaStream_t stream) const {
  chosen[static_cast<size_t>(index_)] = stream;
}

std::function<void()> Context::streams_of_thread() {
  return [streams = chosen] { chosen = streams; };
}

cudaStream_t Context::make_stream(int priority) {
  choose();
  cudaStream_t made;
  check(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, priority), "making a stream");
  made_.push_back(made);
  // The stream's count of blocks is made here, because a capture would only record that it becomes
  // 0. It lives as long as the stream: until the program ends.
  const RelaxedCapture relaxed;
  void* count = nullptr;
  check(cudaMallocFromPoolAsync(&count, sizeof(unsigned), pool_, made), "making a count of blocks");
  check(cudaMemsetAsync(count, 0, sizeof(unsigned), made), "making a count of blocks");
  block_counts_.emplace(made, static_cast<unsigned*>(count));
  return made;
}

cudaStream_t Context::next_stream(bool high_priority) {
  const std::lock_guard lock(mutex_);
  Pool& pool = high_priority ? urgent_ : normal_;
  if (pool.streams.size() < kPoolOfStreams) {
    choose();
    int least = 0, greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "reading stream priorities");
    pool.streams.push_back(make_stream(high_priority ? greatest : least));
    return pool.streams.back();
  }
  return pool.streams[pool.next++ % kPoolOfStreams];
}

cudaStream_t Context::borrow_stream() {
  const std::lock_guard lock(mutex_);
  if (returned_.empty()) returned_.push_back(make_stream(0));
  const cudaStream_t stream = returned_.back();
  returned_.pop_back();
  return stream;
}
void Context::return_stream(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  returned_.push_back(stream);
}

void Context::synchronize(cudaStream_t stream) {
  choose();
  check_earlier(cudaStreamSynchronize(stream), "synchronize");
  launches_.store(0, std::memory_order_relaxed);
  read_board();
}

cudaError_t Context::wait() {
  const std::shared_lock no_capture_begins(begin_);
  std::vector<cudaStream_t> streams;
  {
    const std::lock_guard lock(mutex_);
    streams = made_;
  }
  for (const cudaStream_t stream : streams) {
    if (captures(stream)) continue;
    if (const cudaError_t result = cudaStreamSynchronize(stream); result != cudaSuccess)
      return result;
  }
  return cudaSuccess;
}

bool Context::captures(cudaStream_t stream) const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
         status != cudaStreamCaptureStatusNone;
}

void Context::begin_capture(cudaStream_t stream) {
  const std::lock_guard lock(begin_);
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning a capture");
}

void Context::order(cudaStream_t first, cudaStream_t then) {
  choose();
  const std::shared_lock no_capture_begins(begin_);
  if (first == then || captures(first) || captures(then)) return;
  cudaEvent_t event;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  cudaError_t result = cudaEventRecord(event, first);
  if (result == cudaSuccess) result = cudaStreamWaitEvent(then, event);
  (void)cudaEventDestroy(event);  // once it has happened
  check(result, "waiting for another stream");
}

void Context::record_use(const Buffer& bytes) {
  auto* const owner = static_cast<cudaStream_t>((bytes.whole() ? *bytes.whole() : bytes).context());
  {
    const std::lock_guard lock(mutex_);
    // Memory of a Graph's arena, or of another library, is given back in no stream's order.
    if (std::find(made_.begin(), made_.end(), owner) == made_.end()) return;
  }
  order(current(), owner);
}

void Context::synchronize() {
  choose();
  check_earlier(wait(), "synchronize");
  launches_.store(0, std::memory_order_relaxed);
  read_board();
}

void Context::launched(const char* what, cudaError_t result, cudaStream_t stream) {
  const size_t n = launches_.fetch_add(1, std::memory_order_relaxed);
  recent_[n % kRemembered].store(what, std::memory_order_relaxed);
  if (result != cudaSuccess) [[unlikely]]
    check_earlier(result, what);
  if (blocking.load(std::memory_order_relaxed) && !capturing()) [[unlikely]] {
    check(cudaStreamSynchronize(stream), what);
    launches_.store(0, std::memory_order_relaxed);
    read_board();
  }
}

/// The names of the launches that may still be running, the last one first.
std::string Context::recent_launches() const {
  const size_t n = launches_.load(std::memory_order_relaxed);
  std::string names;
  for (size_t i = n; i > 0 && n - i < kRemembered; --i) {
    const char* name = recent_[(i - 1) % kRemembered].load(std::memory_order_relaxed);
    if (name) names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

void Context::check_earlier(cudaError_t result, const char* what) const {
  if (result == cudaSuccess) [[likely]]
    return;
  const std::string names = breaks_device(result) ? recent_launches() : "";
  fail(result, what,
       names.empty() ? ""
                     : "; enqueued before, the last first: " + names +
                           " (HALFTAPE_CUDA_BLOCKING=1 tells which)");
}

void Context::read_board() {
  Board::Skips skips{};
  if (take(board_->skips, skips)) [[unlikely]]
    skips.report(skips.in_row, skips.scale, skips.bad_loss != 0);
  Board::BadIndex bad{};
  const bool taken = take(board_->bad_index, bad);
  if (taken) [[unlikely]] {
    const std::lock_guard lock(mutex_);
    bad_index_ = detail::str(bad.op, ": ", bad.argument, ' ', bad.value, " at position ",
                             bad.position, " is out of range [", bad.low, ", ", bad.limit, ')');
    bad_indices_.fetch_add(1, std::memory_order_release);
  }
  uint64_t& mine = told[static_cast<size_t>(index_)];
  const uint64_t all = bad_indices_.load(std::memory_order_acquire);
  if (mine == all) [[likely]]
    return;
  if (std::exchange(mine, all) == 0 && !taken) return;  // what was found before it came
  const std::lock_guard lock(mutex_);
  throw Error(bad_index_);  // without the name of the current op, which is not to blame
}

Queue queue(const Array& on) {
  Context& c = Context::of(on);
  c.choose();
  c.read_board();
  return {c, c.current()};
}

}  // namespace halftape::cuda
