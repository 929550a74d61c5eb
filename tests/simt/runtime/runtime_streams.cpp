// The CUDA runtime API: streams and events.
#include <algorithm>

#include "runtime/runtime.h"

namespace simt {
namespace {

std::vector<std::shared_ptr<Capture>> captures() {
  std::vector<std::shared_ptr<Capture>> active;
  for (const auto& weak : world().captures)
    if (auto c = weak.lock()) active.push_back(std::move(c));
  return active;
}

}  // namespace

bool forbidden_by_capture() {
  bool forbidden = false;
  for (const auto& c : captures()) {
    const bool mine = c->thread == std::this_thread::get_id();
    const bool bites = c->mode == cudaStreamCaptureModeGlobal
                           ? thread_capture_mode == cudaStreamCaptureModeGlobal ||
                                 (mine && thread_capture_mode != cudaStreamCaptureModeRelaxed)
                           : c->mode == cudaStreamCaptureModeThreadLocal && mine &&
                                 thread_capture_mode != cudaStreamCaptureModeRelaxed;
    if (bites) c->invalid = forbidden = true;
  }
  return forbidden;
}

cudaError_t synchronise(CUstream_st* s) {
  if (s->capture) {
    s->capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  ++world().counters.synchronisations;
  if (s == world().default_stream(s->device)) (void)enqueue(s, {});  // waits for its followers
  s->queue->run_all();
  if (world().pending() == 0) release_freed_pinned();
  return finish(s->device);
}

cudaError_t synchronise_device(int device) {
  World& w = world();
  for (const auto& c : captures()) {
    if (c->origin->device != device) continue;
    c->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  ++w.counters.synchronisations;
  w.drain(device);
  if (w.pending() == 0) release_freed_pinned();
  return finish(device);
}

namespace {

cudaError_t create_stream(cudaStream_t* stream, unsigned flags, int priority) {
  World& w = world();
  if (!stream || flags & ~unsigned{cudaStreamNonBlocking}) return cudaErrorInvalidValue;
  *stream = new CUstream_st{.device = current_device,
                            .flags = flags,
                            .priority = std::clamp(priority, -5, 0),
                            .id = w.next_id++,
                            .queue = w.new_queue(current_device)};
  w.streams.insert(*stream);
  return cudaSuccess;
}

cudaError_t record(CUevent_st* event, cudaStream_t stream) {
  CUstream_st* s = find(stream);
  if (!s || !world().events.count(event)) return cudaErrorInvalidResourceHandle;
  if (s->device != event->device) return cudaErrorInvalidResourceHandle;
  if (s->capture) {
    if (s->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    event->capture = s->capture;
    event->frontier = s->frontier;
    return cudaSuccess;
  }
  event->capture = nullptr;
  event->time = std::make_shared<std::chrono::steady_clock::time_point>();
  const auto e =
      enqueue(stream, {.run = [time = event->time] { *time = std::chrono::steady_clock::now(); }});
  event->point = {s->queue, s->queue->enqueued};
  return e;
}

cudaError_t wait(cudaStream_t stream, CUevent_st* event) {
  CUstream_st* s = find(stream);
  if (!s || !world().events.count(event)) return cudaErrorInvalidResourceHandle;
  if (event->capture) {  // the stream joins it
    if (s->capture && s->capture != event->capture) {
      s->capture->invalid = event->capture->invalid = true;
      return cudaErrorStreamCaptureMerge;
    }
    s->capture = event->capture;
    for (const std::size_t node : event->frontier)
      if (std::find(s->frontier.begin(), s->frontier.end(), node) == s->frontier.end())
        s->frontier.push_back(node);
    return cudaSuccess;
  }
  if (s->capture) {  // on something outside
    s->capture->invalid = true;
    return cudaErrorStreamCaptureIsolation;
  }
  if (!event->point.queue || event->point.queue->done(event->point.count)) return cudaSuccess;
  s->queue->waits.push_back(event->point);
  return enqueue(stream, {});
}

/// Has a point been reached? If not, the device gets a little further, so that a loop around this
/// comes to its end.
cudaError_t ask(Queue& queue, std::uint64_t count) {
  if (queue.done(count)) return finish(queue.device);
  queue.run_until(queue.finished + 1, /*may_wait=*/false);
  return cudaErrorNotReady;
}

}  // namespace
}  // namespace simt

using simt::call;
using simt::current_device;
using simt::find;
using simt::world;

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return call([&] { return simt::create_stream(stream, cudaStreamDefault, 0); });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call([&] { return simt::create_stream(stream, flags, 0); });
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return call([&] { return simt::create_stream(stream, flags, priority); });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call([&] {
    if (!stream || find(stream) != stream) return cudaErrorInvalidResourceHandle;
    if (stream->capture) stream->capture->invalid = true;
    world().streams.erase(stream);
    // Its work is done later; points in other queues may keep the queue.
    if (!stream->queue->entries.empty()) {
      auto* const legacy = world().default_stream(stream->device);
      legacy->queue->waits.push_back({stream->queue, stream->queue->enqueued});
    }
    delete stream;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call([&]() -> cudaError_t {
    CUstream_st* s = find(stream);
    return s ? simt::synchronise(s) : cudaErrorInvalidResourceHandle;
  });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call([&]() -> cudaError_t {
    CUstream_st* s = find(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (s->capture) {
      s->capture->invalid = true;
      return cudaErrorStreamCaptureUnsupported;
    }
    return simt::ask(*s->queue, s->queue->enqueued);
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return call([&] { return simt::wait(stream, event); });
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return call([&]() -> cudaError_t {
    const CUstream_st* s = find(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    *priority = s->priority;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  return call([&]() -> cudaError_t {
    const CUstream_st* s = find(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    *flags = s->flags;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return call([&]() -> cudaError_t {
    const CUstream_st* s = find(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    *device = s->device;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return call([&]() -> cudaError_t {
    const CUstream_st* s = find(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    *id = s->id;
    return cudaSuccess;
  });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return call([&] {
    return simt::enqueue(stream, {.type = cudaGraphNodeTypeHost, .run = [=] {
                                    world().in_host_function = true;
                                    function(data);
                                    world().in_host_function = false;
                                  }});
  });
}

// ---------------------------------------------------------------- events
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call([&] {
    if (!event) return cudaErrorInvalidValue;
    *event = new CUevent_st{.device = current_device, .flags = flags};
    world().events.insert(*event);
    return cudaSuccess;
  });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call([&] {
    if (!world().events.erase(event)) return cudaErrorInvalidResourceHandle;
    delete event;
    return cudaSuccess;
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call([&] { return simt::record(event, stream); });
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call([&] {
    if (!world().events.count(event)) return cudaErrorInvalidResourceHandle;
    if (event->capture) {
      event->capture->invalid = true;
      return cudaErrorCapturedEvent;
    }
    if (simt::forbidden_by_capture()) return cudaErrorStreamCaptureUnsupported;
    ++world().counters.synchronisations;
    if (event->point.queue) event->point.queue->run_until(event->point.count);
    return simt::finish(event->device);
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call([&] {
    if (!world().events.count(event)) return cudaErrorInvalidResourceHandle;
    if (event->capture) {
      event->capture->invalid = true;
      return cudaErrorCapturedEvent;
    }
    if (simt::forbidden_by_capture()) return cudaErrorStreamCaptureUnsupported;
    if (!event->point.queue) return cudaSuccess;
    return simt::ask(*event->point.queue, event->point.count);
  });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return call([&] {
    if (!world().events.count(from) || !world().events.count(to))
      return cudaErrorInvalidResourceHandle;
    if ((from->flags | to->flags) & cudaEventDisableTiming) return cudaErrorInvalidResourceHandle;
    if (!from->point.queue || !to->point.queue) return cudaErrorInvalidResourceHandle;
    if (!from->point.queue->done(from->point.count) || !to->point.queue->done(to->point.count))
      return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(*to->time - *from->time).count();
    return cudaSuccess;
  });
}

}  // extern "C"
