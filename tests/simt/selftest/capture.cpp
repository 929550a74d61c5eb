// Captures and graphs of the simulated device.
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "streams.h"

namespace simt_tests {

TEST_CASE("a capture records, and every replay runs it") {
  const Fresh fresh;
  for (const auto mode : {simt::Mode::Immediate, simt::Mode::Deferred}) {
    simt::settings.mode = mode;
    const Both d;
    CHECK(cudaStreamBeginCapture(d.a, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    simt::launch(false, add, 1, 1, 0, d.a, d.x, 2.f);
    simt::launch(false, scale, 1, 1, 0, d.a, d.x, 10.f);
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(d.a, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusActive);
    cudaGraph_t graph;
    REQUIRE(cudaStreamEndCapture(d.a, &graph) == cudaSuccess);
    CHECK(to_host(d.x, 1)[0] == 1.f);
    size_t count = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &count) == cudaSuccess);
    CHECK(count == 2);
    const auto names = simt::nodes(graph);
    REQUIRE(names.size() == 2);
    CHECK(names[0].find("add") != std::string::npos);
    CHECK(names[1].find("scale") != std::string::npos);
    cudaGraphExec_t executable;
    REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    simt::in_every_order([&] {  // the chain stays in its order
      simt::launch(false, set<float>, 1, 1, 0, d.b, d.x, 1.f);
      CHECK(cudaStreamSynchronize(d.b) == cudaSuccess);
      for (int i = 0; i < 2; ++i) CHECK(cudaGraphLaunch(executable, d.b) == cudaSuccess);
      CHECK(pinned_read(d.x, d.b, true) == 320.f);
    });
    CHECK(cudaGraphLaunch(executable, d.b) == cudaSuccess);
    CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);  // what is on its way goes on
    CHECK(pinned_read(d.x, d.b, true) == 3220.f);
  }
}

