// A static object of the program's may use the library in its destructor, after main().
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "halftape/tests/support/temp_folder.h"

using namespace halftape;

namespace {

void use_policies() {
  const amp::autocast region(kCPU, kBFloat16, amp::Policy::standard());
  const amp::autocast torch(kCPU, kBFloat16, amp::Policy::torch_cpu());
  const amp::autocast other(kCPU, kBFloat16, amp::Policy::torch_cuda());
  const amp::autocast own(kCPU, kBFloat16, amp::Policy().set("softmax", Cast::Lower));
  const amp::autocast stated(amp::PrecisionPolicy("params=float32,compute=bfloat16").state());
  // On the CPU: a GPU's driver ends before the program's statics do.
  const Tensor w = randn({2, 2}, kCPU).requires_grad_();
  (mm(w, ones({2, 2}, kCPU)) * 2).sum().backward();
  if (!w.grad().defined()) std::abort();
  (void)conv2d(ones({1, 1, 3, 3}, kCPU), ones({1, 1, 2, 2}, kCPU));  // without a bias
}

void use_scaler() {
  const Tensor w = randn({2, 2}, kCPU).requires_grad_();
  optim::SGD optimizer({w}, 0.1);
  if (!optimizer.state_of(w).empty()) std::abort();
  amp::GradScaler scaler;
  const auto fault = amp::inject({.parameter = "w"}, {{"w", w}});
  scaler.scale(w.sum()).backward();
  (void)scaler.step(optimizer);
  if (!fault.happened()) std::abort();
}

void use_anomaly_mode() {
  const std::string nowhere(sizeof(void*), '\0');
  if (!autograd::described_call(nowhere).starts_with("a place without a name")) std::abort();
  const autograd::DetectAnomalyGuard anomaly;
  try {
    (void)mm(ones({2, 3}, kCPU), ones({2, 3}, kCPU));
    std::abort();
  } catch (const Error&) {  // NOLINT: expected
  }
}

void use_group() {
  if (distributed::is_initialized()) return;  // another case's group
  const testing::TempFolder folder;
  try {  // refused once the store is open
    (void)distributed::init_process_group({.timeout = std::chrono::milliseconds(1),
                                           .init_method = "file://" + folder.path().string(),
                                           .rank = 0,
                                           .world_size = 2});
    std::abort();
  } catch (const Error&) {  // NOLINT: expected
  }
  (void)distributed::init_process_group({.rank = 0, .world_size = 1});
  distributed::destroy_process_group();
}

void use_everything() {
  use_policies();
  use_scaler();
  use_anomaly_mode();
  use_group();
}

/// Made before everything that the library makes, at the start or when it is first used, and so
/// destroyed after it.
struct Late {
  bool wanted = false;
  ~Late() try {
    if (wanted) use_everything();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "in a static's destructor: %s\n", e.what());
    std::abort();
  }
} late [[gnu::init_priority(101)]];

}  // namespace

TEST_CASE("a static may use the library in its destructor") {
  use_everything();
  late.wanted = true;  // what goes wrong there ends the program with SIGABRT
}
