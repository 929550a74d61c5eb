// The simulated device, for tests: what it shall do (Settings), what shall go wrong, what happened.
// The product knows nothing of this; it sees the CUDA runtime API.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "settings.h"
#include "tally.h"

namespace simt {

/// Forgets: work that has not run, errors (sticky ones as well), planned faults, counters, the log
/// and the reports. Memory, streams, events and graphs stay as they are, so that a backend that
/// holds some goes on.
void reset();

// ---------------------------------------------------------------- what shall go wrong
/// The `nth` allocation of device memory from now on (1: the next) fails; with `and_after`, so do
/// all that follow.
void fail_allocation(int nth, bool and_after = false);
/// The `nth` launch from now on does nothing but break the device: the next call that waits returns
/// `error`, and so does every call after it, until reset(). `error` as a real kernel leaves it.
void fail_launch(int nth, cudaError_t error = cudaErrorIllegalAddress);

// ---------------------------------------------------------------- what happened
struct Counters {
  std::int64_t launches = 0;  // of kernels, also those that a graph holds, each time it runs
  std::int64_t graph_launches = 0;
  std::int64_t host_to_device = 0, device_to_host = 0, device_to_device = 0, memsets = 0;  // calls
  std::int64_t synchronisations = 0;  // calls that wait: for a stream, an event, the device, a copy
  std::int64_t allocations = 0, frees = 0;  // of device memory
  std::int64_t pinned_allocations = 0;
  // Of cublasLt: products, questions for an algorithm, operations described.
  std::int64_t matmuls = 0, heuristics = 0, matmul_descriptors = 0;
};
Counters counters();
void reset_counters();

/// The kernels that ran since reset() or reset_counters(), by name, in this order.
std::vector<std::string> launched_kernels();
/// What this thread's launches are for from now on, for the tally.
void set_operands(Operands operands);
/// All that has run in this process; nothing resets it.
Tally tally();
/// The kernels, copies and so on of a graph, in the order of capture: a kernel by its name, others
/// as "memcpy", "memset", "host", "alloc", "free", "event".
std::vector<std::string> nodes(cudaGraph_t graph);

/// What the rig found wrong, one message each: with kernels, with memory, with calls.
std::vector<std::string> reports();
void clear_reports();

// ---------------------------------------------------------------- memory
std::size_t live_bytes();  // of device memory, asked for and not freed
std::size_t live_allocations();
bool is_device_memory(const void* address);
/// Looks for bytes written beside allocations and into freed ones; reports() has what it finds.
/// Done by itself at every synchronisation and when memory is freed.
void check_memory();

/// Work that waits in streams: with Mode::Deferred only.
std::size_t pending_work();

}  // namespace simt
