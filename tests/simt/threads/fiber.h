// A fiber: a stack and the switch to it. Every CUDA thread of a running block is one.
#pragma once
#include <cstddef>

namespace simt {

class Fiber {
 public:
  Fiber();                                     // the stack this OS thread already runs on
  Fiber(void (*entry)(), std::size_t number);  // a new stack, on which entry() will start
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Switches from this fiber, which must be the running one, to `to`. Returns when another fiber
  /// switches back.
  void switch_to(Fiber& to);
  /// The first thing entry() calls: tells the sanitizers where it is. `first` is the OS thread's
  /// own stack, from which the first fiber of a thread is always started.
  static void arrived(Fiber& first);
  /// True if a fault at `address` is an overflow of this stack.
  bool guards(const void* address) const;

 private:
  void* stack_pointer_ = nullptr;
  char* stack_ = nullptr;  // what was mapped; null for the OS thread's own
  // For AddressSanitizer and ThreadSanitizer, where they are.
  [[maybe_unused]] const void* bottom_ = nullptr;
  [[maybe_unused]] std::size_t size_ = 0;
  [[maybe_unused]] void* fake_stack_ = nullptr;
  [[maybe_unused]] void* tsan_fiber_ = nullptr;
};

}  // namespace simt
