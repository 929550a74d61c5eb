// Helpers around parameters. Gradient clipping, in the same namespace, stands in optim/clip_grad.h.
#pragma once
#include "halftape/nn/utils/convert_parameters.h"
#include "halftape/nn/utils/rnn.h"
#include "halftape/nn/utils/weight_norm.h"
