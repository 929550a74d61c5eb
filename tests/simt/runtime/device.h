// The simulated device, for tests: its settings, planned faults, and what has happened. The library
// does not use this; it sees the CUDA runtime API.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "settings.h"
#include "tally.h"

namespace simt {

/// Drops pending work, errors (sticky ones as well), planned faults, counters, the log and the
/// reports. Memory, streams, events and graphs stay, so that a backend that holds some goes on.
void reset();

/// Puts the work of another library into a stream, or into the graph that the stream captures.
/// While `ready` says false, the stream stands still: calls that wait for it let other threads run,
/// and those that ask find it busy. Both are called under the rig's lock.
cudaError_t enqueue_foreign(cudaStream_t stream, std::function<bool()> ready,
                            std::function<void()> run);
/// memcpy() between any memory, the device's included, for such work.
void copy_foreign(void* to, const void* from, std::size_t size);

// ---------------------------------------------------------------- planned faults
/// The `nth` allocation of device memory from now on (1: the next) fails; with `and_after`, so do
/// all that follow.
void fail_allocation(int nth, bool and_after = false);
/// The `nth` launch from now on breaks the device and does nothing else: the next call that waits,
/// and every later one until reset(), returns `error`, one that a real kernel can cause.
void fail_launch(int nth, cudaError_t error = cudaErrorIllegalAddress);

// ---------------------------------------------------------------- what has happened
struct Counters {
  std::int64_t launches = 0;  // of kernels, including those of every replay of a graph
  std::int64_t graph_launches = 0;
  std::int64_t host_to_device = 0, device_to_host = 0, device_to_device = 0, memsets = 0;  // calls
  std::int64_t synchronisations = 0;  // calls that wait: for a stream, an event, the device, a copy
  std::int64_t allocations = 0, frees = 0;  // of device memory
  std::int64_t allocated_bytes = 0;         // by all of these
  std::int64_t pinned_allocations = 0;
  std::int64_t kernel_attributes = 0;  // settings of a kernel on a device
  unsigned contexts = 0;  // bits of the devices that were used: a context was made there, or needed
  // Calls of cublasLt: products, choices of an algorithm, operation descriptors.
  std::int64_t matmuls = 0, heuristics = 0, matmul_descriptors = 0;
};
Counters counters();
void reset_counters();

/// The kernels that ran since reset() or reset_counters(), by name, in this order.
std::vector<std::string> launched_kernels();
/// Sets the operands of this thread's next launches, for the tally.
void set_operands(Operands operands);
/// Everything that has run in this process; never reset.
Tally tally();
/// The kernels, copies and so on of a graph, in the order of capture: a kernel by its name, others
/// as "memcpy", "memset", "host", "alloc", "free", "event".
std::vector<std::string> nodes(cudaGraph_t graph);
/// Those of the graph that was instantiated last.
std::vector<std::string> latest_nodes();

/// The faults of kernels, memory and calls that the rig has found, one message each.
std::vector<std::string> reports();
void clear_reports();

// ---------------------------------------------------------------- memory
std::size_t live_bytes();  // of device memory, asked for and not freed
std::size_t live_allocations();
bool is_device_memory(const void* address);
/// Looks for writes beside allocations and into freed ones, and adds them to reports(). Called at
/// every synchronisation and when memory is freed.
void check_memory();

/// The number of pending pieces of work; 0 but with Mode::Deferred.
std::size_t pending_work();

}  // namespace simt
