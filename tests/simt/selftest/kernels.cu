// Kernels on the rig: those that are right agree in every order of threads, those that are wrong
// are found out.
#include <cmath>
#include <cstring>

#include "support.h"

namespace simt_tests {
namespace {

// ---------------------------------------------------------------- kernels that are right
template <class T, int kBlock>
__global__ __launch_bounds__(kBlock) void sum(float* total, const T* x, int n) {
  __shared__ float part[kBlock / 32];
  float s = 0;
  for (int i = int(blockIdx.x) * kBlock + int(threadIdx.x); i < n; i += int(gridDim.x) * kBlock)
    s += float(x[i]);
  for (int d = 16; d > 0; d >>= 1) s += __shfl_down_sync(0xffffffffu, s, d);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x < 32) {
    s = threadIdx.x < kBlock / 32 ? part[threadIdx.x] : 0.f;
    for (int d = 16; d > 0; d >>= 1) s += __shfl_down_sync(0xffffffffu, s, d);
    if (threadIdx.x == 0) atomicAdd(total, s);
  }
}

// Every row reversed, through dynamic shared memory.
__global__ void reverse_rows(int* x, int columns) {
  int* row = reinterpret_cast<int*>(simt::dynamic_shared());
  for (int c = int(threadIdx.x); c < columns; c += int(blockDim.x))
    row[c] = x[int(blockIdx.x) * columns + c];
  __syncthreads();
  for (int c = int(threadIdx.x); c < columns; c += int(blockDim.x))
    x[int(blockIdx.x) * columns + c] = row[columns - 1 - c];
}

__global__ void histogram(int* bins, unsigned* largest, __half* count, const int* x, int n) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  atomicAdd(&bins[x[i]], 1);
  atomicMax(largest, unsigned(x[i]));
  atomicAdd(count, __float2half(1.f));
}

// A whole vector divided by its sum, in one cooperative grid.
__global__ void normalise(float* x, float* total, int n) {
  const int first = int(blockIdx.x * blockDim.x + threadIdx.x), step = int(gridDim.x * blockDim.x);
  for (int i = first; i < n; i += step) atomicAdd(total, x[i]);
  simt::grid_sync();
  for (int i = first; i < n; i += step) x[i] /= *total;
}

__global__ void number_threads(int* out) {
  const dim3 at = {blockIdx.x * blockDim.x + threadIdx.x, blockIdx.y * blockDim.y + threadIdx.y,
                   blockIdx.z * blockDim.z + threadIdx.z};
  const unsigned nx = gridDim.x * blockDim.x, ny = gridDim.y * blockDim.y;
  out[(at.z * ny + at.y) * nx + at.x] += 1;
}

struct Collected {
  int up, down, across, from, sum, low, high, any, all, counted;
  unsigned votes, same, bits;
};
__global__ void collect(Collected* out) {
  const int lane = int(threadIdx.x) % 32;
  const unsigned all = 0xffffffffu;
  Collected c;
  c.up = __shfl_up_sync(all, lane, 1);
  c.down = __shfl_down_sync(all, lane, 4, 8);
  c.across = __shfl_xor_sync(all, lane, 5);
  c.from = __shfl_sync(all, lane, 3, 16);
  c.sum = __reduce_add_sync(all, lane);
  c.low = __reduce_min_sync(all, lane - 7);
  c.high = __reduce_max_sync(all, lane - 7);
  c.any = __any_sync(all, lane == 9);
  c.all = __all_sync(all, lane >= 0);
  c.votes = __ballot_sync(all, lane % 3 == 0);
  c.same = __match_any_sync(all, lane / 8);
  c.bits = __reduce_or_sync(all, 1u << (lane / 2));
  c.counted = __syncthreads_count(threadIdx.x % 5 == 0);
  out[threadIdx.x] = c;
}

