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

}  // namespace

CudaRecording::CudaRecording(Context& context)
    : context_(context),
      stream_(context.borrow_stream()),
      arena_(std::make_shared<Arena>(context)) {
  check(cudaSetDevice(context.index()), "choosing the device");
  check(cudaEventCreateWithFlags(&last_, cudaEventDisableTiming), "making an event");
}

CudaRecording::~CudaRecording() {
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
    (void)cudaStreamSynchronize(stream_);
    throw;
  }
  context_.synchronize(stream_);
}

void CudaRecording::record(const std::function<void()>& work) {
  context_.synchronize();
  cudaGraph_t graph = nullptr;
  {
    const StreamScope stream(context_, stream_);
    context_.begin_capture(stream_);
    try {
      const ArenaScope memory(*arena_);
      work();
    } catch (...) {
      (void)cudaStreamEndCapture(stream_, &graph);
      (void)cudaGetLastError();
      if (graph) (void)cudaGraphDestroy(graph);
      arena_->settle();
      throw;
    }
    check(cudaStreamEndCapture(stream_, &graph), "ending a capture");
  }
  size_t nodes = 0;
  check(cudaGraphGetNodes(graph, nullptr, &nodes), "counting a graph's nodes");
  size_ = static_cast<int64_t>(nodes);
  const cudaError_t made = cudaGraphInstantiate(&graph_, graph, 0);
  (void)cudaGraphDestroy(graph);
  check(made, "making a graph of the captured step");
  arena_->settle();
}

void CudaRecording::replay() {
  check(cudaSetDevice(context_.index()), "choosing the device");
  context_.read_board();
  const cudaStream_t stream = context_.current();
  HALFTAPE_CHECK(!replayed_in_ || *replayed_in_ == stream,
                 "Graph: replayed in another stream than before; make a graph for each stream");
  replayed_in_ = stream;
  context_.launched("graph", cudaGraphLaunch(graph_, stream), stream);
  check(cudaEventRecord(last_, stream), "recording an event");
}

}  // namespace halftape::cuda
