// Functions with options, as torch::nn::functional: one header per family, next to nn/options and
// nn/modules. Computed by autograd/ops.
#pragma once
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/loss/mlp_loss.h"
#include "halftape/autograd/ops/product/einsum.h"
#include "halftape/autograd/ops/product/linear.h"
#include "halftape/nn/functional/activation.h"
#include "halftape/nn/functional/attention.h"
#include "halftape/nn/functional/conv.h"
#include "halftape/nn/functional/distance.h"
#include "halftape/nn/functional/dropout.h"
#include "halftape/nn/functional/embedding.h"
#include "halftape/nn/functional/fold.h"
#include "halftape/nn/functional/loss.h"
#include "halftape/nn/functional/norm.h"
#include "halftape/nn/functional/pad.h"
#include "halftape/nn/functional/pooling.h"
#include "halftape/nn/functional/upsampling.h"
#include "halftape/nn/functional/vision.h"

namespace halftape::nn::functional {

using halftape::bilinear;
using halftape::flatten;
using halftape::linear;
using halftape::mlp;
using halftape::mlp_loss;
using halftape::one_hot;

}  // namespace halftape::nn::functional
