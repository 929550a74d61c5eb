// Batches in pinned memory.
#pragma once
#include <type_traits>
#include <utility>
#include <vector>

#include "halftape/io/data/example.h"

namespace halftape::data {

/// True if there is a GPU, for which memory can be pinned.
bool has_gpu();

namespace detail {

/// CPU tensors in pinned memory, also inside examples and vectors; anything else unchanged.
template <class T>
T pinned(T batch) {
  return batch;
}
inline Tensor pinned(Tensor batch) {
  return batch.defined() && batch.device().is_cpu() ? batch.pin_memory() : batch;
}
template <class Data, class Target>
Example<Data, Target> pinned(Example<Data, Target> batch);
template <class T>
std::vector<T> pinned(std::vector<T> batch) {
  for (T& one : batch) one = pinned(std::move(one));
  return batch;
}
template <class Data, class Target>
Example<Data, Target> pinned(Example<Data, Target> batch) {
  batch.data = pinned(std::move(batch.data));
  if constexpr (!std::is_void_v<Target>) batch.target = pinned(std::move(batch.target));
  return batch;
}

}  // namespace detail
}  // namespace halftape::data
