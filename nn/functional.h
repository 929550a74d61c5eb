// Functions with options, as torch::nn::functional: those of a family of modules stand in its
// header in nn/modules. Computed by autograd/ops.
#pragma once
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/loss/mlp_loss.h"
#include "halftape/autograd/ops/product/einsum.h"
#include "halftape/autograd/ops/product/linear.h"
#include "halftape/nn/modules.h"

namespace halftape::nn::functional {

using halftape::bilinear;
using halftape::flatten;
using halftape::linear;
using halftape::mlp;
using halftape::mlp_loss;
using halftape::one_hot;

}  // namespace halftape::nn::functional
