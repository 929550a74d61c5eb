#include "fake_nccl.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "fake_sum.h"
#include "halftape/distributed/nccl/nccl_library.h"

using namespace halftape::distributed::nccl;  // NCCL's types

namespace {

constexpr size_t kElementSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

/// What all ranks of a communicator share.
struct Clique {
  int size = 0;
  std::set<int> came, finalized;
  std::map<std::tuple<int, int, uint64_t>, std::vector<char>> letters;  // from, to, number
  std::set<std::tuple<int, int, uint64_t>> awaited;                     // receives that are posted
  std::map<uint64_t, std::map<int, std::vector<char>>> sums;            // number, rank
};

struct Call {
  enum Kind { Send, Receive, Reduce } kind;
  const void* from;
  void* to;
  size_t size;  // in bytes
  int peer, type, op;
};

}  // namespace

struct halftape::distributed::nccl::ncclComm {
  int rank = 0;
  std::shared_ptr<Clique> clique;
  bool alive = true;
  int busy = 0;  // times that it says so
  enum { Ready, Meeting, Launching, Stalled, Finalizing } state = Ready;
  std::vector<Call> group;  // to be launched
  void* stream = nullptr;
  std::map<int, uint64_t> sent, received;  // numbers of messages by peer
  uint64_t reduced = 0;
  std::atomic<int> inside{0};
  ncclComm** place = nullptr;  // the caller's, which is written again when the ranks have met
};

namespace {

struct ThreadGroup {
  int depth = 0;
  ncclComm* comm = nullptr;
  std::vector<Call> calls;
  void* stream = nullptr;
  ncclResult_t error = ncclSuccess;
};
thread_local ThreadGroup group;

/// Those of the calls of a launched group, in one run of it.
using Numbers = std::vector<uint64_t>;

class Fake final : public FakeNccl {
 public:
  void reset(FakeDevice device) override {
    const std::lock_guard lock(mutex);
    rig = std::move(device);
    version = 22809;
    plans.clear(), logs.clear(), wrong.clear(), async.clear(), stalled.clear(), groups.clear();
    cliques.clear();
    hangs = stuck = false;
  }
  void set_version(int code) override { version = code; }
  void fail(const std::string& call, int nth, int result) override {
    const std::lock_guard lock(mutex);
    plans[call] = {nth, static_cast<ncclResult_t>(result)};
  }
  void stall(int rank, int nth) override {
    const std::lock_guard lock(mutex);
    stalled[rank] = groups[rank] + nth;
  }
  void async_error(int rank, int result) override {
    const std::lock_guard lock(mutex);
    async[rank] = static_cast<ncclResult_t>(result);
  }
  void hang() override { hangs = true; }
  void stick() override { stuck = true; }
  void release() override { stuck = false; }
  std::vector<std::string> log(int rank) override {
    const std::lock_guard lock(mutex);
    return logs[rank];
  }
  std::vector<std::string> violations() override {
    const std::lock_guard lock(mutex);
    std::vector<std::string> all = wrong;
    if (open_groups != 0) all.push_back(std::to_string(open_groups) + " groups are open");
    return all;
  }
  int alive() override {
    const std::lock_guard lock(mutex);
    return static_cast<int>(
        std::count_if(comms.begin(), comms.end(), [](const auto& c) { return c->alive; }));
  }

  /// Notes the call; the planned failure, or success.
  ncclResult_t enter(int rank, const std::string& call, const std::string& more = "") {
    const std::lock_guard lock(mutex);
    if (rank >= 0) logs[rank].push_back(call + more);
    const auto plan = plans.find(call);
    if (plan == plans.end() || --plan->second.first != 0) return ncclSuccess;
    return plan->second.second;
  }
  void violation(const std::string& what) {
    const std::lock_guard lock(mutex);
    wrong.push_back(what);
  }
  /// False, with a note, for a communicator that must not be used now.
  bool usable(ncclComm* comm, const char* call, bool also_busy = false) {
    const std::lock_guard lock(mutex);
    if (!comm || !comm->alive) {
      wrong.push_back(std::string(call) + " of a communicator that is gone");
      return false;
    }
    if (comm->state != ncclComm::Ready && !also_busy) {
      wrong.push_back(std::string(call) + " of a communicator that is busy");
      return false;
    }
    return true;
  }

