// Saved states, compared.
#pragma once
#include <algorithm>
#include <map>
#include <string>

#include "halftape/autograd/tensor.h"
#include "halftape/optim/optimizer.h"

namespace halftape::fuzz {

using Numbers = std::map<std::string, double>;

/// NaN is the same as NaN.
inline bool same(const Numbers& a, const Numbers& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first &&
           (x.second == y.second || (x.second != x.second && y.second != y.second));
  });
}

template <class ArraysByName>
bool same_arrays(const ArraysByName& a, const ArraysByName& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && Tensor(x.second).equal(Tensor(y.second));
  });
}

inline bool same_state(const optim::OptimizerState& a, const optim::OptimizerState& b) {
  return std::equal(a.groups.begin(), a.groups.end(), b.groups.begin(), b.groups.end(), same) &&
         std::equal(a.state.begin(), a.state.end(), b.state.begin(), b.state.end(),
                    same_arrays<optim::ParamState>);
}

}  // namespace halftape::fuzz
