#include "halftape/core/contract/gemm_unfused.h"

#include "halftape/core/formula/reduce.h"
#include "halftape/core/formula/unary.h"

namespace halftape {
namespace {

/// Relu and its derivative depend on the sign of v, which rounding to d keeps: no wider array is
/// needed.
void relu_in_steps(Backend& on, const Gemm& g, MaskedRelu masked_relu) {
  if (!g.aux.defined()) {
    on.unary(UnaryOps::index<formula::Relu>(), g.d, g.d, {});
    return;
  }
  const Array y = g.d.to_contiguous();
  masked_relu(y, g.aux, g.epilogue == Epilogue::DRelu);
  if (!g.d.contiguous()) on.copy(g.d, y);
}

/// v: the sums before they are rounded.
void gelu_in_steps(Backend& on, const Gemm& g, const Array& v) {
  constexpr OpId gelu = UnaryOps::index<formula::GeluTanh>();
  if (g.epilogue == Epilogue::DGelu) {
    on.unary_grad(gelu, g.d, v, g.aux, {});
    return;
  }
  if (g.aux.defined()) on.copy(g.aux, v);
  on.unary(gelu, g.d, v, {});
}

}  // namespace

void gemm_unfused(Backend& on, const Gemm& g, MaskedRelu masked_relu) {
  Gemm rest = g;
  if (g.bias_grad.defined()) {
    rest.bias_grad = {};
    on.gemm(rest);
    const Array terms = g.epilogue == Epilogue::None ? g.a.transpose(0, 1) : g.d;
    on.reduce(ReduceOps::index<formula::Sum>(), g.bias_grad, terms, {0});
    return;
  }
  rest.epilogue = Epilogue::None;
  rest.aux = {};
  if (g.epilogue == Epilogue::Relu || g.epilogue == Epilogue::DRelu) {
    on.gemm(rest);
    relu_in_steps(on, g, masked_relu);
    return;
  }
  rest.d = Array(g.d.shape(), compute_dtype(g.a.dtype()), g.d.device());
  if (g.beta != 0) on.copy(rest.d, g.d);
  on.gemm(rest);
  gelu_in_steps(on, g, rest.d);
}

}  // namespace halftape
