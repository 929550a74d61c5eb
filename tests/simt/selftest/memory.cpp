// The memory of the simulated device: who may touch it, what lies beside it, how much there is.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdint>
#include <set>

#include "support.h"

namespace simt_tests {
namespace {

__global__ void write_at(float* p, long i) { p[i] = 1.f; }
__global__ void copy_one(float* to, const float* from) { *to = *from; }

/// What a process that does this says before it dies; "" if it lives.
template <class Act>
std::string last_words(Act&& act) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO), dup2(ends[1], STDOUT_FILENO);
    std::signal(SIGABRT, SIG_DFL);  // not doctest's
    act();
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  char part[512];
  for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;) said.append(part, std::size_t(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "" : said + " (died)";
}

}  // namespace

TEST_CASE("host code that touches device memory dies with a message") {
  const Fresh fresh;
  simt::settings.protect = simt::Protect::Always;
  float* d = to_device(std::vector<float>(16, 1.f));
  simt::launch(false, write_at, 1, 1, 0, nullptr, d, 0l);
  const auto said = last_words([&] {
    volatile float* p = d + 4;
    *p = 2.f;
  });
  CHECK(said.find("died") != std::string::npos);
#if !defined(SIMT_ASAN)
  CHECK(said.find("host code touched device memory") != std::string::npos);
  CHECK(said.find("16 bytes into an allocation of 64 bytes") != std::string::npos);
#endif
  CHECK(to_host(d, 16)[4] == 1.f);
  cudaFree(d);
}

TEST_CASE("what is allocated is NaN, and what is freed") {
  const Fresh fresh;
  float* d;
  REQUIRE(cudaMalloc(reinterpret_cast<void**>(&d), 64) == cudaSuccess);
  for (const float v : to_host(d, 16)) CHECK(std::isnan(v));
#if !defined(SIMT_ASAN)  // which ends the program
  float* out = to_device(std::vector<float>{0.f});
  simt::launch(false, write_at, 1, 1, 0, nullptr, d, 0l);
  cudaFree(d);
  simt::launch(false, copy_one, 1, 1, 0, nullptr, out, d);
  CHECK(std::isnan(to_host(out, 1)[0]));
  cudaFree(out);
#else
  cudaFree(d);
#endif
}

TEST_CASE("writing beside an allocation and into a freed one is found") {
  const Fresh fresh;
  float* d = to_device(std::vector<float>(25, 1.f));
  float* dead = to_device(std::vector<float>(4, 1.f));
  cudaFree(dead);
#if defined(SIMT_ASAN)
  CHECK(last_words([&] {
          simt::launch(false, write_at, 1, 1, 0, nullptr, d, 25l);
        }).find("write_at") != std::string::npos);
  CHECK(last_words([&] {
          simt::launch(false, write_at, 1, 1, 0, nullptr, dead, 1l);
        }).find("write_at") != std::string::npos);
  cudaFree(d);
#else
  simt::launch(false, write_at, 1, 1, 0, nullptr, d, 25l);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(reported("of an allocation of 100 bytes"));
  simt::clear_reports();
  simt::launch(false, write_at, 1, 1, 0, nullptr, d, 26l);
  cudaFree(d);
  CHECK(reported("of an allocation of 100 bytes"));
  simt::launch(false, write_at, 1, 1, 0, nullptr, dead, 1l);
  simt::clear_reports();
  for (int i = 0; i < 40; ++i) {  // until its turn comes
    void* p;
    REQUIRE(cudaMalloc(&p, 1 << 20) == cudaSuccess);
    cudaFree(p);
  }
  CHECK(reported("a freed allocation of 16 bytes was written"));
#endif
}

