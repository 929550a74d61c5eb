#include "halftape/nn/modules/loss/distance.h"

namespace halftape::nn {

HALFTAPE_MODULE_TEXT(CosineSimilarity, "dim", options.dim(), "eps", options.eps())

HALFTAPE_MODULE_TEXT(PairwiseDistance, "p", options.p(), "eps", options.eps(), "keepdim",
                     options.keepdim())

}  // namespace halftape::nn
