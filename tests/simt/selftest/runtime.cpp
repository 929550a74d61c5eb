// Streams, events and errors of the simulated device.
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "streams.h"

namespace simt_tests {
namespace {

__global__ void named(float* x, float a) { *x += a; }
template <class T>
__global__ void named_for(T* x, T value) {
  *x = value;
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
  simt::launch(false, named, 1, 1, 0, d.a, d.x, 2.f);
  simt::launch(false, named_for<float>, 1, 1, 0, d.a, d.x, 2.f);
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
  CHECK(names[0] == "simt_tests::(anonymous namespace)::named");
  CHECK(names[1] == "simt_tests::(anonymous namespace)::named_for<float>");
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

TEST_CASE("almost every call uses the current device, whichever it is about") {
  const Fresh fresh;
  const Both d;
  simt::settings.devices = 3;
  simt::settings.busy = 0b100;
  simt::reset_counters();
  int value = 0;
  cudaDeviceProp p;
  CHECK(cudaGetDeviceCount(&value) == cudaSuccess);
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMemoryPoolsSupported, 2) == cudaSuccess);
  CHECK(cudaGetDeviceProperties(&p, 1) == cudaSuccess);
  CHECK(simt::counters().contexts == 0);
  std::thread([&] {
    CHECK(cudaSetDevice(1) == cudaSuccess);
    CHECK(cudaStreamSynchronize(d.a) == cudaSuccess);
  }).join();
  CHECK(simt::counters().contexts == 0b10);
  std::thread([&] { CHECK(cudaEventQuery(d.e) == cudaSuccess); }).join();  // has chosen none
  CHECK(simt::counters().contexts == 0b11);
  std::thread([] { CHECK(cudaSetDevice(2) == cudaErrorDevicesUnavailable); }).join();
  CHECK(simt::counters().contexts == 0b11);
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
