// Normalisation of rows and of channels.
#pragma once
#include "halftape/core/array.h"

namespace halftape {

/// y = (x − mean)·rstd·weight + bias.
struct Norm {
  Array x = {};
  Array weight = {}, bias = {};  // (C), of any floating dtype; undefined: 1 and 0
  Array mean = {}, rstd = {};    // contiguous, float32 (float64 of a float64 x)
  double eps = 0;
};
/// Gradients of a Norm, in memory apart from each other and from what is read. Undefined ones are
/// not computed.
struct NormGrads {
  Array dx = {};
  Array dweight = {}, dbias = {};  // (C), of any floating dtype
};
/// The running averages (C) of a batch norm in training, of any floating dtype.
struct RunningStats {
  Array mean = {}, var = {};   // undefined: not kept
  Array batches = {};          // one int64: the number of batches so far; undefined: not counted
  double momentum = 0.1;       // the share of the newest batch; negative: all batches count alike
  bool skip_nonfinite = true;  // a batch whose statistics are not all finite changes nothing
};

}  // namespace halftape
