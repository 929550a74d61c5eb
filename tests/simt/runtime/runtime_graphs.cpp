// The CUDA runtime API: capture and graphs.
#include <algorithm>

#include "runtime/runtime.h"

namespace simt {
namespace {

cudaError_t begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  World& w = world();
  CUstream_st* s = find(stream);
  if (!s) return cudaErrorInvalidResourceHandle;
  if (s == w.default_stream(s->device)) return cudaErrorStreamCaptureUnsupported;
  if (s->capture) return cudaErrorIllegalState;
  auto* graph = new CUgraph_st;
  w.graphs.insert(graph);
  s->capture = std::make_shared<Capture>(Capture{.id = w.next_id++,
                                                 .mode = mode,
                                                 .thread = std::this_thread::get_id(),
                                                 .origin = s,
                                                 .graph = graph});
  s->frontier.clear();
  std::erase_if(w.captures, [](const auto& c) { return c.expired(); });
  w.captures.push_back(s->capture);
  return cudaSuccess;
}

/// True if every node leads to one of these.
bool all_join(const CUgraph_st& graph, const std::vector<std::size_t>& ends) {
  std::vector<bool> joined(graph.nodes.size(), false);
  for (const std::size_t end : ends) joined[end] = true;
  for (std::size_t i = graph.nodes.size(); i-- > 0;)
    if (joined[i])
      for (const std::size_t before : graph.nodes[i]->after) joined[before] = true;
  return std::find(joined.begin(), joined.end(), false) == joined.end();
}

cudaError_t end_capture(cudaStream_t stream, cudaGraph_t* graph) {
  World& w = world();
  CUstream_st* s = find(stream);
  if (!s || !graph) return cudaErrorInvalidValue;
  *graph = nullptr;
  if (!s->capture) return cudaErrorIllegalState;
  const auto capture = s->capture;
  if (capture->origin != s) {
    capture->invalid = true;
    return cudaErrorStreamCaptureUnmatched;
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  const bool joined = all_join(*capture->graph, s->frontier);
  for (CUstream_st* other : w.streams)
    if (other->capture == capture) other->capture = nullptr, other->frontier.clear();
  for (CUevent_st* event : w.events)
    if (event->capture == capture) event->capture = nullptr, event->frontier.clear();
  if (capture->invalid || !joined) {
    w.graphs.erase(capture->graph);
    delete capture->graph;
    return capture->invalid ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined;
  }
  *graph = capture->graph;
  return cudaSuccess;
}

std::shared_ptr<const CUgraphExec_st::Program> compile(const CUgraph_st& graph) {
  auto program = std::make_shared<CUgraphExec_st::Program>();
  for (const auto& node : graph.nodes) {
    program->nodes.push_back(*node);
    program->waits |= node->work.ready != nullptr;
  }
  program->memory = graph.memory;
  return program;
}

cudaError_t instantiate(cudaGraphExec_t* executable, cudaGraph_t graph) {
  if (!executable || !world().graphs.count(graph)) return cudaErrorInvalidValue;
  *executable = new CUgraphExec_st{compile(*graph)};
  world().executables.insert(*executable);
  world().latest = (*executable)->program;
  return cudaSuccess;
}

cudaError_t launch_graph(cudaGraphExec_t executable, cudaStream_t stream) {
  World& w = world();
  if (!w.executables.count(executable)) return cudaErrorInvalidValue;
  const CUstream_st* s = find(stream);
  if (!s) return cudaErrorInvalidResourceHandle;
  ++w.counters.graph_launches;
  const auto run = std::make_shared<GraphRun>(executable->program, s->device);
  Work work{.type = cudaGraphNodeTypeGraph, .run = [run] { run->advance(); }};
  if (executable->program->waits) work.ready = [run] { return run->advance(); };
  return enqueue(stream, std::move(work));
}

}  // namespace
}  // namespace simt

using simt::call;
using simt::current_device;
using simt::find;
using simt::world;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call([&] { return simt::begin_capture(stream, mode); });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return call([&] { return simt::end_capture(stream, graph); });
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** after, const cudaGraphEdgeData** edges,
                                     size_t* count) {
  return call([&]() -> cudaError_t {
    const CUstream_st* s = find(stream);
    if (!s || !status) return cudaErrorInvalidValue;
    const auto capture = s->capture;
    *status = !capture           ? cudaStreamCaptureStatusNone
              : capture->invalid ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
    if (edges) *edges = nullptr;
    if (!capture) return cudaSuccess;
    if (id) *id = capture->id;
    if (graph) *graph = capture->graph;
    static thread_local std::vector<cudaGraphNode_t> nodes;
    nodes.clear();
    for (const std::size_t i : s->frontier) nodes.push_back(capture->graph->nodes[i].get());
    if (after) *after = nodes.data();
    if (count) *count = nodes.size();
    return cudaSuccess;
  });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(simt::thread_capture_mode, *mode);
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return call([&] {
    if (!world().graphs.count(graph) || !count) return cudaErrorInvalidValue;
    for (size_t i = 0; nodes && i < *count; ++i)
      nodes[i] = i < graph->nodes.size() ? graph->nodes[i].get() : nullptr;
    *count = nodes ? std::min(*count, graph->nodes.size()) : graph->nodes.size();
    return cudaSuccess;
  });
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  *type = node->work.type;
  return cudaSuccess;
}
cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* parameters) {
  if (node->work.type != cudaGraphNodeTypeKernel) return simt::remember(cudaErrorInvalidValue);
  *parameters = node->work.launch;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  return call([&] { return simt::instantiate(executable, graph); });
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long) {
  return call([&] { return simt::instantiate(executable, graph); });
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* result) {
  return call([&] {
    if (!world().executables.count(executable) || !world().graphs.count(graph))
      return cudaErrorInvalidValue;
    const auto& old = executable->program->nodes;
    bool same = old.size() == graph->nodes.size();
    for (size_t i = 0; same && i < old.size(); ++i)
      same = old[i].work.type == graph->nodes[i]->work.type &&
             old[i].work.function == graph->nodes[i]->work.function &&
             old[i].after == graph->nodes[i]->after;
    if (result) {
      *result = {};
      result->result = same ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged;
    }
    if (!same) return cudaErrorGraphExecUpdateFailure;
    executable->program = simt::compile(*graph);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return call([&] { return simt::launch_graph(executable, stream); });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call([&] {
    if (!world().graphs.erase(graph)) return cudaErrorInvalidValue;
    delete graph;
    return cudaSuccess;
  });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return call([&] {
    if (!world().executables.erase(executable)) return cudaErrorInvalidValue;
    delete executable;
    return cudaSuccess;
  });
}

}  // extern "C"
