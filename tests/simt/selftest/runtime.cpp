// Streams, events, graphs and errors of the simulated device.
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "support.h"

namespace simt_tests {
namespace {

__global__ void add(float* x, float a) { *x += a; }
__global__ void scale(float* x, float a) { *x *= a; }
template <class T>
__global__ void set(T* x, T value) {
  *x = value;
}

cudaStream_t new_stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t s = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&s, flags) == cudaSuccess);
  return s;
}
cudaEvent_t new_event() {
  cudaEvent_t e = nullptr;
  REQUIRE(cudaEventCreateWithFlags(&e, cudaEventDisableTiming) == cudaSuccess);
  return e;
}

struct Both {  // two streams, an event, a number
  cudaStream_t a = new_stream(), b = new_stream();
  cudaEvent_t e = new_event();
  float* x = to_device(std::vector<float>{1.f});
  ~Both() {
    cudaFree(x);
    cudaEventDestroy(e);
    cudaStreamDestroy(a), cudaStreamDestroy(b);
  }
};

float pinned_read(float* x, cudaStream_t s, bool wait) {
  float* p;
  REQUIRE(cudaMallocHost(reinterpret_cast<void**>(&p), sizeof(float)) == cudaSuccess);
  CHECK(cudaMemcpyAsync(p, x, sizeof(float), cudaMemcpyDeviceToHost, s) == cudaSuccess);
  if (wait) CHECK(cudaStreamSynchronize(s) == cudaSuccess);
  const float value = *p;
  CHECK(cudaStreamSynchronize(s) == cudaSuccess);
  CHECK(cudaFreeHost(p) == cudaSuccess);
  return value;
}

}  // namespace

TEST_CASE("deferred work runs when it is waited for, and a missing wait shows") {
  const Fresh fresh;
  const Both d;
  for (const bool deferred : {false, true}) {
    simt::settings.mode = deferred ? simt::Mode::Deferred : simt::Mode::Immediate;
    simt::launch(false, set<float>, 1, 1, 0, d.a, d.x, 5.f);
    CHECK(simt::pending_work() == (deferred ? 1 : 0));
    CHECK(pinned_read(d.x, d.a, true) == 5.f);
    CHECK(std::isnan(pinned_read(d.x, d.a, false)) == deferred);
    CHECK(simt::pending_work() == 0);
  }
}

TEST_CASE("deferred streams know of each other only what events tell") {
  const Fresh fresh;
  const Both d;
  simt::settings.mode = simt::Mode::Deferred;
  simt::launch(false, add, 1, 1, 0, d.a, d.x, 2.f);
  CHECK(pinned_read(d.x, d.b, true) == 1.f);  // a was not asked
  simt::launch(false, scale, 1, 1, 0, d.a, d.x, 10.f);
  CHECK(cudaEventRecord(d.e, d.a) == cudaSuccess);
  simt::launch(false, add, 1, 1, 0, d.a, d.x, 100.f);  // after the event
  CHECK(cudaEventQuery(d.e) == cudaErrorNotReady);
  CHECK(cudaStreamWaitEvent(d.b, d.e, 0) == cudaSuccess);
  simt::launch(false, add, 1, 1, 0, d.b, d.x, 1.f);
  CHECK(pinned_read(d.x, d.b, true) == 31.f);
  CHECK(cudaEventQuery(d.e) == cudaSuccess);
  CHECK(pinned_read(d.x, d.a, true) == 131.f);
}

