// Options of dropout, for functions (nn/functional/dropout.h) and modules (nn/modules/dropout.h).
#pragma once
#include "halftape/core/options.h"

namespace halftape::nn {

class DropoutOptions {
 public:
  DropoutOptions(double p = 0.5) : p_(p) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(double, p);              // probability that an element, or a feature, is dropped
  HALFTAPE_ARG(bool, inplace) = false;  // the result replaces the input
};
using Dropout2dOptions = DropoutOptions;
using Dropout3dOptions = DropoutOptions;
using AlphaDropoutOptions = DropoutOptions;
using FeatureAlphaDropoutOptions = DropoutOptions;

namespace functional {

class DropoutFuncOptions {
 public:
  HALFTAPE_ARG(double, p) = 0.5;
  HALFTAPE_ARG(bool, training) = true;
  HALFTAPE_ARG(bool, inplace) = false;
};
using Dropout2dFuncOptions = DropoutFuncOptions;
using Dropout3dFuncOptions = DropoutFuncOptions;

/// LibTorch's default here, unlike that of the others, is evaluation.
class AlphaDropoutFuncOptions {
 public:
  HALFTAPE_ARG(double, p) = 0.5;
  HALFTAPE_ARG(bool, training) = false;
  HALFTAPE_ARG(bool, inplace) = false;
};
using FeatureAlphaDropoutFuncOptions = AlphaDropoutFuncOptions;

}  // namespace functional

}  // namespace halftape::nn
