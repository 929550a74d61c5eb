// Faults of a GPU: memory runs out, kernels break the device, the host forgets to wait. On the rig,
// which fails on request.
#include <doctest/doctest.h>

#if defined(HALFTAPE_SIMT)
#include <halftape/halftape.h>

#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "halftape/core/machine/warn.h"
#include "halftape/cuda/runtime/runtime.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/poke.h"
#include "halftape/tests/support/warnings.h"
#include "rig.h"

using namespace halftape;
using namespace halftape::testing;

namespace {

/// One step of training in float16: forward, backward, scaler, optimizer.
struct HalfTraining {
  nn::Sequential model{nn::Linear(8, 16), nn::ReLU(), nn::Linear(16, 4)};
  optim::Adam optimizer{model->parameters(), optim::AdamOptions(1e-2)};
  amp::GradScaler scaler{{.init_scale = 1024}};
  Tensor x = (arange(0, 40).to(kFloat32) * 0.1).sin().reshape({5, 8});
  Tensor y = tensor({0, 1, 2, 3, 1}, kInt64);

  void step() {
    optimizer.zero_grad();
    Tensor loss;
    {
      const amp::autocast region(kCUDA, kFloat16);
      loss = nn::functional::cross_entropy(model->forward(x), y);
    }
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
  }
};

/// Ops of one launch each.
struct Named {
  std::string name;
  Tensor (*of)(const Tensor&);
};
#define NAMED(op)                              \
  Named {                                      \
#op, [](const Tensor& x) { return op(x); } \
  }
const Named kChain[] = {NAMED(neg),   NAMED(exp),  NAMED(sin),   NAMED(cos),   NAMED(tanh),
                        NAMED(abs),   NAMED(sqrt), NAMED(floor), NAMED(erf),   NAMED(atan),
                        NAMED(sinh),  NAMED(cosh), NAMED(expm1), NAMED(trunc), NAMED(relu),
                        NAMED(log1p), NAMED(ceil), NAMED(round), NAMED(frac),  NAMED(asinh)};
#undef NAMED

}  // namespace

TEST_CASE("memory that runs out once is asked for again after the cache was given back") {
  const Clean clean;
  simt::fail_allocation(1);
  CHECK(ones({100}).sum().item() == 100);
}

TEST_CASE("memory that has run out is an error with the figures, and the next call works") {
  const Clean clean;
  simt::fail_allocation(1, /*and_after=*/true);
  const std::string m = message<OutOfMemoryError>([] { ones({1000}, kFloat64); });
  CHECK(has(m, "cuda:0 is out of memory: 0.0 MiB asked for"));
  CHECK(has(m, "held by arrays"));
  CHECK(has(m, "use a smaller batch"));
  simt::reset();
  CHECK(ones({100}).sum().item() == 100);
}

TEST_CASE("pinned memory that has run out is an error with the figure, and the next call works") {
  const Clean clean;
  Tensor big = empty({int64_t{1} << 22}, TensorOptions(kUInt8).device(kCPU));  // no block is kept
  simt::fail_allocation(1, /*and_after=*/true);
  CHECK(has(message<OutOfMemoryError>([&] { (void)big.pin_memory(); }),
            "allocating 4194304 bytes of pinned memory"));
  simt::reset();
  CHECK(big.pin_memory().is_pinned());
}

TEST_CASE("any allocation of a training step may fail: the step throws, and the next one works") {
  const Clean clean;
  manual_seed(1);
  HalfTraining t;
  t.step();
  simt::reset_counters();
  t.step();
  const auto allocations = simt::counters().allocations;
  CHECK(allocations > 20);
  for (int64_t nth = 1; nth <= allocations; nth += 3) {
    CAPTURE(nth);
    simt::fail_allocation(static_cast<int>(nth), /*and_after=*/true);
    CHECK_THROWS_AS(t.step(), OutOfMemoryError);
    simt::reset();
    CHECK_NOTHROW(t.step());
  }
}

TEST_CASE(
    "a kernel that breaks the device is named by the call that notices, and by all after it") {
  const Clean clean;
  const Tensor x = ones({100});
  cuda::synchronize();
  simt::fail_launch(2);
  const Tensor a = x * 2, b = a.exp(), c = b + 1;  // exp breaks the device; no call has noticed yet
  const std::string m = message([&] { c.item(); });
  CHECK(m.empty() == false);
  const std::string found = message([&] { c.sum().item(); });
  CHECK(has(found, "illegal memory access"));
  CHECK(has(found, "exp"));
  CHECK(has(found, "the GPU cannot be used any more in this process"));
  CHECK(has(message([&] { ones({3}); }), "illegal memory access"));
  CHECK(has(message([&] { cuda::synchronize(); }), "illegal memory access"));
}