// A warp whose halves go different ways meets again: each lane reads what the other half wrote.
__global__ void diverge(int* out) {
  __shared__ int shuffled[32];
  const int lane = int(threadIdx.x);
  const unsigned mine = lane < 16 ? 0x0000ffffu : 0xffff0000u;
  if (lane < 16)
    shuffled[lane] = __shfl_xor_sync(mine, lane, 1);
  else
    shuffled[lane] = __shfl_xor_sync(mine, lane, 2);
  __syncwarp();
  out[lane] = shuffled[31 - lane];
}

// ---------------------------------------------------------------- kernels that are wrong
template <int kBlock>
__global__ void sum_without_barrier(float* total, const float* x) {
  __shared__ float part[kBlock / 32];
  float s = x[threadIdx.x];
  for (int d = 16; d > 0; d >>= 1) s += __shfl_down_sync(0xffffffffu, s, d);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
  if (threadIdx.x == 0) {
    s = 0;
    for (const float p : part) s += p;
    *total = s;
  }
}
__global__ void divergent_barrier(int* out) {
  if (threadIdx.x < 32) {
    __syncthreads();
    out[threadIdx.x] = 1;
  } else {
    __syncthreads();
  }
}
__global__ void shuffle_with_the_departed(float* out, int n) {
  if (int(threadIdx.x) >= n) return;
  out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.f, 16);
}
__global__ void outside_its_mask() { __syncwarp(0x1u); }
__global__ void barrier_that_half_a_warp_misses(int* out) {
  if (threadIdx.x % 32 < 16) __syncthreads();
  out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0);
}
__global__ void different_collectives(int* out) {
  if (threadIdx.x < 16)
    out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0);
  else
    out[threadIdx.x] = int(__ballot_sync(0xffffffffu, 1));
}
__global__ void grid_barrier() { simt::grid_sync(); }
__global__ void trapped() { __trap(); }
__global__ void reads_static_shared(float* out, bool write) {
  __shared__ float unwritten[32];
  if (write) unwritten[threadIdx.x] = 1.f;
  out[threadIdx.x] = unwritten[threadIdx.x];
}
__global__ void reads_dynamic_shared(float* out) {
  out[threadIdx.x] = reinterpret_cast<const float*>(simt::dynamic_shared())[threadIdx.x];
}
#if !defined(SIMT_ASAN)
__global__ void overruns_dynamic_shared(int bytes) { simt::dynamic_shared()[bytes] = 1; }
#endif

/// Launches, waits, and gives back what went wrong.
template <class... P, class... A>
std::string fault_of(void (*kernel)(P...), unsigned threads, A... arguments) {
  simt::reset();
  CHECK(simt::launch(false, kernel, 1, threads, 0, nullptr, arguments...) == cudaSuccess);
  const cudaError_t e = cudaDeviceSynchronize();
  CHECK(e == cudaErrorLaunchFailure);
  std::string text = cudaGetErrorString(e);
  simt::reset();
  return text;
}

}  // namespace

TEST_CASE("a block reduction agrees in every order of threads") {
  const Fresh fresh;
  const int n = 10007;
  std::vector<float> x(n);
  std::vector<__half> h(n);
  double expected = 0;
  for (int i = 0; i < n; ++i) h[i] = __float2half(x[i] = float(i % 17 - 8)), expected += x[i];
  float* d = to_device(x);
  __half* dh = to_device(h);
  simt::in_every_order([&] {
    float* total = to_device(std::vector<float>{0.f, 0.f});
    simt::launch(false, sum<float, 256>, 5, 256, 0, nullptr, total, d, n);
    simt::launch(false, sum<__half, 128>, 3, 128, 0, nullptr, total + 1, dh, n);
    const auto got = to_host(total, 2);
    CHECK(got[0] == doctest::Approx(expected));
    CHECK(got[1] == doctest::Approx(expected));
    cudaFree(total);
  });
  cudaFree(d), cudaFree(dh);
}

