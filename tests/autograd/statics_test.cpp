// A static object of the program's may use the library in its destructor, after main().
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

using namespace halftape;

namespace {

void use_everything() {
  const amp::autocast region(kCPU, kBFloat16, amp::Policy::standard());
  const amp::autocast inner(kCPU, kBFloat16, amp::Policy::torch_cpu());
  // On the CPU: a GPU's driver ends before the program's statics do.
  const Tensor w = randn({2, 2}, kCPU).requires_grad_();
  (mm(w, ones({2, 2}, kCPU)) * 2).sum().backward();
  if (!w.grad().defined()) std::abort();
}

/// Made before everything that the library makes when it is first used, and so destroyed after it.
struct Late {
  bool wanted = false;
  ~Late() try {
    if (wanted) use_everything();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "in a static's destructor: %s\n", e.what());
    std::abort();
  }
} late;

}  // namespace

TEST_CASE("a static may draw numbers and cast in its destructor") {
  use_everything();
  late.wanted = true;  // what goes wrong there ends the program with SIGABRT
}
