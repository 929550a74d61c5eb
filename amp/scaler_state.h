// A scaler's state as numbers by name, and back.
#pragma once
#include <map>
#include <string>

#include "halftape/core/formula/scaler.h"

namespace halftape::amp {

struct SavedScaler {
  ScalerLaw law;
  ScalerState state;
  ScalerCounts counts;  // without `optimizer` and `parameter`, which name an optimizer of this run
};
std::map<std::string, double> to_dict(SavedScaler scaler);
/// If only torch's five numbers are there, the other constants are those of `current`, and the
/// counts start at zero. Throws for a senseless value, and for one that is missing.
SavedScaler from_dict(const std::map<std::string, double>& saved, const ScalerLaw& current);

}  // namespace halftape::amp
