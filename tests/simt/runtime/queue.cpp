#include "runtime/queue.h"

#include <algorithm>
#include <random>

#include "runtime/memory.h"

namespace simt {

World& world() {
  static auto* one = new World;  // never destroyed: streams may be destroyed by statics
  return *one;
}

std::shared_ptr<Queue> World::new_queue(int device) {
  auto queue = std::make_shared<Queue>(device);
  std::erase_if(queues, [](const auto& q) { return q.expired(); });
  queues.push_back(queue);
  return queue;
}

CUstream_st* World::default_stream(int device) {
  CUstream_st*& stream = legacy[device];
  if (!stream) {
    stream = new CUstream_st{
        .device = device, .flags = 0, .priority = 0, .id = next_id++, .queue = new_queue(device)};
    streams.insert(stream);
  }
  return stream;
}

void World::drain(int device) {
  for (std::size_t i = 0; i < queues.size(); ++i)  // work may make queues
    if (const auto queue = queues[i].lock(); queue && (device < 0 || queue->device == device))
      queue->run_all();
}

std::size_t World::pending() const {
  std::size_t count = 0;
  for (const auto& weak : queues)
    if (const auto queue = weak.lock()) count += queue->entries.size();
  return count;
}

bool works(int device) {
  const Device& d = world().devices[device];
  return d.pending == cudaSuccess && d.surfaced == cudaSuccess;
}

void Queue::run_until(std::uint64_t count, bool may_wait) {
  // Where this thread steps aside, another one may carry on here: an entry leaves its place only
  // when nothing more can keep it.
  while (finished < count && !entries.empty()) {
    const auto reached = [](const Point& point) { return point.queue->done(point.count); };
    const auto& after = entries.front().after;
    if (const auto it = std::find_if_not(after.begin(), after.end(), reached); it != after.end()) {
      const Point point = *it;
      point.queue->run_until(point.count, may_wait);
      if (!reached(point) && !may_wait) return;
      continue;
    }
    if (const Work& first = entries.front().work; first.ready && works(device) && !first.ready()) {
      if (!may_wait) return;
      world().mutex.step_aside();
      continue;
    }
    const Entry entry = std::move(entries.front());
    entries.pop_front();
    // A broken device does no more work; that memory was freed is book-keeping.
    if (entry.work.run && (works(device) || entry.work.type == cudaGraphNodeTypeMemFree))
      entry.work.run();
    ++finished;
  }
}

CUstream_st* find(cudaStream_t stream) {
  World& w = world();
  if (!stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
    int device = 0;
    cudaGetDevice(&device);
    return w.default_stream(device);
  }
  return w.streams.count(stream) ? stream : nullptr;
}

namespace {

bool is_legacy(const CUstream_st* s) { return world().legacy[s->device] == s; }
bool follows_legacy(const CUstream_st* s) { return !(s->flags & cudaStreamNonBlocking); }

/// What else must be done before new work in this stream: the default stream and all that were not
/// made with cudaStreamNonBlocking wait for each other.
void wait_for_legacy(CUstream_st* s) {
  World& w = world();
  if (is_legacy(s)) {
    for (const CUstream_st* other : w.streams)
      if (other != s && other->device == s->device && follows_legacy(other) &&
          !other->queue->done(other->queue->enqueued))
        s->queue->waits.push_back({other->queue, other->queue->enqueued});
  } else if (follows_legacy(s)) {
    const auto& queue = w.default_stream(s->device)->queue;
    if (!queue->done(queue->enqueued)) s->queue->waits.push_back({queue, queue->enqueued});
  }
}

void capture(CUstream_st* s, Work work) {
  auto& nodes = s->capture->graph->nodes;
  nodes.push_back(std::make_unique<CUgraphNode_st>(
      CUgraphNode_st{.work = std::move(work), .after = s->frontier}));
  s->frontier = {nodes.size() - 1};
}

}  // namespace

cudaError_t enqueue(cudaStream_t handle, Work work) {
  CUstream_st* s = find(handle);
  if (!s) {
    report("work was put into a stream that was destroyed");
    return cudaErrorInvalidResourceHandle;
  }
  if (s->capture) {
    if (s->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    capture(s, std::move(work));
    return cudaSuccess;
  }
  if (is_legacy(s)) {
    // It would have to wait for the streams that capture.
    for (const CUstream_st* other : world().streams)
      if (other->capture && follows_legacy(other)) {
        other->capture->invalid = true;
        return cudaErrorStreamCaptureImplicit;
      }
  }
  wait_for_legacy(s);
  Queue& queue = *s->queue;
  queue.entries.push_back({std::move(work), std::exchange(queue.waits, {})});
  ++queue.enqueued;
  const auto keep = s->queue;
  if (settings.mode == Mode::Immediate) queue.run_all();
  return cudaSuccess;
}

void break_device(int device, cudaError_t error, const std::string& what) {
  Device& d = world().devices[device];
  if (d.pending == cudaSuccess) d.pending = error, d.fault = what;
  if (!what.empty()) report(what);
}

cudaError_t finish(int device) {
  World& w = world();
  Device& d = w.devices[device];
  if (d.pending != cudaSuccess) d.surfaced = d.pending;
  if (d.surfaced != cudaSuccess) return d.surfaced;
  DeviceMemory::memory().check();
  for (CUmemPoolHandle_st* pool : w.pools)  // what exceeds the threshold goes back to the device
    if (pool->device == device)
      pool->reserved = std::max<std::uint64_t>(pool->used + pool->unfinished_frees,
                                               std::min(pool->reserved, pool->threshold));
  return cudaSuccess;
}

GraphRun::GraphRun(std::shared_ptr<const CUgraphExec_st::Program> program, int device)
    : program_(std::move(program)),
      device_(device),
      missing_(program_->nodes.size(), 0),
      next_(program_->nodes.size()),
      random_(settings.seed) {
  for (std::size_t i = 0; i < program_->nodes.size(); ++i) {
    missing_[i] = program_->nodes[i].after.size();
    for (const std::size_t before : program_->nodes[i].after) next_[before].push_back(i);
    if (!missing_[i]) ready_.insert(i);
  }
}

/// Any order that the edges allow is right: the one of the capture, or its opposite.
std::size_t GraphRun::take() {
  auto it = ready_.begin();
  if (settings.order == Order::Reverse) it = std::prev(ready_.end());
  if (settings.order == Order::Random) std::advance(it, random_() % ready_.size());
  const std::size_t i = *it;
  ready_.erase(it);
  return i;
}

bool GraphRun::advance() {
  ready_.merge(waiting_);
  while (!ready_.empty()) {
    const std::size_t i = take();
    const Work& work = program_->nodes[i].work;
    if (work.ready && works(device_) && !work.ready()) {
      waiting_.insert(i);
      continue;
    }
    if (work.run && works(device_)) work.run();
    for (const std::size_t n : next_[i])
      if (--missing_[n] == 0) ready_.insert(n);
  }
  return waiting_.empty();
}

}  // namespace simt
