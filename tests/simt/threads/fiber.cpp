#include "threads/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

#include "threads/sanitizers.h"

// Saves the callee-saved registers and the stack pointer, and takes up the other's.
extern "C" void simt_switch_stacks(void** save, void* load);
#if defined(__x86_64__)
asm(R"(
  .text
  .type simt_switch_stacks,@function
simt_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size simt_switch_stacks,.-simt_switch_stacks
)");
#elif defined(__aarch64__)
asm(R"(
  .text
  .type simt_switch_stacks,%function
simt_switch_stacks:
  sub sp,sp,#160
  stp x19,x20,[sp,#0]
  stp x21,x22,[sp,#16]
  stp x23,x24,[sp,#32]
  stp x25,x26,[sp,#48]
  stp x27,x28,[sp,#64]
  stp x29,x30,[sp,#80]
  stp d8,d9,[sp,#96]
  stp d10,d11,[sp,#112]
  stp d12,d13,[sp,#128]
  stp d14,d15,[sp,#144]
  mov x9,sp
  str x9,[x0]
  mov sp,x1
  ldp x19,x20,[sp,#0]
  ldp x21,x22,[sp,#16]
  ldp x23,x24,[sp,#32]
  ldp x25,x26,[sp,#48]
  ldp x27,x28,[sp,#64]
  ldp x29,x30,[sp,#80]
  ldp d8,d9,[sp,#96]
  ldp d10,d11,[sp,#112]
  ldp d12,d13,[sp,#128]
  ldp d14,d15,[sp,#144]
  add sp,sp,#160
  ret
  .size simt_switch_stacks,.-simt_switch_stacks
)");
#else
#error "simt: no switch of stacks for this processor"
#endif

namespace simt {
namespace {

constexpr std::size_t kGuard = 4096;  // without access, so that an overflow faults
#if defined(SIMT_ASAN) || defined(SIMT_TSAN)
constexpr std::size_t kStack = 512 << 10;  // instrumented frames are several times as large
#else
constexpr std::size_t kStack = 128 << 10;
#endif

}  // namespace

Fiber::Fiber() {
#ifdef SIMT_TSAN
  tsan_fiber_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(void (*entry)(), std::size_t number) : size_(kStack) {
  void* mapped = mmap(nullptr, kStack, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) std::abort();
  mprotect(mapped, kGuard, PROT_NONE);
  stack_ = static_cast<char*>(mapped);
  bottom_ = stack_;
  // Staggered: stacks that begin at the same offset share one set of the cache, and a shuffle then
  // takes two and a half times as long.
  char* top = stack_ + kStack - (number + 1) % 64 * 320;
#if defined(__x86_64__)
  void** frame = reinterpret_cast<void**>(top) - 2;  // entry() sees rsp = 8 mod 16, as after a call
  *frame = reinterpret_cast<void*>(entry);
  stack_pointer_ = frame - 6;
#else
  void** frame = reinterpret_cast<void**>(top - 160);
  frame[11] = reinterpret_cast<void*>(entry);  // x30, the link register
  stack_pointer_ = frame;
#endif
#ifdef SIMT_TSAN
  tsan_fiber_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  if (!stack_) return;
#ifdef SIMT_TSAN
  __tsan_destroy_fiber(tsan_fiber_);
#endif
  allow(stack_, kStack);  // frames that a failed kernel left behind
  munmap(stack_, kStack);
}

void Fiber::switch_to(Fiber& to) {
#ifdef SIMT_ASAN
  __sanitizer_start_switch_fiber(&fake_stack_, to.bottom_, to.size_);
#endif
#ifdef SIMT_TSAN
  __tsan_switch_to_fiber(to.tsan_fiber_, 0);
#endif
  simt_switch_stacks(&stack_pointer_, to.stack_pointer_);
#ifdef SIMT_ASAN
  __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
}

void Fiber::arrived([[maybe_unused]] Fiber& first) {
#ifdef SIMT_ASAN
  const void* bottom;
  std::size_t size;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
  if (!first.bottom_) first.bottom_ = bottom, first.size_ = size;
#endif
}

bool Fiber::guards(const void* address) const {
  return stack_ && address >= stack_ && address < stack_ + kGuard;
}

}  // namespace simt
