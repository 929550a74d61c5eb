// LibTorch's loops over the threads of the CPU.
#pragma once
#include <halftape/core/machine/threads.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace at {

using halftape::get_num_threads;
using halftape::set_num_threads;

namespace detail {
inline thread_local bool in_parallel_region = false;
}
inline bool in_parallel_region() { return detail::in_parallel_region; }

/// f(from, to) for parts of [begin, end) that together are all of it, of at least `grain_size` each
/// but for the last, at once on at most get_num_threads() threads; on this thread alone if there is
/// one part, and within another loop. Which parts there are depends on the number of threads. The
/// exception of the first part that threw is thrown when all have ended. Threads are started for
/// each call (some 20 µs each): give it work that is worth it.
template <class F>
void parallel_for(int64_t begin, int64_t end, int64_t grain_size, const F& f) {
  if (begin >= end) return;
  const int64_t n = end - begin, grain = std::max<int64_t>(grain_size, 1);
  const int64_t parts = std::min<int64_t>(get_num_threads(), (n - 1) / grain + 1);
  if (parts <= 1 || in_parallel_region()) return f(begin, end);
  const int64_t each = (n - 1) / parts + 1;
  std::vector<std::exception_ptr> errors(static_cast<size_t>(parts));
  const auto run = [&](int64_t part) {
    const int64_t from = begin + part * each;
    detail::in_parallel_region = true;
    try {
      if (from < end) f(from, std::min(from + each, end));
    } catch (...) {
      errors[static_cast<size_t>(part)] = std::current_exception();
    }
    detail::in_parallel_region = false;
  };
  {
    std::vector<std::jthread> others;
    others.reserve(errors.size());
    for (int64_t part = 1; part < parts; ++part) others.emplace_back(run, part);
    run(0);
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

/// The values f(from, to, identity) of such parts, combined by `combine` in the parts' order. The
/// parts have `grain_size` elements each, or more where they would be more than 4096: whatever the
/// number of threads, and so the sum of floats is the same.
template <class Value, class F, class Combine>
Value parallel_reduce(int64_t begin, int64_t end, int64_t grain_size, Value identity, const F& f,
                      const Combine& combine) {
  if (begin >= end) return identity;
  const int64_t n = end - begin, grain = std::max({grain_size, int64_t{1}, (n - 1) / 4096 + 1});
  const int64_t parts = (n - 1) / grain + 1;
  struct Slot {  // of its own for each thread, which a vector<bool> has not
    Value value;
  };
  std::vector<Slot> slots(static_cast<size_t>(parts), Slot{identity});
  parallel_for(0, parts, 1, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i)
      slots[static_cast<size_t>(i)].value =
          f(begin + i * grain, std::min(begin + (i + 1) * grain, end), identity);
  });
  Value all = identity;
  for (const Slot& slot : slots) all = combine(all, slot.value);
  return all;
}

}  // namespace at

namespace torch {
using at::parallel_for;
using at::parallel_reduce;
inline void init_num_threads() {}
/// Ops run one after another.
inline void set_num_interop_threads(int) {}
inline int get_num_interop_threads() { return 1; }
}  // namespace torch
