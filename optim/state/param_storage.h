// How an optimizer stores 16-bit parameters so that small updates are not lost to rounding.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "halftape/core/formula/weights.h"
#include "halftape/optim/optimizer.h"
#include "halftape/optim/state/mismatches.h"

namespace halftape {
struct Keeping;  // core/contract/backend.h
}

namespace halftape::optim {

/// An option of every RuleOptimizer: `SGDOptions(lr).weights(Weights::Master)`. It applies to
/// parameters in float16 and bfloat16. Their moments are float32, or with Plain of the parameter's
/// dtype.
///
/// Bytes beside a 16-bit weight: Plain 0, Master 4, Stochastic 0, Kahan 2.
///
/// The first step makes the master or remainder. A parameter that is written between steps, as when
/// weights are loaded or clamped, goes on from what was written, also after its state was saved
/// and loaded: where it is no longer its master's rounding, it becomes the master, and a remainder
/// of another value becomes 0. The replays of a Graph notice such writes, too.
using halftape::Weights;
inline constexpr NumberRange kWeightsRange{0, 4};  // Plain … Kahan, as saved

/// `chosen`, or Plain if the parameter has more than 16 bits.
Weights effective_weights(const Tensor& parameter, Weights chosen);
/// The dtype in which an optimizer keeps its moments of such a parameter.
Dtype moment_dtype(const Tensor& parameter, Weights weights);
/// The parameter's "master", "remainder" or "rounding" (whose key the default generator draws, if
/// there is no RoundingSeed), made in `state` on first use. Throws if it has another shape than the
/// parameter. `original` is the tensor that others know, where an optimizer works on a copy.
Keeping param_storage(const Tensor& parameter, Weights weights, ParamState& state,
                      const Tensor& original);
Keeping param_storage(const Tensor& parameter, Weights weights, ParamState& state);
/// The seam for training in several processes: the seed of a parameter's "rounding", the same in
/// all of them, or nothing if it is this process's alone.
using RoundingSeed = std::optional<uint64_t> (*)(const Tensor& original);
void set_rounding_seed(RoundingSeed find);
/// Throws if earlier steps stored the parameter in another way.
void check_storage(const Tensor& parameter, Weights weights, const ParamState& state);
/// Throws if there is a state of this name, and it has another shape than the parameter.
void check_beside(const Tensor& parameter, const char* name, const ParamState& state);
/// The name of the extra array; null for Plain.
const char* storage_name(Weights weights);
/// Brings a master or remainder in line with a parameter that was written since the last step.
/// Elements that were not written keep theirs. Does not wait for the device.
void follow_weight(const Tensor& parameter, const Keeping& kept);

/// An array of the parameter's shape and moment_dtype(), made in `state` on first use. Throws if it
/// has another shape.
Array moment(const char* name, const Tensor& parameter, Weights chosen, ParamState& state,
             double start = 0);
/// The number of a parameter's updates, made in `state` on first use.
Array step_count(const Tensor& parameter, ParamState& state, double start = 0);

/// The expected form of the saved array `key`.
StateEntry state_entry(const std::string& key, const Tensor& parameter,
                       const std::map<std::string, double>& options);

}  // namespace halftape::optim
