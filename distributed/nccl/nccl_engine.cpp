#include "halftape/distributed/nccl/nccl_engine.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "halftape/core/capture/capture.h"
#include "halftape/core/check.h"
#include "halftape/core/start_thread.h"
#include "halftape/cuda/cuda.h"
#include "halftape/distributed/nccl/communicator.h"
#include "halftape/distributed/nccl/overdue.h"

namespace halftape::distributed {
namespace nccl {
namespace {

constexpr milliseconds kLook{100}, kLookAtTheEnd{1};

std::optional<ncclDataType_t> type_of(Dtype dtype) {
  switch (dtype) {
    case kInt8:
      return ncclInt8;
    case kUInt8:
      return ncclUint8;
    case kInt32:
      return ncclInt32;
    case kInt64:
      return ncclInt64;
    case kFloat16:
      return ncclFloat16;
    case kBFloat16:
      return ncclBfloat16;
    case kFloat32:
      return ncclFloat32;
    case kFloat64:
      return ncclFloat64;
    default:
      return std::nullopt;
  }
}

ncclRedOp_t op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return ncclSum;
    case ReduceOp::Avg:
      return ncclAvg;
    case ReduceOp::Product:
      return ncclProd;
    case ReduceOp::Min:
      return ncclMin;
    case ReduceOp::Max:
      return ncclMax;
  }
  halftape::detail::fail("ReduceOp ", static_cast<int>(op), " does not exist");
}

Device device_of(const EngineSetup& setup) {
  const std::string why_not = cuda::unavailable_reason();
  HALFTAPE_CHECK(why_not.empty(), "NCCL: there is no GPU to use: ", why_not,
                 "; use the backend \"gloo\"");
  HALFTAPE_CHECK(setup.local_rank >= 0, "NCCL: local rank ", setup.local_rank,
                 "; ranks are counted from 0");
  return {kCUDA, static_cast<DeviceIndex>(setup.local_rank % cuda::device_count())};
}

class NcclEngine final : public Engine {
 public:
  explicit NcclEngine(const EngineSetup& setup)
      : device_(device_of(setup)), comm_(setup, device_), under_way_(device_) {
    watchdog_ = halftape::detail::start_thread("NCCL: its watchdog", [this] { watch(); });
  }
  /// After the calls that are under way: each has its timeout.
  ~NcclEngine() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    watchdog_.join();
  }

  const char* name() const override { return "nccl"; }
  bool reaches(DeviceType device) const override { return device == DeviceType::CUDA; }
  Device device() const override { return device_; }
  bool queues() const override { return true; }
  void check() const override { comm_.check(); }
  void abort() noexcept override { comm_.fail("NCCL: the group was aborted"); }

  void exchange(std::span<const Message> sends, std::span<const Message> receives, uint64_t tag,
                milliseconds timeout) override {
    comm_.check();
    uint64_t bytes = 0;
    for (const Message& m : sends) bytes += m.size;
    for (const Message& m : receives) bytes += m.size;
    if (bytes == 0) return;
    void* const stream = cuda::current_stream(device_).handle();
    const Library& nccl = comm_.library();
    comm_.group(
        "an exchange",
        [&](ncclComm_t comm) {
          for (const Message& m : sends)
            if (const auto e = nccl.Send(m.bytes, m.size, ncclInt8, m.peer, comm, stream);
                failed(e))
              return e;
          for (const Message& m : receives)
            if (const auto e = nccl.Recv(m.bytes, m.size, ncclInt8, m.peer, comm, stream);
                failed(e))
              return e;
          return ncclSuccess;
        },
        timeout);
    look_after({"an exchange", tag >> 24, bytes, timeout});
  }

  bool all_reduce(void* elements, int64_t count, Dtype dtype, ReduceOp op, uint64_t tag,
                  milliseconds timeout) override {
    const std::optional<ncclDataType_t> type = type_of(dtype);
    if (!type) return false;
    comm_.check();
    if (count == 0) return true;
    void* const stream = cuda::current_stream(device_).handle();
    const auto n = static_cast<size_t>(count);
    comm_.group(
        "an all_reduce",
        [&](ncclComm_t comm) {
          return comm_.library().AllReduce(elements, elements, n, *type, op_of(op), comm, stream);
        },
        timeout);
    look_after({"an all_reduce", tag >> 24, n * element_size(dtype), timeout});
    return true;
  }

 private:
  static bool failed(ncclResult_t result) {
    return result != ncclSuccess && result != ncclInProgress;
  }

  /// A captured call runs at the replays, and its thread must not ask for events.
  void look_after(const CallsUnderWay::Call& call) {
    if (Capture::active()) return;
    const std::lock_guard lock(mutex_);
    under_way_.forget_ended();
    under_way_.add(call);
  }

  void watch() {
    std::unique_lock lock(mutex_);
    while (!closing_ || (!under_way_.empty() && !comm_.failed())) {
      changed_.wait_for(lock, closing_ ? kLookAtTheEnd : kLook);
      std::string why = trouble();
      if (why.empty()) continue;
      under_way_.clear();
      lock.unlock();
      comm_.fail(std::move(why));
      lock.lock();
    }
  }

  /// What is wrong, or empty.
  std::string trouble() {
    if (comm_.failed()) return "";
    try {
      under_way_.forget_ended();
    } catch (const std::exception& e) {
      return std::string("NCCL: the GPU has failed: ") + e.what();
    }
    std::string why = comm_.noticed();
    return why.empty() ? under_way_.overdue() : why;
  }

  const Device device_;
  Communicator comm_;
  std::mutex mutex_;  // of the members below
  std::condition_variable changed_;
  CallsUnderWay under_way_;
  bool closing_ = false;
  std::thread watchdog_;
};

}  // namespace
}  // namespace nccl

std::string nccl_unavailable_reason() {
  if (!cuda::is_available()) return cuda::unavailable_reason();
  try {
    (void)nccl::load();
  } catch (const Error& e) {
    return e.what_without_backtrace();
  }
  return "";
}

std::unique_ptr<Engine> open_nccl(const EngineSetup& setup) {
  return std::make_unique<nccl::NcclEngine>(setup);
}

}  // namespace halftape::distributed