TEST_CASE("wrong frees and copies are errors with a message") {
  const Fresh fresh;
  float* d = to_device(std::vector<float>(16, 1.f));
  float host[32] = {};
  CHECK(cudaMemcpy(host, d, 68, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(reported("beyond an allocation"));
  CHECK(cudaMemcpy(host, d, 64, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemset(d + 8, 0, 64) == cudaErrorInvalidValue);
  CHECK(cudaFree(d + 4) == cudaErrorInvalidValue);
  CHECK(cudaFree(host) == cudaErrorInvalidValue);
  CHECK(cudaFreeAsync(d, nullptr) == cudaErrorInvalidValue);
  CHECK(cudaFree(d) == cudaSuccess);
  simt::clear_reports();
  CHECK(cudaFree(d) == cudaErrorInvalidValue);
  CHECK(reported("freed already"));
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("memory ends where the test says, and addresses come back") {
  const Fresh fresh;
  simt::settings.memory = 1 << 20;
  void *a, *b;
  CHECK(cudaMalloc(&a, 700 << 10) == cudaSuccess);
  CHECK(cudaMalloc(&b, 400 << 10) == cudaErrorMemoryAllocation);
  CHECK(b == nullptr);
  size_t free = 0, total = 0;
  CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(free == 324 << 10);
  CHECK(total == 1 << 20);
  CHECK(cudaFree(a) == cudaSuccess);
  CHECK(simt::live_bytes() == 0);
  std::set<void*> addresses;
  for (int i = 0; i < 200; ++i) {
    REQUIRE(cudaMalloc(&a, 1000 << 10) == cudaSuccess);
    CHECK(reinterpret_cast<std::uintptr_t>(a) % 256 == 0);
    addresses.insert(a);
    cudaFree(a);
  }
  CHECK(addresses.size() < 40);
}

TEST_CASE("a pool keeps what is freed until it is trimmed") {
  const Fresh fresh;
  simt::settings.memory = 1 << 20;
  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.location = {cudaMemLocationTypeDevice, 0};
  cudaMemPool_t pool;
  REQUIRE(cudaMemPoolCreate(&pool, &props) == cudaSuccess);
  std::uint64_t keep = ~std::uint64_t{0};
  CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep) == cudaSuccess);
  const auto attribute = [&](cudaMemPoolAttr which) {
    std::uint64_t value = 0;
    CHECK(cudaMemPoolGetAttribute(pool, which, &value) == cudaSuccess);
    return value;
  };
  cudaStream_t s;
  REQUIRE(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
  void *a, *b;
  CHECK(cudaMallocFromPoolAsync(&a, 600 << 10, pool, s) == cudaSuccess);
  CHECK(attribute(cudaMemPoolAttrUsedMemCurrent) == 600 << 10);
  CHECK(cudaFreeAsync(a, s) == cudaSuccess);
  CHECK(attribute(cudaMemPoolAttrUsedMemCurrent) == 0);
  CHECK(attribute(cudaMemPoolAttrUsedMemHigh) == 600 << 10);
  CHECK(cudaStreamSynchronize(s) == cudaSuccess);
  CHECK(attribute(cudaMemPoolAttrReservedMemCurrent) == 600 << 10);
  CHECK(cudaMalloc(&b, 600 << 10) == cudaErrorMemoryAllocation);
  CHECK(cudaMemPoolTrimTo(pool, 0) == cudaSuccess);
  CHECK(attribute(cudaMemPoolAttrReservedMemCurrent) == 0);
  CHECK(cudaMalloc(&b, 600 << 10) == cudaSuccess);
  CHECK(cudaFree(b) == cudaSuccess);
  keep = 0;
  CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep) == cudaSuccess);
  CHECK(cudaMallocFromPoolAsync(&a, 1000, pool, s) == cudaSuccess);
  CHECK(cudaFreeAsync(a, s) == cudaSuccess);
  CHECK(cudaFreeAsync(a, s) == cudaErrorInvalidValue);
  CHECK(attribute(cudaMemPoolAttrReservedMemCurrent) == 1000);
  CHECK(cudaStreamSynchronize(s) == cudaSuccess);
  CHECK(attribute(cudaMemPoolAttrReservedMemCurrent) == 0);
  CHECK(cudaMemPoolDestroy(pool) == cudaSuccess);
  cudaStreamDestroy(s);
}

TEST_CASE("memory that a stream frees is trimmed only once the stream has got there") {
  const Fresh fresh;
  simt::settings.mode = simt::Mode::Deferred;
  cudaMemPool_t pool;
  REQUIRE(cudaDeviceGetDefaultMemPool(&pool, 0) == cudaSuccess);
  cudaStream_t s;
  REQUIRE(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
  void* a;
  CHECK(cudaMallocAsync(&a, 4096, s) == cudaSuccess);
  CHECK(cudaFreeAsync(a, s) == cudaSuccess);
  std::uint64_t reserved = 0;
  CHECK(cudaMemPoolTrimTo(pool, 0) == cudaSuccess);
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved) == cudaSuccess);
  CHECK(reserved == 4096);
  CHECK(cudaStreamSynchronize(s) == cudaSuccess);
  CHECK(cudaMemPoolTrimTo(pool, 0) == cudaSuccess);
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved) == cudaSuccess);
  CHECK(reserved == 0);
  cudaStreamDestroy(s);
}

