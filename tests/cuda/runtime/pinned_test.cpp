// Pinned memory on a device that runs late, on the rig: ours, which is used again, and others'.
#include <doctest/doctest.h>

#if defined(HALFTAPE_SIMT)
#include <halftape/halftape.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "halftape/cuda/runtime/runtime.h"
#include "rig.h"

using namespace halftape;
using namespace halftape::testing;

namespace {

simt::Settings running_late() {
  return now_with([](simt::Settings& s) { s.mode = simt::Mode::Deferred; });
}
Tensor pinned_numbers(double value) {
  return full({1000}, value, TensorOptions(kFloat32).device(kCPU)).pin_memory();
}

}  // namespace

TEST_CASE("pinned memory that is let go of is used again after its copies, and nobody waits") {
  const Clean clean;
  const simt::With late(running_late());
  for (const bool to_host : {false, true}) {
    CAPTURE(to_host);
    Tensor there = full({1000}, 3, TensorOptions(kFloat32).device(kCUDA)), host = pinned_numbers(1);
    cuda::synchronize();
    simt::reset_counters();
    if (to_host)
      host = there.to(kCPU, /*non_blocking=*/true);
    else
      there = host.to(kCUDA, /*non_blocking=*/true);
    const void* const memory = host.array().raw();
    host = Tensor();
    const Tensor other = pinned_numbers(2);
    CHECK(other.array().raw() != memory);  // which the copy has not read or written yet
    CHECK(simt::counters().synchronisations == 0);
    CHECK(there.sum().item<float>() == (to_host ? 3000 : 1000));
    simt::reset_counters();
    CHECK(pinned_numbers(4).array().raw() == memory);
    CHECK(simt::counters().pinned_allocations == 0);
    CHECK(other.to_vector<float>() == std::vector<float>(1000, 2));
  }
}

TEST_CASE("pinned memory that nobody holds goes back to the system on request") {
  const Clean clean;
  (void)pinned_numbers(1);
  cuda::empty_cache();
  simt::reset_counters();
  (void)pinned_numbers(2);
  CHECK(simt::counters().pinned_allocations == 1);
}

TEST_CASE("pinned memory that a step lets go of is used again, though the capture fails") {
  const Clean clean;
  Tensor host = pinned_numbers(1);
  const void* const memory = host.array().raw();
  int times = 0;
  CHECK_THROWS_AS(Graph(kCUDA,
                        [&] {
                          if (++times == 1) return;  // the trial
                          host = Tensor();
                          void* const stream = cuda::current_stream().handle();
                          (void)cudaStreamSynchronize(static_cast<cudaStream_t>(stream));
                        }),
                  Error);
  CHECK(times == 2);
  CHECK(pinned_numbers(2).array().raw() == memory);
}

TEST_CASE("a blocking copy has read memory that others have pinned when it returns") {
  const Clean clean;
  const simt::With late(running_late());
  std::vector<float> host(1000, 1);
  const Tensor blob = from_blob(host.data(), {1000}, TensorOptions(kFloat32).device(kCPU));
  simt::reset_counters();
  Tensor there = blob.to(kCUDA);
  CHECK(simt::counters().synchronisations == 0);  // CUDA has taken the bytes
  CHECK(there.sum().item<float>() == 1000);
  REQUIRE(cudaHostRegister(host.data(), 4000, cudaHostRegisterDefault) == cudaSuccess);
  for (const bool non_blocking : {false, true}) {  // only our own memory may be read later
    std::fill(host.begin(), host.end(), 2.f);
    there = blob.to(kCUDA, non_blocking);
    std::fill(host.begin(), host.end(), 7.f);
    CHECK(there.sum().item<float>() == 2000);
  }
  CHECK(cudaHostUnregister(host.data()) == cudaSuccess);
}

TEST_CASE("a blocking copy has read ordinary memory, also on a device that reads it by itself") {
  const Clean clean;
  const simt::With late(now_with([](simt::Settings& s) {
    s.mode = simt::Mode::Deferred;
    s.devices = 4;
    s.pageable_access = true;
  }));
  std::string why_not;
  const std::unique_ptr<cuda::Runtime> opened(cuda::halftape_cuda_open(&why_not));
  REQUIRE(opened);
  Backend& fourth = opened->backend(3);  // of no other test, for it is asked once
  const Array there(fourth.allocate(4000), {1000}, {1}, 0, kFloat32),
      host = full({1000}, 1, kFloat32, kCPU);
  fourth.copy_across(there, host, false);
  backend(kCPU).fill(host, 7);
  std::vector<float> seen(1000);
  fourth.read(seen.data(), there);
  CHECK(seen == std::vector<float>(1000, 1));
}
#endif