TEST_CASE("dynamic shared memory is the block's own") {
  const Fresh fresh;
  const int rows = 5, columns = 37;
  simt::in_every_order([&] {
    std::vector<int> x(rows * columns);
    for (int i = 0; i < rows * columns; ++i) x[i] = i;
    int* d = to_device(x);
    simt::launch(false, reverse_rows, rows, 33, columns * sizeof(int), nullptr, d, columns);
    const auto y = to_host(d, x.size());
    for (int i = 0; i < rows * columns; ++i)
      CHECK(y[i] == i / columns * columns + columns - 1 - i % columns);
    cudaFree(d);
  });
}

TEST_CASE("atomics count every thread, also when blocks run on several OS threads") {
  const Fresh fresh;
  simt::settings.os_threads = 3;
  const int n = 1000;
  std::vector<int> x(n), expected(10);
  for (int i = 0; i < n; ++i) ++expected[x[i] = i * 7 % 10];
  int* bins = to_device(std::vector<int>(10));
  auto* largest = to_device(std::vector<unsigned>{0});
  __half* count = to_device(std::vector<__half>{__float2half(0.f)});
  int* dx = to_device(x);
  simt::launch(false, histogram, 4, 256, 0, nullptr, bins, largest, count, dx, n);
  CHECK(to_host(bins, 10) == expected);
  CHECK(to_host(largest, 1)[0] == 9);
  CHECK(__half2float(to_host(count, 1)[0]) == 1000.f);
  cudaFree(bins), cudaFree(largest), cudaFree(count), cudaFree(dx);
}

TEST_CASE("the blocks of a cooperative grid meet") {
  const Fresh fresh;
  simt::in_every_order([&] {
    float* x = to_device(std::vector<float>(1000, 2.f));
    float* total = to_device(std::vector<float>{0.f});
    CHECK(simt::launch(true, normalise, 4, 64, 0, nullptr, x, total, 1000) == cudaSuccess);
    CHECK(to_host(x, 1000)[999] == doctest::Approx(1e-3));
    cudaFree(x), cudaFree(total);
  });
}

TEST_CASE("every thread of a three-dimensional grid runs once") {
  const Fresh fresh;
  simt::in_every_order([&] {
    int* out = to_device(std::vector<int>(2 * 3 * 4 * 3 * 2 * 5));
    simt::launch(false, number_threads, dim3(2, 3, 4), dim3(3, 2, 5), 0, nullptr, out);
    for (const int times : to_host(out, 720)) CHECK(times == 1);
    cudaFree(out);
  });
}

TEST_CASE("warp collectives give what CUDA's guide says") {
  const Fresh fresh;
  simt::in_every_order([&] {
    Collected* d = to_device(std::vector<Collected>(64));
    simt::launch(false, collect, 1, 64, 0, nullptr, d);
    const auto got = to_host(d, 64);
    for (int t = 0; t < 64; ++t) {
      const Collected& c = got[t];
      const int lane = t % 32;
      CHECK(c.up == (lane ? lane - 1 : 0));
      CHECK(c.down == (lane % 8 < 4 ? lane + 4 : lane));
      CHECK(c.across == (lane ^ 5));
      CHECK(c.from == lane / 16 * 16 + 3);
      CHECK(c.sum == 496);
      CHECK(c.low == -7);
      CHECK(c.high == 24);
      CHECK(c.any == 1);
      CHECK(c.all == 1);
      CHECK(c.votes == 0x49249249u);
      CHECK(c.same == 0xffu << (lane / 8 * 8));
      CHECK(c.bits == 0xffffu);
      CHECK(c.counted == 13);
    }
    cudaFree(d);
    int* o = to_device(std::vector<int>(32));
    simt::launch(false, diverge, 1, 32, 0, nullptr, o);
    const auto v = to_host(o, 32);
    for (int lane = 0; lane < 32; ++lane) CHECK(v[31 - lane] == (lane ^ (lane < 16 ? 1 : 2)));
    cudaFree(o);
  });
}

TEST_CASE("a missing barrier shows in the result") {
  const Fresh fresh;
  float* x = to_device(std::vector<float>(256, 1.f));
  float* total = to_device(std::vector<float>{0.f});
  int wrong = 0;
  simt::in_every_order([&] {
    simt::launch(false, sum_without_barrier<256>, 1, 256, 0, nullptr, total, x);
    wrong += to_host(total, 1)[0] != 256.f;
  });
  CHECK(wrong > 0);
  cudaFree(x), cudaFree(total);
}

