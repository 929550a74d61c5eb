// One parameter, one step. A rule is its options and a formula, read with S = float or double:
// 16-bit parameters are loaded, updated in float and rounded once. The order of operations is
// PyTorch's single-tensor one, so that values agree to rounding.
#pragma once
#include <variant>

#include "halftape/core/formula/words.h"

namespace halftape {

// The state of a rule is `kMoments` arrays of the parameter's shape, in the order of the names
// behind that number. begin(t) is called once for a parameter's t-th step (from 1), in double,
// unless no steps are counted. The rule itself is called for each element: p is the parameter, g
// its gradient, m[i] its state. A moment that the options do without may be missing, and is 0 then.

/// beta·m + (1 − beta)·g, from the one that counts more: where the other is far larger, the first
/// form would leave few digits of a small beta's average, and none of g at beta = 0.
template <class S>
HALFTAPE_HD S averaged(S m, S g, double beta) {
  return beta > 0.5 ? m + S(1 - beta) * (g - m) : g + S(beta) * (m - g);
}

/// Sutskever et al. 2013 as PyTorch writes it: v ← momentum·v + (1 − dampening)·g; p ← p − lr·v.
/// The first step sets v ← g, without dampening.
struct SgdRule {
  static constexpr auto name = "sgd";
  static constexpr int kMoments = 1;  // momentum_buffer
  double lr = 0, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;

  struct Step {
    bool first = false;
  };
  HALFTAPE_HD Step begin(double t) const { return {t == 1}; }
  template <class S>
  HALFTAPE_HD void operator()(S& p, S g, S* m, const Step& s) const {
    if (maximize) g = -g;
    if (weight_decay != 0) g = g + S(weight_decay) * p;
    if (momentum != 0) {
      m[0] = s.first ? g : S(momentum) * m[0] + S(1 - dampening) * g;
      g = nesterov ? g + S(momentum) * m[0] : m[0];
    }
    p = p - S(lr) * g;
  }
};

/// Kingma & Ba 2014, arXiv:1412.6980; decoupled: Loshchilov & Hutter 2017, arXiv:1711.05101;
/// amsgrad: Reddi et al. 2018.
struct AdamRule {
  static constexpr auto name = "adam";
  static constexpr int kMoments = 3;  // exp_avg, exp_avg_sq, max_exp_avg_sq
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  bool decoupled = false;  // AdamW
  bool amsgrad = false;
  bool maximize = false;

  /// The bias corrections.
  struct Step {
    double step_size = 0;  // lr / (1 − β1ᵗ)
    double root = 1;       // √(1 − β2ᵗ)
  };
  HALFTAPE_HD Step begin(double t) const {
    return {lr / (1 - pow(beta1, t)), sqrt(1 - pow(beta2, t))};
  }
  template <class S>
  HALFTAPE_HD void operator()(S& p, S g, S* m, const Step& s) const {
    if (maximize) g = -g;
    if (weight_decay != 0) {
      if (decoupled)
        p = p * S(1 - lr * weight_decay);
      else
        g = g + S(weight_decay) * p;
    }
    m[0] = averaged(m[0], g, beta1);
    m[1] = S(beta2) * m[1] + S(1 - beta2) * (g * g);
    S second = m[1];
    if (amsgrad) second = m[2] = where(m[2] > m[1], m[2], m[1]);
    const S denominator = sqrt(second) / S(s.root) + S(eps);
    p = p - S(s.step_size) * (m[0] / denominator);
  }
};

/// Tieleman & Hinton 2012, lecture 6.5; centered: Graves 2013, arXiv:1308.0850. eps is added to the
/// root. Centered, rounding may take the variance below 0, where PyTorch makes NaN: 0 here.
struct RmspropRule {
  static constexpr auto name = "rmsprop";
  static constexpr int kMoments = 3;  // square_avg, momentum_buffer, grad_avg
  double lr = 0, alpha = 0, eps = 0, weight_decay = 0, momentum = 0;
  bool centered = false;
  bool maximize = false;

  struct Step {};
  HALFTAPE_HD Step begin(double) const { return {}; }
  template <class S>
  HALFTAPE_HD void operator()(S& p, S g, S* m, const Step&) const {
    if (maximize) g = -g;
    if (weight_decay != 0) g = g + S(weight_decay) * p;
    m[0] = S(alpha) * m[0] + S(1 - alpha) * g * g;
    S second = m[0];
    if (centered) {
      m[2] = averaged(m[2], g, alpha);
      second = second - m[2] * m[2];
      second = where(second < S(0), S(0), second);
    }
    const S denominator = sqrt(second) + S(eps);
    if (momentum != 0) {
      m[1] = S(momentum) * m[1] + g / denominator;
      p = p - S(lr) * m[1];
    } else {
      p = p - S(lr) * g / denominator;
    }
  }
};

/// Duchi, Hazan & Singer 2011.
struct AdagradRule {
  static constexpr auto name = "adagrad";
  static constexpr int kMoments = 1;  // sum
  double lr = 0, lr_decay = 0, eps = 0, weight_decay = 0;
  bool maximize = false;

  struct Step {
    double lr = 0;
  };
  HALFTAPE_HD Step begin(double t) const { return {lr / (1 + (t - 1) * lr_decay)}; }
  template <class S>
  HALFTAPE_HD void operator()(S& p, S g, S* m, const Step& s) const {
    if (maximize) g = -g;
    if (weight_decay != 0) g = g + S(weight_decay) * p;
    m[0] = m[0] + g * g;
    p = p - S(s.lr) * g / (sqrt(m[0]) + S(eps));
  }
};

/// Chen et al. 2023, arXiv:2302.06675: only the sign of an interpolated momentum counts, and weight
/// decay is decoupled. A NaN stays NaN.
struct LionRule {
  static constexpr auto name = "lion";
  static constexpr int kMoments = 1;  // exp_avg
  double lr = 0, beta1 = 0, beta2 = 0, weight_decay = 0;
  bool maximize = false;

  struct Step {};
  HALFTAPE_HD Step begin(double) const { return {}; }
  template <class S>
  HALFTAPE_HD void operator()(S& p, S g, S* m, const Step&) const {
    if (maximize) g = -g;
    if (weight_decay != 0) p = p * S(1 - lr * weight_decay);
    const S c = S(beta1) * m[0] + S(1 - beta1) * g;
    p = p - S(lr) * where(c > S(0), S(1), where(c < S(0), S(-1), c));
    m[0] = S(beta2) * m[0] + S(1 - beta2) * g;
  }
};

/// All rules. Both backends know a rule that is added here.
using UpdateRule = std::variant<SgdRule, AdamRule, RmspropRule, AdagradRule, LionRule>;
inline constexpr int kMostMoments = 3;

}  // namespace halftape
