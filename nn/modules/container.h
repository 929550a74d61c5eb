// Modules that hold others, or parameters, or a function.
#pragma once
#include "halftape/nn/modules/container/functional.h"
#include "halftape/nn/modules/container/module_list.h"
#include "halftape/nn/modules/container/parameter_list.h"
#include "halftape/nn/modules/container/sequential.h"
