// All modules.
#pragma once
#include "halftape/nn/modules/activation.h"
#include "halftape/nn/modules/container.h"
#include "halftape/nn/modules/conv.h"
#include "halftape/nn/modules/distance.h"
#include "halftape/nn/modules/dropout.h"
#include "halftape/nn/modules/fold.h"
#include "halftape/nn/modules/linear.h"
#include "halftape/nn/modules/loss.h"
#include "halftape/nn/modules/norm.h"
#include "halftape/nn/modules/pad.h"
#include "halftape/nn/modules/pooling.h"
#include "halftape/nn/modules/upsampling.h"