TEST_CASE("synchronisation that cannot be is an error that names the kernel and the lines") {
  const Fresh fresh;
  int* out = to_device(std::vector<int>(64));
  simt::in_every_order([&] {
    const auto divergent = fault_of(divergent_barrier, 64, out);
    CHECK(divergent.find("divergent __syncthreads") != std::string::npos);
    CHECK(divergent.find("kernels.cu:") != std::string::npos);
    CHECK(divergent.find("divergent_barrier") != std::string::npos);
    CHECK(fault_of(shuffle_with_the_departed, 32, reinterpret_cast<float*>(out), 20)
              .find("which is not there") != std::string::npos);
    CHECK(fault_of(outside_its_mask, 32).find("is not in its own mask") != std::string::npos);
    CHECK(fault_of(barrier_that_half_a_warp_misses, 32, out).find("deadlock") != std::string::npos);
    CHECK(fault_of(different_collectives, 32, out).find("wait at another collective") !=
          std::string::npos);
    CHECK(fault_of(grid_barrier, 32).find("not cooperative") != std::string::npos);
    CHECK(fault_of(trapped, 32).find("__trap()") != std::string::npos);
#if !defined(SIMT_ASAN)
    CHECK(fault_of(overruns_dynamic_shared, 1, 40).find("of its 0 bytes of dynamic shared") !=
          std::string::npos);
#endif
  });
  cudaFree(out);
}

TEST_CASE("shared memory that nobody wrote is NaN, also after another block") {
  const Fresh fresh;
  float* out = to_device(std::vector<float>(32));
  for (int i = 0; i < 2; ++i) {
    simt::launch(false, reads_static_shared, 2, 32, 0, nullptr, out, true);
    for (const float v : to_host(out, 32)) CHECK(v == 1.f);
    simt::launch(false, reads_static_shared, 2, 32, 0, nullptr, out, false);
    for (const float v : to_host(out, 32)) CHECK(std::isnan(v));
    simt::launch(false, reads_dynamic_shared, 2, 32, 128, nullptr, out);
    for (const float v : to_host(out, 32)) CHECK(std::isnan(v));
  }
  cudaFree(out);
}

TEST_CASE("integer intrinsics agree with their definition") {
  CHECK(__popc(0xF0F0u) == 8);
  CHECK(__ffs(0) == 0);
  CHECK(__ffs(8) == 4);
  CHECK(__clz(1) == 31);
  CHECK(__brev(1u) == 0x80000000u);
  CHECK(__umulhi(0xffffffffu, 0xffffffffu) == 0xfffffffeu);
  CHECK(__umul64hi(~0ull, ~0ull) == ~0ull - 1);
  CHECK(__byte_perm(0x03020100u, 0x07060504u, 0x7531u) == 0x07050301u);
  CHECK(__funnelshift_l(0x80000000u, 1u, 1) == 3u);
}

TEST_CASE("a launch that the runtime would refuse is refused") {
  const Fresh fresh;
  const auto tried = [](dim3 grid, dim3 block, std::size_t shared, bool cooperative = false) {
    const auto e = simt::launch(cooperative, grid_barrier, grid, block, shared, nullptr);
    CHECK(cudaGetLastError() == e);
    return e;
  };
  CHECK(tried(1, 1025, 0) == cudaErrorInvalidConfiguration);
  CHECK(tried(0, 32, 0) == cudaErrorInvalidConfiguration);
  CHECK(tried(dim3(1, 65536), 32, 0) == cudaErrorInvalidConfiguration);
  CHECK(tried(1, 32, (48 << 10) + 1) == cudaErrorInvalidValue);
  CHECK(tried(4 * 32 + 1, 32, 0, true) == cudaErrorCooperativeLaunchTooLarge);
  CHECK(simt::counters().launches == 0);
}

}  // namespace simt_tests
