// Streams, events and graphs, which order the work of the simulated devices. There are no threads:
// work runs inside the call that enqueues it or that waits for it (Settings::mode).
#pragma once
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/device.h"

namespace simt {

/// One piece of work: a kernel, a copy, ...
struct Work {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  std::function<void()> run;
  const void* function = nullptr;  // of a kernel
  cudaKernelNodeParams launch{};   // of a kernel
  /// Whether it can be done now; while it cannot, its stream stands still. Empty: at any time.
  std::function<bool()> ready = {};
};

/// The work of one stream, first in, first out.
struct Queue {
  struct Point {  // in a queue: all work before it
    std::shared_ptr<Queue> queue;
    std::uint64_t count;
  };
  struct Entry {
    Work work;
    std::vector<Point> after;  // of other queues
  };
  explicit Queue(int of_device) : device(of_device) {}
  /// Up to the first work that is not ready, or, with may_wait, through all that there is: other
  /// threads run meanwhile.
  void run_until(std::uint64_t count, bool may_wait = true);
  void run_all() { run_until(enqueued); }
  bool done(std::uint64_t count) const { return finished >= count; }

  int device;
  std::uint64_t enqueued = 0, finished = 0;
  std::deque<Entry> entries;
  std::vector<Point> waits;  // for the next entry
};

/// A running capture, whose streams put their work into a graph.
struct Capture {
  unsigned long long id;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  CUstream_st* origin;
  CUgraph_st* graph;
  bool invalid = false;
};

struct Device {
  cudaError_t pending = cudaSuccess;   // has broken the device; no call has returned it yet
  cudaError_t surfaced = cudaSuccess;  // every call returns it
  std::string fault;                   // the rig's message about it
  std::size_t plain_bytes = 0;         // taken by cudaMalloc
};

}  // namespace simt

struct CUstream_st {
  int device;
  unsigned flags;
  int priority;
  unsigned long long id;
  std::shared_ptr<simt::Queue> queue;
  std::shared_ptr<simt::Capture> capture = nullptr;
  std::vector<std::size_t> frontier = {};  // nodes of the graph that its next node comes after
};

struct CUevent_st {
  int device;
  unsigned flags;
  simt::Queue::Point point{nullptr, 0};  // where it was recorded last
  std::shared_ptr<std::chrono::steady_clock::time_point> time = nullptr;
  std::shared_ptr<simt::Capture> capture = nullptr;  // in which it was recorded last
  std::vector<std::size_t> frontier = {};
};

struct CUgraphNode_st {
  simt::Work work;
  std::vector<std::size_t> after;  // earlier nodes of the graph
};

struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
  std::vector<std::shared_ptr<void>> memory;  // allocated in the capture
};

struct CUgraphExec_st {
  struct Program {
    std::vector<CUgraphNode_st> nodes;
    std::vector<std::shared_ptr<void>> memory;
    bool waits = false;  // some of its work may not be ready
  };
  std::shared_ptr<const Program> program;  // launches on their way keep it
};

struct CUmemPoolHandle_st {
  int device;
  std::uint64_t threshold = 0;  // kept at a synchronisation
  std::uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
  std::uint64_t unfinished_frees = 0;  // bytes whose free no stream has got to yet
  std::map<cudaMemPoolAttr, int> switches = {};
};

namespace simt {

/// One launch of a graph.
class GraphRun {
 public:
  GraphRun(std::shared_ptr<const CUgraphExec_st::Program> program, int device);
  /// Carries out what is ready; true once that was all.
  bool advance();

 private:
  std::size_t take();
  std::shared_ptr<const CUgraphExec_st::Program> program_;
  int device_;
  std::vector<std::size_t> missing_;  // of each node: those that come before it
  std::vector<std::vector<std::size_t>> next_;
  std::set<std::size_t> ready_, waiting_;
  std::mt19937 random_;
};

/// A recursive mutex that its holder can leave for a moment.
class WorldMutex {
 public:
  void lock() {
    mutex_.lock();
    ++depth_;
  }
  void unlock() {
    --depth_;
    mutex_.unlock();
  }
  void step_aside() {
    const int depth = std::exchange(depth_, 0);
    for (int i = 0; i < depth; ++i) mutex_.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    for (int i = 0; i < depth; ++i) mutex_.lock();
    depth_ = depth;
  }

 private:
  std::recursive_mutex mutex_;
  int depth_ = 0;  // times that the holder has locked it
};

/// The state of all devices. Calls hold the mutex; kernels run inside them.
struct World {
  WorldMutex mutex;
  std::map<int, Device> devices;
  std::map<int, CUstream_st*> legacy;  // the default stream of each device
  std::map<int, CUmemPoolHandle_st*> default_pools, current_pools;
  std::set<CUstream_st*> streams;  // and the default ones
  std::set<CUevent_st*> events;
  std::set<CUgraph_st*> graphs;
  std::set<CUgraphExec_st*> executables;
  std::weak_ptr<const CUgraphExec_st::Program> latest;  // that was instantiated last
  std::set<CUmemPoolHandle_st*> pools;
  std::vector<std::weak_ptr<Capture>> captures;
  std::map<const char*, std::size_t> pinned;        // address -> bytes
  std::map<const char*, std::size_t> freed_pinned;  // given back when nothing is on its way
  std::map<std::pair<int, const void*>, int> dynamic_shared_limit;  // of a kernel on a device
  std::vector<std::weak_ptr<Queue>> queues;  // also of destroyed streams with work left
  unsigned long long next_id = 1;
  bool in_host_function = false;

  Counters counters;
  std::vector<const void*> log;
  // Of each kernel, over the life of the process.
  std::unordered_map<const void*, std::map<std::pair<Order, Operands>, std::int64_t>> launched;
  std::vector<std::string> reports;
  int failing_allocation = 0, failing_launch = 0;  // countdowns
  bool all_allocations_after = false, allocations_fail = false;
  cudaError_t launch_error = cudaSuccess;

  std::shared_ptr<Queue> new_queue(int device);
  CUstream_st* default_stream(int device);
  void drain(int device);  // every queue of it; -1: of all
  std::size_t pending() const;
};
World& world();

/// Puts work into the stream, or into the graph that the stream captures.
cudaError_t enqueue(cudaStream_t stream, Work work);
/// The stream behind a handle, the default ones included; null for one that was destroyed.
CUstream_st* find(cudaStream_t stream);
/// Breaks the device; the next call that waits returns the error.
void break_device(int device, cudaError_t error, const std::string& what);
bool works(int device);
/// Called after a wait: returns the error if the work broke the device; checks the memory.
cudaError_t finish(int device);

}  // namespace simt