TEST_CASE("asking for progress makes some, so that a loop around it ends") {
  const Fresh fresh;
  const Both d;
  simt::settings.mode = simt::Mode::Deferred;
  for (int i = 0; i < 5; ++i) simt::launch(false, add, 1, 1, 0, d.a, d.x, 1.f);
  int times = 0;
  while (cudaStreamQuery(d.a) == cudaErrorNotReady) ++times;
  CHECK(times == 5);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("the default stream and the blocking ones wait for each other") {
  const Fresh fresh;
  simt::settings.mode = simt::Mode::Deferred;
  const cudaStream_t blocking = new_stream(cudaStreamDefault), free = new_stream();
  float* x = to_device(std::vector<float>{1.f, 1.f});
  simt::launch(false, add, 1, 1, 0, blocking, x, 1.f);
  simt::launch(false, add, 1, 1, 0, free, x + 1, 1.f);
  simt::launch(false, scale, 1, 1, 0, nullptr, x, 10.f);
  simt::launch(false, add, 1, 1, 0, blocking, x, 3.f);
  CHECK(cudaStreamSynchronize(blocking) == cudaSuccess);
  CHECK(simt::pending_work() == 1);
  CHECK(to_host(x, 2) == std::vector<float>{23.f, 1.f});
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(to_host(x, 2) == std::vector<float>{23.f, 2.f});
  cudaFree(x);
  cudaStreamDestroy(blocking), cudaStreamDestroy(free);
}

TEST_CASE("a copy from ordinary memory is taken at once, one from pinned memory later") {
  const Fresh fresh;
  const Both d;
  simt::settings.mode = simt::Mode::Deferred;
  float ordinary = 7.f;
  CHECK(cudaMemcpyAsync(d.x, &ordinary, 4, cudaMemcpyHostToDevice, d.a) == cudaSuccess);
  ordinary = 8.f;
  CHECK(pinned_read(d.x, d.a, true) == 7.f);
  float* pinned;
  REQUIRE(cudaMallocHost(reinterpret_cast<void**>(&pinned), 4) == cudaSuccess);
  *pinned = 9.f;
  CHECK(cudaMemcpyAsync(d.x, pinned, 4, cudaMemcpyHostToDevice, d.a) == cudaSuccess);
  *pinned = 10.f;  // too early
  CHECK(pinned_read(d.x, d.a, true) == 10.f);
  CHECK(cudaFreeHost(pinned) == cudaSuccess);
  float back = 0;
  simt::launch(false, set<float>, 1, 1, 0, d.a, d.x, 4.f);
  CHECK(cudaMemcpyAsync(&back, d.x, 4, cudaMemcpyDeviceToHost, d.a) == cudaSuccess);
  CHECK(back == 4.f);  // to ordinary memory: waits
}

TEST_CASE("memory is reused in stream order, and what comes too late reads NaN") {
  const Fresh fresh;
  const Both d;
  simt::settings.mode = simt::Mode::Deferred;
  void* y;
  CHECK(cudaMallocAsync(&y, 4, d.a) == cudaSuccess);
  simt::launch(false, set<float>, 1, 1, 0, d.a, static_cast<float*>(y), 1.f);
  CHECK(cudaMemcpyAsync(d.x, y, 4, cudaMemcpyDeviceToDevice, d.a) == cudaSuccess);
  CHECK(cudaFreeAsync(y, d.a) == cudaSuccess);
  CHECK(pinned_read(d.x, d.a, true) == 1.f);
  CHECK(simt::live_bytes() == 4);
}

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

TEST_CASE("a broken device says so at the next wait, and from then on always") {
  const Fresh fresh;
  const Both d;
  simt::fail_launch(2);
  CHECK(simt::launch(false, add, 1, 1, 0, d.a, d.x, 2.f) == cudaSuccess);
  CHECK(simt::launch(false, add, 1, 1, 0, d.a, d.x, 2.f) == cudaSuccess);
  CHECK(simt::launch(false, add, 1, 1, 0, d.a, d.x, 2.f) == cudaSuccess);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(cudaStreamSynchronize(d.a) == cudaErrorIllegalAddress);
  void* p;
  CHECK(cudaMalloc(&p, 16) == cudaErrorIllegalAddress);
  CHECK(simt::launch(false, add, 1, 1, 0, d.a, d.x, 2.f) == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  CHECK(std::string(cudaGetErrorName(cudaErrorIllegalAddress)) == "cudaErrorIllegalAddress");
  simt::reset();
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(to_host(d.x, 1)[0] == 3.f);  // nothing ran after the first
}

TEST_CASE("what happened is counted and named") {
  const Fresh fresh;
  const Both d;
  simt::reset_counters();
  simt::launch(false, add, 1, 1, 0, d.a, d.x, 2.f);
  simt::launch(false, set<float>, 1, 1, 0, d.a, d.x, 2.f);
  CHECK(cudaMemsetAsync(d.x, 0, 4, d.a) == cudaSuccess);
  CHECK(to_host(d.x, 1)[0] == 0.f);
  const auto c = simt::counters();
  CHECK(c.launches == 2);
  CHECK(c.memsets == 1);
  CHECK(c.device_to_host == 1);
  CHECK(c.host_to_device == 0);
  CHECK(c.synchronisations == 1);
  const auto names = simt::launched_kernels();
  REQUIRE(names.size() == 2);
  CHECK(names[0] == "simt_tests::(anonymous namespace)::add");
  CHECK(names[1] == "simt_tests::(anonymous namespace)::set<float>");
}

TEST_CASE("there are as many devices as the test says") {
  const Fresh fresh;
  int count = -1;
  simt::settings.devices = 0;
  CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
  CHECK(count == 0);
  (void)cudaGetLastError();
  simt::settings.devices = 2;
  CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
  CHECK(count == 2);
  CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
  CHECK(cudaSetDevice(1) == cudaSuccess);
  const auto second = new_stream();
  CHECK(cudaSetDevice(0) == cudaSuccess);
  float* x = to_device(std::vector<float>{1.f});
  CHECK(simt::launch(false, add, 1, 1, 0, second, x, 1.f) == cudaErrorInvalidResourceHandle);
  cudaFree(x);
  cudaStreamDestroy(second);
  cudaDeviceProp p;
  CHECK(cudaGetDeviceProperties(&p, 0) == cudaSuccess);
  CHECK(p.multiProcessorCount == simt::settings.multiprocessors);
  CHECK(p.major == 9);
}

TEST_CASE("host functions run in stream order and may not call CUDA") {
  const Fresh fresh;
  const Both d;
  static std::vector<int> calls;
  static int number = 7;
  calls.clear();
  CHECK(cudaLaunchHostFunc(
            d.a, [](void* p) { calls.push_back(*static_cast<int*>(p)); }, &number) == cudaSuccess);
  CHECK(cudaStreamSynchronize(d.a) == cudaSuccess);
  CHECK(calls == std::vector<int>{7});
  CHECK(cudaLaunchHostFunc(
            d.a, [](void*) { calls.push_back(cudaDeviceSynchronize()); }, nullptr) == cudaSuccess);
  CHECK(cudaStreamSynchronize(d.a) == cudaSuccess);
  REQUIRE(calls.size() == 2);
  CHECK(calls[1] == cudaErrorNotPermitted);
}

TEST_CASE("foreign work holds its stream, and no other thread, until it is ready") {
  for (const simt::Mode mode : {simt::Mode::Immediate, simt::Mode::Deferred})
    for (const bool in_graph : {false, true}) {
      const Fresh fresh;
      simt::settings.mode = mode;
      const Both d;
      std::atomic<bool> ready{false}, done{false};
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t executable = nullptr;
      if (in_graph)
        REQUIRE(cudaStreamBeginCapture(d.a, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
      else if (mode == simt::Mode::Immediate)
        ready = true;  // it would wait in the call itself
      CHECK(simt::enqueue_foreign(
                d.a, [&] { return ready.load(); }, [&] { done = true; }) == cudaSuccess);
      simt::launch(false, add, 1, 1, 0, d.a, d.x, 5.f);
      if (in_graph) {
        CHECK(!done);
        REQUIRE(cudaStreamEndCapture(d.a, &graph) == cudaSuccess);
        REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
        if (mode == simt::Mode::Immediate) ready = true;
        REQUIRE(cudaGraphLaunch(executable, d.a) == cudaSuccess);
      }
      if (mode == simt::Mode::Deferred) {
        for (int i = 0; i < 10; ++i) CHECK(cudaStreamQuery(d.a) == cudaErrorNotReady);
        CHECK(!done);
        std::thread other([&] {  // has the device to itself while this one waits
          CHECK(cudaStreamSynchronize(d.b) == cudaSuccess);
          CHECK(!done);
          ready = true;
        });
        CHECK(cudaStreamSynchronize(d.a) == cudaSuccess);
        other.join();
      }
      CHECK(cudaStreamSynchronize(d.a) == cudaSuccess);
      CHECK(done);
      CHECK(to_host(d.x, 1)[0] == 6);
      if (graph) CHECK(cudaGraphDestroy(graph) == cudaSuccess);
      if (executable) CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
    }
}

TEST_CASE("events measure time, unless they were made not to") {
  const Fresh fresh;
  cudaEvent_t from, to;
  REQUIRE(cudaEventCreate(&from) == cudaSuccess);
  REQUIRE(cudaEventCreate(&to) == cudaSuccess);
  CHECK(cudaEventRecord(from, nullptr) == cudaSuccess);
  CHECK(cudaEventRecord(to, nullptr) == cudaSuccess);
  CHECK(cudaEventSynchronize(to) == cudaSuccess);
  float ms = -1;
  CHECK(cudaEventElapsedTime(&ms, from, to) == cudaSuccess);
  CHECK(ms >= 0);
  const auto untimed = new_event();
  CHECK(cudaEventRecord(untimed, nullptr) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&ms, from, untimed) == cudaErrorInvalidResourceHandle);
  cudaEventDestroy(from), cudaEventDestroy(to), cudaEventDestroy(untimed);
}

}  // namespace simt_tests
