// The sums of the fake NCCL.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <type_traits>
#include <vector>

#include "halftape/core/half.h"

template <class T>
std::vector<char> fake_sum_of(const std::map<int, std::vector<char>>& parts, size_t size, int op) {
  std::vector<double> sums;
  for (const auto& [rank, bytes] : parts)
    for (size_t i = 0; i < size / sizeof(T); ++i) {
      T value;
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
      const auto x = static_cast<double>(value);
      if (rank == 0)
        sums.push_back(x);
      else if (op == 0 || op == 4)
        sums[i] += x;
      else
        sums[i] = op == 1 ? sums[i] * x : op == 2 ? std::max(sums[i], x) : std::min(sums[i], x);
    }
  std::vector<char> all(size);
  for (size_t i = 0; i < sums.size(); ++i) {
    const double y = op == 4 ? sums[i] / static_cast<double>(parts.size()) : sums[i];
    T value;
    if constexpr (std::is_arithmetic_v<T>)
      value = static_cast<T>(y);
    else
      value = T(static_cast<float>(y));
    std::memcpy(all.data() + i * sizeof(T), &value, sizeof(T));
  }
  return all;
}

/// The parts of all ranks, combined in their order; empty for a dtype that NCCL has not. `type` and
/// `op` are NCCL's numbers.
inline std::vector<char> fake_sum(const std::map<int, std::vector<char>>& parts, size_t size,
                                  int type, int op) {
  switch (type) {
    case 0:
      return fake_sum_of<int8_t>(parts, size, op);
    case 1:
      return fake_sum_of<uint8_t>(parts, size, op);
    case 2:
      return fake_sum_of<int32_t>(parts, size, op);
    case 4:
      return fake_sum_of<int64_t>(parts, size, op);
    case 6:
      return fake_sum_of<halftape::Half>(parts, size, op);
    case 7:
      return fake_sum_of<float>(parts, size, op);
    case 8:
      return fake_sum_of<double>(parts, size, op);
    case 9:
      return fake_sum_of<halftape::BFloat16>(parts, size, op);
    default:
      return {};
  }
}
