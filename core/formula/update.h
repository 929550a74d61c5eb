// One parameter, one step. Read with S = float or double: 16-bit parameters are loaded, updated in
// float and rounded once. The order of operations is PyTorch's single-tensor one, so that values
// agree to rounding.
#pragma once
#include "halftape/core/formula/words.h"

namespace halftape {

/// Sutskever et al. 2013 as PyTorch writes it: v ← momentum·v + (1 − dampening)·g; p ← p − lr·v.
/// The first step sets v ← g, without dampening.
struct SgdScalars {
  double lr = 0, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
};

template <class S>
HALFTAPE_HD void sgd(S& p, S g, S& v, const SgdScalars& o, bool first) {
  if (o.maximize) g = -g;
  if (o.weight_decay != 0) g = g + S(o.weight_decay) * p;
  if (o.momentum != 0) {
    v = first ? g : S(o.momentum) * v + S(1 - o.dampening) * g;
    g = o.nesterov ? g + S(o.momentum) * v : v;
  }
  p = p - S(o.lr) * g;
}

/// Kingma & Ba 2014, arXiv:1412.6980; decoupled: Loshchilov & Hutter 2017, arXiv:1711.05101;
/// amsgrad: Reddi et al. 2018.
struct AdamScalars {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  bool decoupled = false;  // AdamW
  bool amsgrad = false;
  bool maximize = false;
};

/// The bias corrections of step `t` (1-based), in double.
struct AdamStep {
  double step_size = 0;  // lr / (1 − β1ᵗ)
  double root = 1;       // √(1 − β2ᵗ)
};
HALFTAPE_HD AdamStep adam_step(const AdamScalars& o, double t) {
  return {o.lr / (1 - pow(o.beta1, t)), sqrt(1 - pow(o.beta2, t))};
}

template <class S>
HALFTAPE_HD void adam(S& p, S g, S& m, S& v, S& v_max, const AdamScalars& o, const AdamStep& s) {
  if (o.maximize) g = -g;
  if (o.weight_decay != 0) {
    if (o.decoupled)
      p = p * S(1 - o.lr * o.weight_decay);
    else
      g = g + S(o.weight_decay) * p;
  }
  m = m + S(1 - o.beta1) * (g - m);
  v = S(o.beta2) * v + S(1 - o.beta2) * (g * g);
  S second = v;
  if (o.amsgrad) second = v_max = where(v_max > v, v_max, v);
  const S denominator = sqrt(second) / S(s.root) + S(o.eps);
  p = p - S(s.step_size) * (m / denominator);
}

}  // namespace halftape
