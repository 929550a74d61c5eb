// What zero_grad() does with gradients when it is not told.
#pragma once
#include <atomic>

namespace halftape {

namespace detail {
inline std::atomic<bool> zero_grad_drops{true};
}

/// Does zero_grad() without an argument drop gradients, as LibTorch 2 does, or fill them with 0, as
/// LibTorch 1 did? Unless a program says otherwise: they are dropped.
inline bool zero_grad_sets_to_none() {
  return detail::zero_grad_drops.load(std::memory_order_relaxed);
}
/// For the whole process: for programs that read a gradient after zero_grad().
inline void set_zero_grad_sets_to_none(bool drops) {
  detail::zero_grad_drops.store(drops, std::memory_order_relaxed);
}

}  // namespace halftape
