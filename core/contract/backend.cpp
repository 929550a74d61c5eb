#include "halftape/core/contract/backend.h"

#include <tuple>

#include "halftape/core/contract/unfused.h"
#include "halftape/core/formula/reduce.h"

namespace halftape {
namespace {
std::atomic<Backend*> replaced[kDeviceTypes];
// The guarded backend of this thread and its device; null: none.
thread_local constinit Backend* mine = nullptr;
thread_local constinit Device mine_of = kCPU;

template <class Task>
void run_alone(Backend& on, const Task& task) {
  if constexpr (std::is_same_v<Task, CrossEntropy>)
    on.cross_entropy(task);
  else if constexpr (std::is_same_v<Task, GradientCheck>)
    on.check(task);
  else if constexpr (std::is_same_v<Task, ListNorm>)
    on.list_norm(task);
  else if constexpr (std::is_same_v<Task, ListUpdate>)
    on.update(task.slots, task.rule, task.control);
  else if constexpr (std::is_same_v<Task, Transition>)
    on.transition(task);
  else
    unfused(on, task);
}
}  // namespace

Backend& backend(Device device) {
  if (mine) [[unlikely]] {
    if (mine_of == device) return *mine;
    HALFTAPE_CHECK(!mine_of.is_cuda() || !device.is_cuda(), "work on ", device,
                   " inside a step on ", mine_of,
                   " that is to become a Graph, which is of one GPU");
  }
  if (Backend* b = replaced[static_cast<size_t>(device.type())].load(std::memory_order_acquire))
    return *b;
  return device.is_cpu() ? cpu_backend() : cuda_backend(device);
}

BackendGuard::BackendGuard(Device device, Backend& backend) : before_(mine_of, mine) {
  mine_of = device;
  mine = &backend;
}
BackendGuard::~BackendGuard() { std::tie(mine_of, mine) = before_; }

void Backend::scatter_add(const Array& y, const Array& g, int dim, const Array& index,
                          IndexUse use) {
  scatter_reduce(ReduceOps::index<formula::Sum>(), y, g, dim, index, use);
}

void Backend::check_finite(std::span<const Array> xs, const Array& found_inf,
                           const Array& inv_scale, const Array& first) {
  check({xs, inv_scale, found_inf, first, false});
}
void Backend::unscale(std::span<const Array> grads, const Array& inv_scale, const Array& found_inf,
                      const Array& first) {
  check({grads, inv_scale, found_inf, first, true});
}

void* current_queue(Device device) {
  if (device.is_cpu()) return nullptr;
  Queues* const queues = backend(device).queues();
  return queues ? queues->current() : nullptr;
}

void Backend::run_calls(std::span<const Call> calls) {
  if (try_fused(calls)) return;
  if (calls.size() == 1) return std::visit([&](auto* task) { run_alone(*this, *task); }, calls[0]);
  for (const Call& call : calls) run_calls({&call, 1});
}

Backend* swap_backend(DeviceType type, Backend* b) {
  return replaced[static_cast<size_t>(type)].exchange(b, std::memory_order_acq_rel);
}

}  // namespace halftape