TEST_CASE("only cudaMemcpyPeerAsync reaches into the pool of another device") {
  const Fresh fresh;
  simt::settings.devices = 2;
  cudaStream_t streams[2];
  float* x[2];
  for (const int i : {1, 0}) {
    REQUIRE(cudaSetDevice(i) == cudaSuccess);
    REQUIRE(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaMallocAsync(reinterpret_cast<void**>(&x[i]), 8, streams[i]) == cudaSuccess);
    REQUIRE(cudaMemsetAsync(x[i], i, 8, streams[i]) == cudaSuccess);
  }
  CHECK(cudaMemcpyAsync(x[0], x[1], 8, cudaMemcpyDefault, streams[0]) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(x[0], x[1] + 1, 4, cudaMemcpyDeviceToDevice) == cudaErrorInvalidValue);
  CHECK(reported("the memory pool of another device"));
  CHECK(cudaMemcpyPeerAsync(x[0], 1, x[1], 0, 8, streams[0]) == cudaErrorInvalidValue);
  CHECK(cudaMemcpyPeerAsync(x[0], 0, x[1] + 1, 1, 8, streams[0]) == cudaErrorInvalidValue);
  CHECK(to_host(reinterpret_cast<unsigned char*>(x[0]), 1)[0] == 0);
  CHECK(cudaMemcpyPeerAsync(x[0], 0, x[1] + 1, 1, 4, streams[0]) == cudaSuccess);
  CHECK(to_host(reinterpret_cast<unsigned char*>(x[0]), 1)[0] == 1);
  for (const int i : {0, 1}) {
    CHECK(cudaFreeAsync(x[i], streams[i]) == cudaSuccess);
    cudaStreamDestroy(streams[i]);
  }
}

TEST_CASE("the allocation that the test names fails") {
  const Fresh fresh;
  void *a, *b, *c;
  simt::fail_allocation(2);
  CHECK(cudaMalloc(&a, 16) == cudaSuccess);
  CHECK(cudaMalloc(&b, 16) == cudaErrorMemoryAllocation);
  CHECK(cudaMalloc(&c, 16) == cudaSuccess);
  cudaFree(a), cudaFree(c);
  simt::fail_allocation(2, true);
  CHECK(cudaMallocAsync(&a, 16, nullptr) == cudaSuccess);
  CHECK(cudaMallocAsync(&b, 16, nullptr) == cudaErrorMemoryAllocation);
  CHECK(cudaMallocAsync(&c, 16, nullptr) == cudaErrorMemoryAllocation);
  CHECK(cudaFreeAsync(a, nullptr) == cudaSuccess);
  simt::reset();
  CHECK(cudaMalloc(&a, 16) == cudaSuccess);
  CHECK(simt::counters().allocations == 1);
  cudaFree(a);
}

TEST_CASE("pinned memory is the host's and the device's") {
  const Fresh fresh;
  float* p;
  REQUIRE(cudaHostAlloc(reinterpret_cast<void**>(&p), 16, cudaHostAllocMapped) == cudaSuccess);
  CHECK(std::isnan(p[0]));
  p[1] = 3.f;
  float* d;
  CHECK(cudaHostGetDevicePointer(reinterpret_cast<void**>(&d), p, 0) == cudaSuccess);
  simt::launch(false, copy_one, 1, 1, 0, nullptr, d, d + 1);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(p[0] == 3.f);
  CHECK(cudaFreeHost(p) == cudaSuccess);
  CHECK(cudaFreeHost(&p) == cudaErrorInvalidValue);
}

}  // namespace simt_tests
