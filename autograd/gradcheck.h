// Analytic gradients against finite differences.
#pragma once
#include <functional>

#include "halftape/autograd/tensor.h"

namespace halftape::autograd {

struct GradcheckOptions {
  double eps = 1e-6;  // step of the central difference
  double atol = 1e-5, rtol = 1e-3;
  /// Compares one number for each input instead of its Jacobian: vᵀ J u with a fixed v and u, none
  /// of whose elements is 0 or another's opposite. Takes two calls of f for an input, however
  /// large.
  bool fast_mode = false;
};

using GradcheckFunction = std::function<Tensor(const TensorList&)>;

/// Compares the Jacobian of f by backward passes with central differences, element by element, for
/// every input that requires grad. Such inputs must be float64. Returns true; throws at the first
/// element that differs, and for an eps or a tolerance without sense. Records under NoGradGuard
/// too.
bool gradcheck(const GradcheckFunction& f, const TensorList& inputs,
               const GradcheckOptions& options = {});

/// The same for second derivatives: checks d/dx of ⟨grad f, v⟩ with a fixed v.
bool gradgradcheck(const GradcheckFunction& f, const TensorList& inputs,
                   const GradcheckOptions& options = {});

}  // namespace halftape::autograd
