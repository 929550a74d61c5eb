#include "halftape/autograd/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/tape/engine.h"
#include "halftape/autograd/tape/grad_mode.h"

namespace halftape::autograd {
namespace {

constexpr double kMax = std::numeric_limits<double>::max();  // infinity is near nothing

/// Weights without symmetry, so that no term can hide by cancelling.
Tensor weights(const Tensor& like, double phase) {
  std::vector<double> w(static_cast<size_t>(like.numel()));
  for (size_t i = 0; i < w.size(); ++i) w[i] = std::sin(phase + 1.3 * static_cast<double>(i)) + 1.5;
  return tensor(w, kFloat64).reshape(like.sizes());
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// The derivative of every output element when inputs[which] moves along u, by central differences.
std::vector<double> numeric(const GradcheckFunction& f, const TensorList& inputs, size_t which,
                            const std::vector<double>& u, double eps) {
  auto moved = [&](double by) {
    TensorList at;
    for (const Tensor& t : inputs) at.push_back(t.detach().clone());
    std::vector<double> values = at[which].to_vector();
    for (size_t i = 0; i < values.size(); ++i) values[i] += by * u[i];
    at[which] = tensor(values, kFloat64).reshape(inputs[which].sizes());
    for (size_t i = 0; i < at.size(); ++i)  // f may itself ask for gradients
      if (inputs[i].requires_grad()) at[i].requires_grad_();
    return f(at).detach().to_vector();
  };
  std::vector<double> up = moved(eps);
  const std::vector<double> down = moved(-eps);
  for (size_t i = 0; i < up.size(); ++i) up[i] = (up[i] - down[i]) / (2 * eps);
  return up;
}

}  // namespace

bool gradcheck(const GradcheckFunction& f, const TensorList& inputs, const GradcheckOptions& o) {
  HALFTAPE_CHECK(f, "gradcheck: the function is empty");
  HALFTAPE_CHECK(o.eps > 0 && o.eps <= kMax, "gradcheck: eps ", o.eps,
                 " must be positive and finite");
  for (const double tolerance : {o.atol, o.rtol})
    HALFTAPE_CHECK(tolerance >= 0 && tolerance <= kMax, "gradcheck: a tolerance of ", tolerance,
                   " must be finite and not negative");
  const AutoGradMode recording(true);
  TensorList leaves;
  std::vector<size_t> which;
  for (size_t i = 0; i < inputs.size(); ++i) {
    leaves.push_back(inputs[i].detach());
    if (!inputs[i].requires_grad()) continue;
    HALFTAPE_CHECK(inputs[i].dtype() == kFloat64, "gradcheck: input ", i, " is ", inputs[i].dtype(),
                   "; finite differences need float64");
    leaves[i].requires_grad_();
    which.push_back(i);
  }
  HALFTAPE_CHECK(!which.empty(), "gradcheck: no input requires grad");
  TensorList wanted;
  for (size_t i : which) wanted.push_back(leaves[i]);

  const Tensor y = f(leaves);
  // vᵀ J for each of the inputs.
  const auto backward = [&](const Tensor& v) {
    const TensorList g =
        y.requires_grad() ? grad({y}, wanted, {v}, true, false, true) : TensorList(wanted.size());
    std::vector<std::vector<double>> values;
    for (size_t i = 0; i < wanted.size(); ++i)
      values.push_back((g[i].defined() ? g[i] : zeros_like(wanted[i])).to_vector());
    return values;
  };
  const auto agree = [&](double a, double n) {
    return a == n || std::abs(a - n) <= std::min(o.atol + o.rtol * std::abs(n), kMax);
  };
  if (o.fast_mode) {
    const Tensor v = weights(y, 0.4);
    const auto analytic = backward(v);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const std::vector<double> u = weights(wanted[i], 0.9 + static_cast<double>(i)).to_vector();
      const double a = dot(analytic[i], u);
      const double n = dot(v.to_vector(), numeric(f, leaves, which[i], u, o.eps));
      HALFTAPE_CHECK(agree(a, n), "gradcheck: the derivative along a direction of input ", which[i],
                     " is ", a, " by backward and ", n, " by finite differences");
    }
    return true;
  }
  const auto outputs = static_cast<size_t>(y.numel());
  std::vector<std::vector<std::vector<double>>> analytic;  // [output][input][element]
  for (size_t out = 0; out < outputs; ++out) {
    std::vector<double> one(outputs, 0.0);
    one[out] = 1;
    analytic.push_back(backward(tensor(one, kFloat64).reshape(y.sizes())));
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    std::vector<double> one(static_cast<size_t>(wanted[i].numel()), 0.0);
    for (size_t e = 0; e < one.size(); ++e) {
      one[e] = 1;
      const std::vector<double> column = numeric(f, leaves, which[i], one, o.eps);
      one[e] = 0;
      for (size_t out = 0; out < outputs; ++out) {
        const double a = analytic[out][i][e], n = column[out];
        HALFTAPE_CHECK(agree(a, n), "gradcheck: d output[", out, "] / d input ", which[i], "[", e,
                       "] is ", a, " by backward and ", n, " by finite differences");
      }
    }
  }
  return true;
}

bool gradgradcheck(const GradcheckFunction& f, const TensorList& inputs,
                   const GradcheckOptions& o) {
  HALFTAPE_CHECK(f, "gradgradcheck: the function is empty");
  auto gradient = [&](const TensorList& at) {
    TensorList wanted;
    for (const Tensor& t : at)
      if (t.requires_grad()) wanted.push_back(t);
    const AutoGradMode recording(true);
    const Tensor y = f(at);
    const TensorList g = y.requires_grad() ? grad({y}, wanted, {weights(y, 0.4)}, true, true, true)
                                           : TensorList(wanted.size());
    Tensor total = zeros({}, kFloat64);
    for (size_t i = 0; i < g.size(); ++i)
      if (g[i].defined()) total = total + sum(g[i] * weights(g[i], 1.1 + static_cast<double>(i)));
    return total;
  };
  return gradcheck(gradient, inputs, o);
}

}  // namespace halftape::autograd
