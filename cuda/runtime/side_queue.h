// The streams of a device as queues: those of threads and those beside them, and events between
// them.
#pragma once
#include "halftape/core/contract/backend.h"
#include "halftape/cuda/runtime/arena.h"

namespace halftape::cuda {

/// While it lives, this thread's work goes into a stream.
class StreamScope {
 public:
  StreamScope(Context& context, cudaStream_t stream)
      : context_(context), before_(context.current()) {
    context.set_current(stream);
  }
  ~StreamScope() { context_.set_current(before_); }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  Context& context_;
  cudaStream_t before_;
};

class CudaMoment final : public QueueMoment {
 public:
  explicit CudaMoment(Context& context) : context_(context) {
    context.choose();
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
    check(cudaEventRecord(event_, context.current()), "recording an event");
  }
  ~CudaMoment() override {
    (void)cudaSetDevice(context_.index());
    (void)cudaEventDestroy(event_);
  }
  void await() override { await_in(context_); }
  /// The current stream of that device waits.
  void await_in(const Context& other) const {
    other.choose();
    check(cudaStreamWaitEvent(other.current(), event_), "waiting for an event");
  }

 private:
  Context& context_;
  cudaEvent_t event_ = nullptr;
};

class CudaSideQueue final : public SideQueue {
 public:
  explicit CudaSideQueue(Context& context) : context_(context), stream_(context.borrow_stream()) {}
  ~CudaSideQueue() override { context_.return_stream(stream_); }
  void use(const std::function<void()>& work) override {
    const StreamScope here(context_, stream_);
    work();
  }

 private:
  Context& context_;
  cudaStream_t stream_;
};

class CudaQueues final : public Queues {
 public:
  explicit CudaQueues(Context& context) : context_(context) {}
  void* current() override { return context_.current(); }
  void follow(void* queue) override {
    const Arena* const arena = Context::capturing();
    if (!arena || &arena->context() != &context_)
      context_.order(static_cast<cudaStream_t>(queue), context_.current());
  }
  void record_use(const Buffer& bytes) override { context_.record_use(bytes); }
  std::unique_ptr<QueueMoment> now() override { return std::make_unique<CudaMoment>(context_); }
  std::unique_ptr<SideQueue> new_side_queue() override {
    return std::make_unique<CudaSideQueue>(context_);
  }
  std::unique_ptr<Recording> new_recording() override;

 private:
  Context& context_;
};

}  // namespace halftape::cuda
