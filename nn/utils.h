// Helpers around parameters. optim/clip_grad.h has gradient clipping, in the same namespace.
#pragma once
#include "halftape/nn/utils/convert_parameters.h"
#include "halftape/nn/utils/rnn.h"
#include "halftape/nn/utils/weight_norm.h"
