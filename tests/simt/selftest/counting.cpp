// Settings::counts_only: what is counted is not carried out, and takes no memory.
#include <unistd.h>

#include <fstream>

#include "support.h"

namespace simt_tests {
namespace {

__global__ void write_two(float* p) { *p = 2.f; }

bool counting = false;  // NOLINT: Settings has a plain function
struct Counting {
  Counting() { counting = true; }
  ~Counting() { counting = false; }
};
simt::Settings settings_for(std::size_t memory) {
  simt::Settings s = simt::settings;
  s.quiet = true;
  s.memory = memory;
  s.counts_only = [] { return counting; };
  return s;
}

std::size_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::size_t pages = 0, resident = 0;
  in >> pages >> resident;
  return resident * std::size_t(sysconf(_SC_PAGESIZE));
}

}  // namespace

TEST_CASE(
    "while work is only counted, kernels, copies and fills do nothing, and the host reads 0") {
  const Fresh fresh;
  const simt::With with(settings_for(std::size_t{1} << 30));
  float* d = to_device(std::vector<float>(4096, 1.f));
  std::vector<float> host(4096, 7.f);
  const std::string tally = simt::tally().line();
  simt::reset_counters();
  {
    const Counting now;
    simt::launch(false, write_two, 1, 1, 0, nullptr, d);
    CHECK(cudaMemcpy(d, host.data(), 4096, cudaMemcpyHostToDevice) == cudaSuccess);
    CHECK(cudaMemsetAsync(d, 0x41, 4096 * sizeof(float), nullptr) == cudaSuccess);
    CHECK(to_host(d, 4096) == std::vector<float>(4096, 0.f));
  }
  CHECK(simt::counters().launches == 1);
  CHECK(simt::launched_kernels().size() == 1);
  CHECK(simt::counters().host_to_device == 1);
  CHECK(simt::counters().memsets == 1);
  CHECK(simt::tally().line() == tally);  // it lists what has run
  CHECK(to_host(d, 4096) == std::vector<float>(4096, 1.f));
  simt::launch(false, write_two, 1, 1, 0, nullptr, d);
  CHECK(to_host(d, 1)[0] == 2.f);
  {
    const Counting now;  // a small fill may set up a counter
    CHECK(cudaMemsetAsync(d, 0, sizeof(float), nullptr) == cudaSuccess);
  }
  CHECK(to_host(d, 2) == std::vector<float>{0.f, 1.f});
  cudaFree(d);
}

TEST_CASE("while work is only counted, memory takes addresses alone, and is fit for use later") {
  const Fresh fresh;
#if defined(SIMT_ASAN)  // its notes about the memory take an eighth of it
  const std::size_t size = std::size_t{64} << 20;
#else
  const std::size_t size = std::size_t{5} << 30;
#endif
  const simt::With with(settings_for(4 * size));
  const std::size_t before = resident_bytes();
  void *a = nullptr, *b = nullptr;
  {
    const Counting now;
    for (int i = 0; i < 3; ++i) {
      REQUIRE(cudaMalloc(&a, size) == cudaSuccess);
      REQUIRE(cudaMalloc(&b, size) == cudaSuccess);
      CHECK(cudaMemcpy(b, a, size, cudaMemcpyDeviceToDevice) == cudaSuccess);
      CHECK(cudaMemset(a, 1, size) == cudaSuccess);
      CHECK(cudaDeviceSynchronize() == cudaSuccess);
      CHECK(cudaFree(a) == cudaSuccess);
      if (i < 2) CHECK(cudaFree(b) == cudaSuccess);
    }
  }
  CHECK(resident_bytes() < before + (std::size_t{256} << 20));
  float* const one = static_cast<float*>(b);
  simt::launch(false, write_two, 1, 1, 0, nullptr, one);
  CHECK(to_host(one, 1)[0] == 2.f);
  CHECK(cudaFree(b) == cudaSuccess);
  float* const d = to_device(std::vector<float>(16, 1.f));  // of the same addresses, maybe
  simt::check_memory();
  CHECK(to_host(d, 16) == std::vector<float>(16, 1.f));
  cudaFree(d);
  CHECK(simt::reports().empty());
}

TEST_CASE("the nodes of the latest graph have names") {
  const Fresh fresh;
  float* const d = to_device(std::vector<float>(16, 1.f));
  cudaStream_t stream;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  simt::launch(false, write_two, 1, 1, 0, stream, d);
  CHECK(cudaMemsetAsync(d, 0, 4, stream) == cudaSuccess);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  cudaGraphExec_t made = nullptr;
  REQUIRE(cudaGraphInstantiate(&made, graph, 0) == cudaSuccess);
  const std::vector<std::string> names = simt::latest_nodes();
  REQUIRE(names.size() == 2);
  CHECK(simt::plain_name(names[0]) == "write_two");
  CHECK(names[1] == "memset");
  CHECK(simt::nodes(graph) == names);
  cudaGraphDestroy(graph);
  cudaGraphExecDestroy(made);
  CHECK(simt::latest_nodes().empty());
  cudaStreamDestroy(stream);
  cudaFree(d);
}

}  // namespace simt_tests