  ncclResult_t begin(ncclComm** comm, int size, const ncclUniqueId& id, int rank,
                     const ncclConfig_t& config);
  ncclResult_t close_group();
  ncclResult_t ask(ncclComm* comm, ncclResult_t* error);
  ncclResult_t end(ncclComm* comm, bool abort);
  void finalize(ncclComm* comm) {
    const std::lock_guard lock(mutex);
    comm->state = ncclComm::Finalizing;
    comm->busy = 2;
    comm->clique->finalized.insert(comm->rank);
  }

  std::mutex mutex;
  std::atomic<int> version{22809};
  std::atomic<bool> stuck{false};
  std::atomic<int> open_groups{0};
  int next_id = 1;

 private:
  void launch(ncclComm* comm);
  void post(ncclComm* comm, const std::vector<Call>& calls, Numbers& numbers);
  bool ready(ncclComm* comm, const std::vector<Call>& calls, const Numbers& numbers);
  void take(ncclComm* comm, const std::vector<Call>& calls, const Numbers& numbers);

  FakeDevice rig;
  std::map<std::string, std::pair<int, ncclResult_t>> plans;
  std::map<int, std::vector<std::string>> logs;
  std::vector<std::string> wrong;
  std::map<int, ncclResult_t> async;
  std::map<int, int> stalled, groups;
  std::map<std::string, std::shared_ptr<Clique>> cliques;
  std::vector<std::unique_ptr<ncclComm>> comms;  // never freed: a late use shows
  std::atomic<bool> hangs{false};
};

Fake& fake() {
  static auto* one = new Fake;
  return *one;
}

/// Notes two threads inside one communicator.
class Inside {
 public:
  Inside(ncclComm* comm, const char* call) : comm_(comm) {
    if (comm_ && comm_->inside++ > 0) fake().violation(std::string(call) + " beside another call");
  }
  ~Inside() {
    if (comm_) --comm_->inside;
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  ncclComm* comm_;
};

ncclResult_t Fake::begin(ncclComm** comm, int size, const ncclUniqueId& id, int rank,
                         const ncclConfig_t& config) {
  const std::lock_guard lock(mutex);
  if (config.magic != 0xcafebeef || config.size < 20 || config.blocking != 0)
    return ncclInvalidArgument;
  auto& clique = cliques[std::string(id.internal, sizeof id.internal)];
  if (!clique) clique = std::make_shared<Clique>();
  clique->size = size;
  if (!clique->came.insert(rank).second) return ncclInvalidUsage;
  auto made = std::make_unique<ncclComm>();
  made->rank = rank;
  made->clique = clique;
  made->place = comm;
  made->state = ncclComm::Meeting;
  *comm = made.get();
  comms.push_back(std::move(made));
  return ncclInProgress;
}

ncclResult_t Fake::close_group() {
  ThreadGroup all = std::exchange(group, {});
  if (all.error != ncclSuccess) return all.error;
  if (!all.comm) return ncclSuccess;
  const std::lock_guard lock(mutex);
  ncclComm* const comm = all.comm;
  const auto plan = stalled.find(comm->rank);
  const bool stalls = plan != stalled.end() && ++groups[comm->rank] >= plan->second;
  comm->state = stalls ? ncclComm::Stalled : ncclComm::Launching;
  comm->busy = 3;
  comm->group = std::move(all.calls);
  comm->stream = all.stream;
  return ncclInProgress;
}

ncclResult_t Fake::ask(ncclComm* comm, ncclResult_t* error) {
  std::unique_lock lock(mutex);
  const auto planned = async.find(comm->rank);
  if (planned != async.end()) return *error = planned->second, ncclSuccess;
  *error = ncclInProgress;
  switch (comm->state) {
    case ncclComm::Meeting:
      if (static_cast<int>(comm->clique->came.size()) < comm->clique->size) return ncclSuccess;
      *comm->place = comm;
      break;
    case ncclComm::Launching:
      if (--comm->busy > 0) return ncclSuccess;
      lock.unlock();  // the rig has a lock of its own
      launch(comm);
      lock.lock();
      break;
    case ncclComm::Stalled:
      return ncclSuccess;
    case ncclComm::Finalizing:  // collective
      if (--comm->busy > 0 || static_cast<int>(comm->clique->finalized.size()) < comm->clique->size)
        return ncclSuccess;
      break;
    case ncclComm::Ready:
      break;
  }
  comm->state = ncclComm::Ready;
  *error = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t Fake::end(ncclComm* comm, bool abort) {
  while (stuck) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::lock_guard lock(mutex);
  comm->alive = false;
  if (comm->state == ncclComm::Meeting) *comm->place = comm;
  if (!abort && comm->clique->finalized.count(comm->rank) == 0)
    wrong.push_back("ncclCommDestroy without ncclCommFinalize");
  return ncclSuccess;
}

/// Two pieces of work: what this rank gives, and what it waits for.
void Fake::launch(ncclComm* comm) {
  const auto calls = std::make_shared<const std::vector<Call>>(std::exchange(comm->group, {}));
  const auto numbers = std::make_shared<Numbers>();
  rig.enqueue(comm->stream, {}, [=, this] { post(comm, *calls, *numbers); });
  rig.enqueue(
      comm->stream, [=, this] { return ready(comm, *calls, *numbers); },
      [=, this] { take(comm, *calls, *numbers); });
}

void Fake::post(ncclComm* comm, const std::vector<Call>& calls, Numbers& numbers) {
  const std::lock_guard lock(mutex);
  numbers.clear();
  Clique& all = *comm->clique;
  for (const Call& call : calls) {
    std::vector<char> bytes(call.size);
    if (call.kind != Call::Receive) rig.copy(bytes.data(), call.from, call.size);
    if (call.kind == Call::Send) {
      numbers.push_back(comm->sent[call.peer]++);
      all.letters[{comm->rank, call.peer, numbers.back()}] = std::move(bytes);
    } else if (call.kind == Call::Receive) {
      numbers.push_back(comm->received[call.peer]++);
      all.awaited.insert({call.peer, comm->rank, numbers.back()});
    } else {
      numbers.push_back(comm->reduced++);
      all.sums[numbers.back()][comm->rank] = std::move(bytes);
    }
  }
}

bool Fake::ready(ncclComm* comm, const std::vector<Call>& calls, const Numbers& numbers) {
  const std::lock_guard lock(mutex);
  if (!comm->alive) return true;
  if (hangs) return false;
  const Clique& all = *comm->clique;
  for (size_t i = 0; i < calls.size(); ++i) {
    const Call& call = calls[i];
    const uint64_t n = numbers[i];
    if (call.kind == Call::Send && all.awaited.count({comm->rank, call.peer, n}) == 0) return false;
    if (call.kind == Call::Receive && all.letters.count({call.peer, comm->rank, n}) == 0)
      return false;
    if (call.kind == Call::Reduce && static_cast<int>(all.sums.at(n).size()) < comm->clique->size)
      return false;
  }
  return true;
}

void Fake::take(ncclComm* comm, const std::vector<Call>& calls, const Numbers& numbers) {
  const std::lock_guard lock(mutex);
  if (!comm->alive) return;  // aborted
  for (size_t i = 0; i < calls.size(); ++i) {
    const Call& call = calls[i];
    if (call.kind == Call::Send) continue;
    const std::vector<char> bytes =
        call.kind == Call::Receive
            ? comm->clique->letters.at({call.peer, comm->rank, numbers[i]})
            : fake_sum(comm->clique->sums.at(numbers[i]), call.size, call.type, call.op);
    if (bytes.size() == call.size)
      rig.copy(call.to, bytes.data(), call.size);
    else
      wrong.push_back("a message of another size than its receiver expects");
  }
}

ncclResult_t add(ncclComm* comm, void* stream, Call call, const char* name,
                 const std::string& more) {
  if (!fake().usable(comm, name)) return group.error = ncclInvalidUsage;
  const Inside inside(comm, name);
  if (const ncclResult_t planned = fake().enter(comm->rank, name, more)) {
    if (group.depth > 0) group.error = planned;
    return planned;
  }
  if (group.comm && (group.comm != comm || group.stream != stream))
    fake().violation("a group of two communicators or streams");
  group.comm = comm;
  group.stream = stream;
  group.calls.push_back(call);
  if (group.depth > 0) return ncclSuccess;
  fake().violation(std::string(name) + " outside of a group");
  return ncclInvalidUsage;
}

}  // namespace

extern "C" {

FakeNccl* fake_nccl() { return &fake(); }

ncclResult_t ncclGetVersion(int* version) {
  *version = fake().version;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (const ncclResult_t planned = fake().enter(0, "ncclGetUniqueId")) return planned;
  const std::lock_guard lock(fake().mutex);
  std::memset(id->internal, 0, sizeof id->internal);
  std::memcpy(id->internal + 1, &fake().next_id, sizeof(int));  // after a zero, as real ones may be
  ++fake().next_id;
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm** comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  *comm = nullptr;
  if (const ncclResult_t planned = fake().enter(rank, "ncclCommInitRankConfig")) return planned;
  return fake().begin(comm, size, id, rank, *config);
}
ncclResult_t ncclCommFinalize(ncclComm* comm) {
  if (!fake().usable(comm, "ncclCommFinalize")) return ncclInvalidUsage;
  const Inside inside(comm, "ncclCommFinalize");
  if (const ncclResult_t planned = fake().enter(comm->rank, "ncclCommFinalize")) return planned;
  fake().finalize(comm);
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm* comm) {
  if (!fake().usable(comm, "ncclCommDestroy")) return ncclInvalidUsage;
  const Inside inside(comm, "ncclCommDestroy");
  (void)fake().enter(comm->rank, "ncclCommDestroy");
  return fake().end(comm, false);
}
ncclResult_t ncclCommAbort(ncclComm* comm) {
  if (!fake().usable(comm, "ncclCommAbort", true)) return ncclInvalidUsage;
  (void)fake().enter(comm->rank, "ncclCommAbort");
  return fake().end(comm, true);
}
ncclResult_t ncclCommGetAsyncError(ncclComm* comm, ncclResult_t* error) {
  if (!fake().usable(comm, "ncclCommGetAsyncError", true)) return ncclInvalidUsage;
  const Inside inside(comm, "ncclCommGetAsyncError");
  return fake().ask(comm, error);
}
const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* texts[] = {"no error",
                                   "unhandled cuda error",
                                   "unhandled system error",
                                   "internal error",
                                   "invalid argument",
                                   "invalid usage",
                                   "remote process exited or there was a network error",
                                   "NCCL operation in progress"};
  return texts[result];
}
const char* ncclGetLastError(ncclComm*) { return "the fake's last words"; }
ncclResult_t ncclGroupStart() {
  const ncclResult_t planned = fake().enter(-1, "ncclGroupStart");
  if (planned != ncclSuccess) return planned;
  if (group.depth++ == 0) group.error = ncclSuccess;
  ++fake().open_groups;
  return planned;
}
ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) {
    fake().violation("ncclGroupEnd without ncclGroupStart");
    return ncclInvalidUsage;
  }
  const ncclResult_t planned = fake().enter(-1, "ncclGroupEnd");
  --fake().open_groups;
  if (--group.depth > 0) return ncclSuccess;
  if (planned != ncclSuccess) group.error = planned;
  const Inside inside(group.comm, "ncclGroupEnd");
  return fake().close_group();
}
ncclResult_t ncclSend(const void* bytes, size_t count, ncclDataType_t type, int peer,
                      ncclComm* comm, void* stream) {
  const size_t size = count * kElementSizes[type];
  return add(comm, stream, {Call::Send, bytes, nullptr, size, peer, type, 0}, "ncclSend",
             " " + std::to_string(size) + " to " + std::to_string(peer));
}
ncclResult_t ncclRecv(void* bytes, size_t count, ncclDataType_t type, int peer, ncclComm* comm,
                      void* stream) {
  const size_t size = count * kElementSizes[type];
  return add(comm, stream, {Call::Receive, nullptr, bytes, size, peer, type, 0}, "ncclRecv",
             " " + std::to_string(size) + " from " + std::to_string(peer));
}
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm* comm, void* stream) {
  const size_t size = count * kElementSizes[type];
  return add(comm, stream, {Call::Reduce, from, to, size, -1, type, op}, "ncclAllReduce",
             " " + std::to_string(size) + " of " + std::to_string(type));
}

}  // extern "C"
