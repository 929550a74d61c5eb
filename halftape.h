// Everything a user needs, in one include.
#pragma once
#include "halftape/amp/amp.h"
#include "halftape/autograd/autograd.h"
#include "halftape/core/core.h"
#include "halftape/cuda/cuda.h"
#include "halftape/io/io.h"
#include "halftape/nn/nn.h"
#include "halftape/optim/optim.h"
