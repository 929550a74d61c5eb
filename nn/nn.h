// Modules, their functional forms, and initialisers.
#pragma once
#include "halftape/nn/any_module.h"
#include "halftape/nn/functional.h"
#include "halftape/nn/init.h"
#include "halftape/nn/module.h"
#include "halftape/nn/modules.h"
#include "halftape/nn/summary.h"
#include "halftape/nn/utils/convert_parameters.h"
#include "halftape/nn/utils/rnn.h"
#include "halftape/nn/utils/weight_norm.h"