TEST_CASE("a graph may allocate what it needs, and holds it") {
  const Fresh fresh;
  const Both d;
  const auto before = simt::live_allocations();
  CHECK(cudaStreamBeginCapture(d.a, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  void* y;
  CHECK(cudaMallocAsync(&y, 4, d.a) == cudaSuccess);
  CHECK(cudaFreeAsync(d.x, d.a) == cudaErrorInvalidValue);  // of another's
  CHECK(cudaMemcpyAsync(d.x, y, 4, cudaMemcpyDeviceToDevice, d.a) == cudaSuccess);
  simt::launch(false, set<float>, 1, 1, 0, d.a, static_cast<float*>(y), 6.f);
  simt::launch(false, add, 1, 1, 0, d.a, static_cast<float*>(y), 1.f);
  CHECK(cudaFreeAsync(y, d.a) == cudaSuccess);
  cudaGraph_t graph;
  REQUIRE(cudaStreamEndCapture(d.a, &graph) == cudaSuccess);
  CHECK(simt::nodes(graph).front() == "alloc");
  CHECK(simt::nodes(graph).back() == "free");
  cudaGraphExec_t executable;
  REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  for (int i = 0; i < 2; ++i) {  // fresh each time, although a replay has written 7
    CHECK(cudaGraphLaunch(executable, d.a) == cudaSuccess);
    CHECK(std::isnan(to_host(d.x, 1)[0]));
  }
  CHECK(simt::live_allocations() == before + 1);
  cudaGraphDestroy(graph);
  cudaGraphExecDestroy(executable);
  CHECK(simt::live_allocations() == before);
}

TEST_CASE("streams fork and join in a capture; a missing edge shows in another order") {
  const Fresh fresh;
  const Both d;
  for (const bool joined : {true, false}) {
    const auto e = new_event();
    CHECK(cudaStreamBeginCapture(d.a, cudaStreamCaptureModeGlobal) == cudaSuccess);
    simt::launch(false, set<float>, 1, 1, 0, d.a, d.x, 1.f);
    CHECK(cudaEventRecord(e, d.a) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(d.b, e, 0) == cudaSuccess);
    simt::launch(false, add, 1, 1, 0, d.b, d.x, 2.f);
    if (joined) {
      CHECK(cudaEventRecord(d.e, d.b) == cudaSuccess);
      CHECK(cudaStreamWaitEvent(d.a, d.e, 0) == cudaSuccess);
    }
    simt::launch(false, scale, 1, 1, 0, d.a, d.x, 10.f);
    cudaGraph_t graph;
    const auto ended = cudaStreamEndCapture(d.a, &graph);
    CHECK(ended == (joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined));
    if (joined) {
      cudaGraphExec_t executable;
      REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
      simt::in_every_order([&] {
        CHECK(cudaGraphLaunch(executable, d.a) == cudaSuccess);
        CHECK(to_host(d.x, 1)[0] == 30.f);
      });
      cudaGraphExecDestroy(executable);
      cudaGraphDestroy(graph);
    }
    cudaEventDestroy(e);
  }
  // Fork and join in the wrong places: the two may run in either order.
  CHECK(cudaStreamBeginCapture(d.a, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(cudaEventRecord(d.e, d.a) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(d.b, d.e, 0) == cudaSuccess);
  simt::launch(false, add, 1, 1, 0, d.a, d.x, 2.f);
  simt::launch(false, scale, 1, 1, 0, d.b, d.x, 10.f);
  CHECK(cudaEventRecord(d.e, d.b) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(d.a, d.e, 0) == cudaSuccess);
  cudaGraph_t graph;
  REQUIRE(cudaStreamEndCapture(d.a, &graph) == cudaSuccess);
  cudaGraphExec_t executable;
  REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  std::vector<float> results;
  for (const auto order : {simt::Order::Forward, simt::Order::Reverse}) {
    simt::settings.order = order;
    const float one = 1.f;
    CHECK(cudaMemcpy(d.x, &one, 4, cudaMemcpyHostToDevice) == cudaSuccess);
    CHECK(cudaGraphLaunch(executable, d.a) == cudaSuccess);
    CHECK(cudaStreamSynchronize(d.a) == cudaSuccess);
    results.push_back(to_host(d.x, 1)[0]);
  }
  CHECK(results == std::vector<float>{30.f, 12.f});
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

TEST_CASE("what CUDA forbids during a capture is refused, and spoils it") {
  const Fresh fresh;
  const Both d;
  void* p;
  const auto refused = [&](auto&& act, cudaError_t expected,
                           cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    CHECK(cudaStreamBeginCapture(d.a, mode) == cudaSuccess);
    CHECK(act() == expected);
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(d.a, &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(graph == nullptr);
    (void)cudaGetLastError();
  };
  const auto unsupported = cudaErrorStreamCaptureUnsupported;
  void* pinned;
  CHECK(cudaMallocHost(&pinned, 16) == cudaSuccess);
  refused([&] { return cudaFreeHost(pinned); }, unsupported);
  refused([&] { return cudaMalloc(&p, 16); }, unsupported);
  refused([&] { return cudaFree(d.x); }, unsupported);
  refused([&] { return cudaStreamSynchronize(d.a); }, unsupported);
  refused([&] { return cudaDeviceSynchronize(); }, unsupported);
  refused([&] { return cudaStreamQuery(d.a); }, unsupported);
  refused([&] { return cudaMemcpy(d.x, &d, 4, cudaMemcpyHostToDevice); }, unsupported);
  refused([&] { return cudaEventQuery(d.e); }, unsupported, cudaStreamCaptureModeGlobal);
  refused([&] { return (void)cudaEventRecord(d.e, d.a), cudaEventSynchronize(d.e); },
          cudaErrorCapturedEvent);
  const auto other = new_event();
  CHECK(cudaEventRecord(other, d.b) == cudaSuccess);
  refused([&] { return cudaStreamWaitEvent(d.a, other, 0); }, cudaErrorStreamCaptureIsolation);
  cudaEventDestroy(other);
  // Whoever waits for the whole device spoils it, in any mode; another thread may do all the rest.
  const auto elsewhere = [](auto&& act) {
    cudaError_t result = cudaErrorUnknown;
    std::thread([&] { result = act(); }).join();
    return result;
  };
  refused([&] { return elsewhere(&cudaDeviceSynchronize); }, unsupported,
          cudaStreamCaptureModeRelaxed);
  CHECK(cudaStreamBeginCapture(d.a, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK(elsewhere([&] { return cudaStreamSynchronize(d.b); }) == cudaSuccess);
  CHECK(elsewhere([&] { return cudaFreeHost(pinned); }) == cudaSuccess);
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(d.a, &graph) == cudaSuccess);
  cudaGraphDestroy(graph);
  // A relaxed capture allows it.
  CHECK(cudaStreamBeginCapture(d.a, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  CHECK(cudaMalloc(&p, 16) == cudaSuccess);
  CHECK(cudaStreamEndCapture(d.a, &graph) == cudaSuccess);
  cudaGraphDestroy(graph);
  cudaFree(p);
  // The default stream cannot be captured, nor used beside a blocking stream that is.
  CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal) == unsupported);
  const auto blocking = new_stream(cudaStreamDefault);
  CHECK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK(simt::launch(false, add, 1, 1, 0, nullptr, d.x, 1.f) == cudaErrorStreamCaptureImplicit);
  CHECK(cudaStreamEndCapture(blocking, &graph) == cudaErrorStreamCaptureInvalidated);
  cudaStreamDestroy(blocking);
}

}  // namespace simt_tests
