#include "halftape/distributed/nccl/communicator.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <sstream>
#include <thread>
#include <utility>

#include "halftape/core/check.h"
#include "halftape/core/start_thread.h"
#include "halftape/cuda/cuda.h"

namespace halftape::distributed::nccl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr milliseconds kToEnd{5000};      // for NCCL's own clean-up, at most
constexpr milliseconds kToComeOut{2000};  // for a thread that is inside NCCL
constexpr const char* kId = "nccl id";

/// Calls `f` on a thread that is left to itself if it takes longer: a clean-up that is stuck in the
/// driver must not hold the program.
void call_within(milliseconds limit, std::function<void()> f) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable ends;
    bool ended = false;
  };
  const auto shared = std::make_shared<Shared>();
  detail::start_thread("NCCL: the thread that ends it", [shared, f = std::move(f)] {
    f();
    const std::lock_guard lock(shared->mutex);
    shared->ended = true;
    shared->ends.notify_all();
  }).detach();
  std::unique_lock lock(shared->mutex);
  shared->ends.wait_for(lock, limit, [&] { return shared->ended; });
}

/// Where NCCL writes a communicator: at once, and again from a thread of its own when the ranks
/// have met. That may be after this process has given up, so the place stays for ever.
ncclComm_t* place_for_communicator() {
  static std::mutex mutex;
  static auto* all = new std::deque<ncclComm_t>;  // NOLINT: for ever
  const std::lock_guard lock(mutex);
  return &all->emplace_back(nullptr);
}

std::string place(const EngineSetup& setup, Device device) {
  return detail::str("rank ", setup.rank, " of ", setup.size, " on ", device);
}

}  // namespace

Communicator::Communicator(const EngineSetup& setup, Device device)
    : nccl_(load()),
      device_(device),
      me_(place(setup, device)),
      to_end_(std::min(setup.timeout, kToEnd)) {
  cuda::use_device(device_);  // NCCL takes the calling thread's current one
  meet(setup);
}

Communicator::~Communicator() {
  if (comm_ == nullptr) return;
  ncclResult_t result;
  {
    const std::lock_guard alone(inside_);
    result = nccl_.CommFinalize(comm_);
  }
  end(settled(result, to_end_) == ncclSuccess ? nccl_.CommDestroy : nccl_.CommAbort);
}

void Communicator::meet(const EngineSetup& setup) {
  ncclUniqueId id{};
  if (setup.rank == 0) {
    const ncclResult_t made = nccl_.GetUniqueId(&id);
    HALFTAPE_CHECK(made == ncclSuccess, "NCCL: ncclGetUniqueId: ", nccl_.text_of(made));
    setup.store->set(kId, {id.internal, sizeof id.internal});
  } else {
    const std::string came = setup.store->get(kId);
    HALFTAPE_CHECK(came.size() == sizeof id.internal, "NCCL: the store holds ", came.size(),
                   " bytes in place of the communicator's id, which has ", sizeof id.internal);
    std::memcpy(id.internal, came.data(), came.size());
  }
  ncclConfig_t config;
  ncclComm_t* const comm = place_for_communicator();
  ncclResult_t result = nccl_.CommInitRankConfig(comm, setup.size, id, setup.rank, &config);
  comm_ = *comm;
  result = settled(result, setup.timeout);
  if (result == ncclSuccess) return;
  std::ostringstream why;
  why << "NCCL: making the communicator of " << me_ << " (ncclCommInitRankConfig): ";
  if (result == ncclInProgress)
    why << "not all ranks came within " << setup.timeout.count() << " ms";
  else
    why << nccl_.text_of(result);
  if (result == ncclInvalidUsage) why << "; each rank needs a GPU of its own";
  why << " (NCCL_DEBUG=INFO in the environment tells more)";
  fail(why.str());
  check();
}

/// Waits while NCCL works on the last call; ncclInProgress if it still does after the timeout, or
/// at an abort.
ncclResult_t Communicator::settled(ncclResult_t result, milliseconds timeout) {
  const auto until = Clock::now() + timeout;
  for (int asked = 0; result == ncclInProgress && comm_ != nullptr; ++asked) {
    if (asked > 0 && Clock::now() > until) break;
    if (asked < 100)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    const std::lock_guard alone(inside_);
    if (failed_) break;
    if (const ncclResult_t told = nccl_.CommGetAsyncError(comm_, &result); told != ncclSuccess)
      result = told;
  }
  return result;
}

void Communicator::group(const char* what, const std::function<ncclResult_t(ncclComm_t)>& calls,
                         milliseconds timeout) {
  check();
  in_group_ = true;
  ncclResult_t result;
  {
    const std::lock_guard alone(inside_);
    if (failed_) {
      in_group_ = false;
      check();
    }
    result = nccl_.GroupStart();
    if (result == ncclSuccess) {
      const ncclResult_t first = calls(comm_);
      result = nccl_.GroupEnd();  // also after a failure, or all later calls would join the group
      if (first != ncclSuccess && first != ncclInProgress) result = first;
    }
  }
  result = settled(result, timeout);
  in_group_ = false;
  if (result == ncclSuccess) return check();
  std::ostringstream why;
  why << "NCCL: " << what << " of " << me_ << ": ";
  if (result == ncclInProgress)
    why << "its peers were not reached within " << timeout.count() << " ms";
  else
    why << nccl_.text_of(result);
  fail(why.str());
  check();
}

std::string Communicator::noticed() {
  const std::unique_lock alone(inside_, std::try_to_lock);
  if (!alone || in_group_ || failed_) return "";
  ncclResult_t error = ncclSuccess;
  if (const ncclResult_t told = nccl_.CommGetAsyncError(comm_, &error); told != ncclSuccess)
    error = told;
  if (error == ncclSuccess || error == ncclInProgress) return "";
  return "NCCL: " + me_ + " noticed: " + nccl_.text_of(error);
}

void Communicator::fail(std::string why) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (failed_) return;
    why_ = std::move(why);
    failed_ = true;
  }
  // A thread that does not come out waits in a launch, maybe, for a device that waits for a peer:
  // the abort frees it. (ThreadSanitizer does not know the call by which a std::timed_mutex waits.)
  std::unique_lock alone(inside_, std::try_to_lock);
  for (milliseconds waited{0}; !alone && waited < kToComeOut; ++waited) {
    std::this_thread::sleep_for(milliseconds(1));
    (void)alone.try_lock();
  }
  end(nccl_.CommAbort);
}

void Communicator::end(ncclResult_t (*by)(ncclComm_t)) noexcept {
  const ncclComm_t comm = comm_.exchange(nullptr);
  if (!comm) return;
  try {
    call_within(to_end_, [by, comm, device = device_] {
      try {
        cuda::use_device(device);  // NCCL gives the thread back the device that it had, else GPU 0
      } catch (const std::exception&) {  // it is broken
      }
      (void)by(comm);
    });
  } catch (const std::exception&) {  // there is no thread to be had
    (void)by(comm);
  }
}

void Communicator::check() const {
  if (!failed_) return;
  const std::lock_guard lock(mutex_);
  throw Error(why_);
}

}  // namespace halftape::distributed::nccl