TEST_CASE("after any error that breaks the device, the host is told that it can no more be used") {
  for (const cudaError_t e :
       {cudaErrorIllegalAddress, cudaErrorLaunchFailure, cudaErrorAssert,
        cudaErrorIllegalInstruction, cudaErrorMisalignedAddress, cudaErrorInvalidAddressSpace,
        cudaErrorInvalidPc, cudaErrorLaunchTimeout, cudaErrorHardwareStackError,
        cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorContained,
        cudaErrorTensorMemoryLeak, cudaErrorExternalDevice, cudaErrorMpsClientTerminated}) {
    const Clean clean;
    const Tensor x = ones({100});
    simt::fail_launch(1, e);
    const Tensor y = x.exp();
    const std::string m = message([] { cuda::synchronize(); });
    CAPTURE(m);
    CHECK(has(m, cudaGetErrorName(e)));
    CHECK(has(m, "cannot be used any more in this process; enqueued before, the last first: exp"));
  }
}

TEST_CASE("whichever of 12 kernels breaks the device, it is among the 8 that the error names") {
  for (int k = 1; k <= 12; ++k)
    for (int later = 0; later < 8; ++later) {
      CAPTURE(k);
      CAPTURE(later);
      const Clean clean;
      Tensor x = ones({100});
      cuda::synchronize();
      simt::fail_launch(k);
      for (int i = 0; i < k + later; ++i) x = kChain[i].of(x);
      const std::string m = message([&] { cuda::synchronize(); }), name = kChain[k - 1].name;
      CHECK_MESSAGE((has(m, ' ' + name + ", ") || has(m, ' ' + name + " (")), m);
    }
}

TEST_CASE("with a wait after every launch the call that breaks the device throws itself") {
  for (int k = 1; k <= static_cast<int>(std::size(kChain)); ++k) {
    CAPTURE(k);
    const Clean clean;
    Tensor x = ones({100});
    cuda::synchronize();
    cuda::set_blocking(true);
    simt::fail_launch(k);
    for (int i = 1; i < k; ++i) x = kChain[i - 1].of(x);
    const Named& op = kChain[k - 1];
    const std::string m = message([&] { x = op.of(x); });
    cuda::set_blocking(false);
    CHECK_MESSAGE(has(m, "cuda: " + op.name + ": "), m);
    CHECK(has(m, "illegal memory access"));
    CHECK_FALSE(has(m, "enqueued before"));
  }
}

TEST_CASE("a training step waits for nothing, and gives the same bits however late it runs") {
  const Clean clean;
  auto trained = [](simt::Mode mode) {
    const simt::With with(now_with([&](auto& s) { s.mode = mode; }));
    manual_seed(1);
    HalfTraining t;
    for (int i = 0; i < 3; ++i) t.step();
    cuda::synchronize();
    simt::reset_counters();
    t.step();
    const auto waits = simt::counters().synchronisations;
    CHECK(waits == 0);
    std::vector<double> weights;
    for (const Tensor& p : t.model->parameters())
      for (const double w : p.to_vector()) weights.push_back(w);
    return weights;
  };
  CHECK(trained(simt::Mode::Deferred) == trained(simt::Mode::Immediate));
}

TEST_CASE("a training step gives the same bits in every order of threads") {
  const Clean clean;
  std::vector<std::vector<double>> all;
  simt::in_every_order([&] {
    manual_seed(1);
    HalfTraining t;
    for (int i = 0; i < 3; ++i) t.step();
    all.emplace_back();
    for (const Tensor& p : t.model->parameters())
      for (const double w : p.to_vector()) all.back().push_back(w);
  });
  CHECK(all[0] == all[1]);
  CHECK(all[0] == all[2]);
}

TEST_CASE("pinned memory may be copied from late") {
  const Clean clean;
  const simt::With with(now_with([](auto& s) { s.mode = simt::Mode::Deferred; }));
  Tensor there;
  {
    const Tensor pinned = arange(0, 1000, TensorOptions(kCPU)).to(kFloat32).pin_memory();
    there = pinned.to(kCUDA, /*non_blocking=*/true);
    CHECK(simt::pending_work() > 0);
  }  // freed while the copy is under way
  CHECK(there.sum().item() == 499500);
  // Ordinary memory, and that of blocking copies, may change as soon as the call returns.
  for (const bool pin : {false, true}) {
    Tensor host = ones({1000}, kCPU);
    if (pin) host = host.pin_memory();
    there = host.to(kCUDA, /*non_blocking=*/!pin);
    host.fill_(7);
    CHECK(there.sum().item() == 1000);
  }
}

