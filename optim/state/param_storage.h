// How an optimizer keeps 16-bit parameters: what it remembers of each, so that small updates count.
#pragma once
#include <map>
#include <string>

#include "halftape/core/formula/weights.h"
#include "halftape/optim/optimizer.h"

namespace halftape {
struct Keeping;  // core/contract/backend.h
}

namespace halftape::optim {

/// An option of every optimizer here: `SGDOptions(lr).weights(Weights::Master)`. It concerns
/// parameters in float16 and bfloat16; float32 and float64 are updated as they are. Moments are
/// kept in float32 unless Plain, where they have the parameter's dtype.
///
/// Bytes beside a 16-bit weight: Plain 0, Master 4, Stochastic 0, Kahan 2.
///
/// The master and the remainder are made at the first step: load weights into the model before it,
/// for what is written to a parameter later is overwritten from its master.
using halftape::Weights;

/// `chosen`, or Plain where the parameter has more than 16 bits.
Weights weights_of(const Tensor& parameter, Weights chosen);
Dtype moment_dtype(const Tensor& parameter, Weights weights);
/// "master", "remainder" or "rounding" (its key: from the default generator), made in `state` on
/// first use. Throws when earlier steps kept the parameter in another way.
Keeping keeping(const Tensor& parameter, Weights weights, ParamState& state);

/// An array of the parameter's shape and moment_dtype(), made in `state` on first use.
Array moment(const char* name, const Tensor& parameter, Weights chosen, ParamState& state,
             double start = 0);
/// The count of a parameter's updates, made on first use.
Array step_count(const Tensor& parameter, ParamState& state);

/// The option, read back; throws for what is none.
Weights saved_weights(const std::map<std::string, double>& options);
/// What a saved state must have under a name.
struct StateEntry {
  Shape shape;
  Dtype dtype;
};
StateEntry state_entry(const std::string& key, const Tensor& parameter,
                       const std::map<std::string, double>& options);

}  // namespace halftape::optim
