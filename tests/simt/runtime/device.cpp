#include "runtime/device.h"

#include <cstdio>

#include "runtime/program.h"
#include "runtime/runtime.h"

namespace simt {

void report(const std::string& what) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  w.reports.push_back(what);
  if (!settings.quiet) std::fprintf(stderr, "simt: %s\n", what.c_str());
}

void reset() {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  for (auto& [index, device] : w.devices)  // pending work is dropped, not run
    device.pending = device.surfaced = cudaErrorUnknown;
  w.drain(-1);
  for (auto& [index, device] : w.devices) {
    device.pending = device.surfaced = cudaSuccess;
    device.fault.clear();
  }
  w.failing_allocation = w.failing_launch = 0;
  w.allocations_fail = w.all_allocations_after = false;
  last_error = cudaSuccess;
  reset_counters();
  clear_reports();
}

cudaError_t enqueue_foreign(cudaStream_t stream, std::function<bool()> ready,
                            std::function<void()> run) {
  return call([&] { return enqueue(stream, {.run = std::move(run), .ready = std::move(ready)}); });
}
void copy_foreign(void* to, const void* from, std::size_t size) {
  const std::lock_guard lock(world().mutex);
  DeviceMemory::memory().copy(to, from, size);
}

void fail_allocation(int nth, bool and_after) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  w.failing_allocation = nth;
  w.all_allocations_after = and_after;
  w.allocations_fail = false;
}
void fail_launch(int nth, cudaError_t error) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  w.failing_launch = nth;
  w.launch_error = error;
}

Counters counters() {
  const std::lock_guard lock(world().mutex);
  return world().counters;
}
void reset_counters() {
  const std::lock_guard lock(world().mutex);
  world().counters = {};
  world().log.clear();
}
std::vector<std::string> launched_kernels() {
  const std::lock_guard lock(world().mutex);
  std::map<const void*, std::string> names;
  std::vector<std::string> all;
  for (const void* kernel : world().log) {
    std::string& name = names[kernel];
    if (name.empty()) name = function_name(kernel);
    all.push_back(name);
  }
  return all;
}
void set_operands(Operands operands) { current_operands = operands; }
Tally tally() {
  const std::lock_guard lock(world().mutex);
  Tally sum;
  for (const auto& [kernel, combinations] : world().launched) {
    const std::string name = function_name(kernel);
    for (const auto& [c, launches] : combinations) sum.add(name, c.first, c.second, launches);
  }
  return sum;
}
namespace {
std::string name_of(const Work& work) {
  switch (work.type) {
    case cudaGraphNodeTypeKernel:
      return function_name(work.function);
    case cudaGraphNodeTypeMemcpy:
      return "memcpy";
    case cudaGraphNodeTypeMemset:
      return "memset";
    case cudaGraphNodeTypeHost:
      return "host";
    case cudaGraphNodeTypeMemAlloc:
      return "alloc";
    case cudaGraphNodeTypeMemFree:
      return "free";
    default:
      return "other";
  }
}
}  // namespace

std::vector<std::string> nodes(cudaGraph_t graph) {
  const std::lock_guard lock(world().mutex);
  std::vector<std::string> names;
  if (!world().graphs.count(graph)) return names;
  for (const auto& node : graph->nodes) names.push_back(name_of(node->work));
  return names;
}
std::vector<std::string> latest_nodes() {
  const std::lock_guard lock(world().mutex);
  std::vector<std::string> names;
  if (const auto program = world().latest.lock())
    for (const CUgraphNode_st& node : program->nodes) names.push_back(name_of(node.work));
  return names;
}
std::vector<std::string> reports() {
  const std::lock_guard lock(world().mutex);
  return world().reports;
}
void clear_reports() {
  const std::lock_guard lock(world().mutex);
  world().reports.clear();
}
std::size_t live_bytes() {
  const std::lock_guard lock(world().mutex);
  return DeviceMemory::memory().live_bytes();
}
std::size_t live_allocations() {
  const std::lock_guard lock(world().mutex);
  return DeviceMemory::memory().live_allocations();
}
bool is_device_memory(const void* address) { return DeviceMemory::memory().contains(address); }
void check_memory() {
  const std::lock_guard lock(world().mutex);
  DeviceMemory::memory().check();
}
std::size_t pending_work() {
  const std::lock_guard lock(world().mutex);
  return world().pending();
}

}  // namespace simt
