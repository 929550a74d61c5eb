#include "halftape/cuda/runtime/recording.h"

#include "halftape/cuda/runtime/side_queue.h"

namespace halftape::cuda {
namespace {

/// While it lives, this thread's memory comes from an arena.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) { Context::capturing() = &arena; }
  ~ArenaScope() { Context::capturing() = nullptr; }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;
};

/// What a capture has recorded.
class CapturedGraph {
 public:
  CapturedGraph() = default;
  ~CapturedGraph() {
    if (graph_) (void)cudaGraphDestroy(graph_);
  }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  cudaError_t end(cudaStream_t stream) { return cudaStreamEndCapture(stream, &graph_); }
  cudaGraph_t get() const { return graph_; }

 private:
  cudaGraph_t graph_ = nullptr;
};

}  // namespace

CudaRecording::CudaRecording(Context& context)
    : context_(context),
      stream_(context.borrow_stream()),
      arena_(std::make_shared<Arena>(context)) {
  context.choose();
  check(cudaEventCreateWithFlags(&last_, cudaEventDisableTiming), "making an event");
}

CudaRecording::~CudaRecording() {
  (void)cudaSetDevice(context_.index());
  const RelaxedCapture relaxed;  // another step may be recorded just now
  (void)cudaEventSynchronize(last_);
  (void)cudaEventDestroy(last_);
  if (graph_) (void)cudaGraphExecDestroy(graph_);
  context_.return_stream(stream_);
}

void CudaRecording::rehearse(const std::function<void()>& work) {
  context_.synchronize();  // what the step reads is there
  try {
    const StreamScope stream(context_, stream_);
    work();
  } catch (...) {
    (void)context_.wait();
    throw;
  }
  context_.synchronize();  // threads of the step may have used other streams
}

void CudaRecording::record(const std::function<void()>& work) {
  context_.empty_cache();  // during the capture, memory that is kept for reuse cannot be given back
  CapturedGraph graph;
  {
    const StreamScope stream(context_, stream_);
    context_.begin_capture(stream_);
    try {
      const ArenaScope memory(*arena_);
      work();
    } catch (...) {
      (void)graph.end(stream_);
      (void)cudaGetLastError();
      arena_->settle();
      throw;
    }
    check(graph.end(stream_), "ending a capture");
  }
  size_t nodes = 0;
  check(cudaGraphGetNodes(graph.get(), nullptr, &nodes), "counting a graph's nodes");
  size_ = static_cast<int64_t>(nodes);
  check(cudaGraphInstantiate(&graph_, graph.get(), 0), "making a graph of the captured step");
  arena_->settle();
}

void CudaRecording::check_queue() const {
  HALFTAPE_CHECK(!replayed_in_ || *replayed_in_ == context_.current(),
                 "Graph: replayed in another stream than before; make a graph for each stream");
}

void CudaRecording::replay() {
  context_.choose();
  context_.read_board();
  const cudaStream_t stream = context_.current();
  replayed_in_ = stream;
  context_.launched("graph", cudaGraphLaunch(graph_, stream), stream);
  check(cudaEventRecord(last_, stream), "recording an event");
}

std::unique_ptr<Recording> CudaQueues::new_recording() {
  return std::make_unique<CudaRecording>(context_);
}

}  // namespace halftape::cuda