TEST_CASE("of two notes that kernels leave, the first stays until the host has read it") {
  const Clean clean;
  testing::Warnings warnings;
  std::vector<std::string>& said = warnings.seen;
  const simt::With late(now_with([](auto& s) { s.mode = simt::Mode::Deferred; }));
  const Tensor x = ones({4}), seven = full({1}, 7, kInt64), nine = full({1}, 9, kInt64);
  CHECK(has(message([&] {
              (void)x.index_select(0, seven);
              (void)x.index_select(0, nine);
            }),
            "index 7 at position 0"));
  CHECK(message([] {}) == "");
  for (const double scale : {1024.0, 64.0}) {
    const Tensor p = ones({2}, requires_grad());
    optim::SGD optimizer({p}, optim::SGDOptions(0.1));
    amp::GradScaler scaler({.init_scale = scale, .warn_after_skips = 1});
    scaler.scale(p.sum()).backward();
    poke(p.grad(), 0, HUGE_VAL);
    scaler.step(optimizer);
    scaler.update();
  }
  CHECK(said.empty());
  cuda::synchronize();
  REQUIRE(said.size() == 1);
  CHECK(has(said[0], "the scale is 512"));
}

TEST_CASE("a bad index is told to each thread that has used the device, once") {
  const Clean clean;
  const simt::With late(now_with([](auto& s) { s.mode = simt::Mode::Deferred; }));
  const Tensor rows = ones({4, 2}), index = full({1}, 99, kInt64);
  Tensor y;
  std::thread([&] { y = rows.index_select(0, index); }).join();
  std::string stranger, newcomer;
  std::thread([&] { stranger = message([] { cuda::synchronize(); }); }).join();
  CHECK(has(stranger, "index 99"));  // it took the note
  std::thread([&] { newcomer = message([] { cuda::synchronize(); }); }).join();
  CHECK(newcomer == "");
  CHECK(has(message([&] { (void)y.cpu(); }), "index 99"));
  CHECK(message([&] { (void)y.cpu(); }) == "");
}

TEST_CASE("a second GPU is another device") {
  const Clean clean;
  REQUIRE(cuda::device_count() == 2);
  const Tensor a = ones({3}, Device(kCUDA, 0)), b = a.to(Device(kCUDA, 1));
  CHECK(b.device().index() == 1);
  CHECK((b * 2).cpu().to_vector() == std::vector<double>{2, 2, 2});
  CHECK_THROWS_AS(a + b, Error);
  amp::GradScaler scaler;
  scaler.scale(a.sum());
  CHECK(has(message([&] { scaler.scale(b.sum()); }),
            "the loss is on cuda:1, the scaler's state on cuda:0"));
}

TEST_CASE("a GPU that cannot be used says why, and hides no other one") {
  const Clean clean;
  const auto why_not = [](unsigned foreign, bool pools) {
    const simt::With mixed(now_with([=](simt::Settings& s) {
      s.devices = 3;
      s.foreign = foreign;
      s.memory_pools = pools;
    }));
    std::string reason;
    const std::unique_ptr<cuda::Runtime> opened(cuda::halftape_cuda_open(&reason));
    CHECK((opened == nullptr) == !reason.empty());
    if (opened) {
      CHECK(opened->device_count() == 3);
      // Not used before, and so not made yet.
      const std::string m = message([&] { (void)opened->backend(2); });
      CHECK(has(m, "cuda:2 cannot be used: the backend was not built for this GPU's architecture"));
    }
    return reason;
  };
  CHECK(why_not(0b100, true) == "");
  CHECK(why_not(0b101, true) == "");
  CHECK(has(why_not(0b111, true), "cuda:0: the backend was not built for this GPU's architecture"));
  CHECK(has(why_not(0, false), "cuda:0: it has no memory pools"));
}

TEST_CASE("a copy to another GPU waits for its source, and the source for it, but nobody here") {
  const Clean clean;
  const simt::With late(now_with([](simt::Settings& s) { s.mode = simt::Mode::Deferred; }));
  const Device first(kCUDA, 0), second(kCUDA, 1);
  const Tensor one = ones({1000}, first);
  const auto waits = simt::counters().synchronisations;
  const Tensor copied = (one * 2).to(second);
  CHECK(simt::counters().synchronisations == waits);
  cuda::synchronize(first);  // frees the product
  CHECK(copied.sum().item<float>() == 2000);
}
#endif
