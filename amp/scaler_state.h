// What the scalers share: from options to a law, and from a state to numbers by name and back.
#pragma once
#include "halftape/amp/grad_scaler.h"
#include "halftape/core/formula/scaler.h"

namespace halftape::amp {

ScalerLaw law_of(const GradScalerOptions& options);
void check_law(const ScalerLaw& law);
/// Sets one of its constants, or throws and leaves it as it was.
template <class T>
void change(ScalerLaw& law, T ScalerLaw::*constant, T value) {
  ScalerLaw changed = law;
  changed.*constant = value;
  check_law(changed);
  law = changed;
}
/// Positive, finite in float32, and within the law's bounds.
void check_scale(double scale, const ScalerLaw& law);
/// Throws for options that make no sense.
void check_options(const GradScalerOptions& options);

struct SavedScaler {
  ScalerLaw law;
  ScalerState state;
  ScalerCounts counts;  // without its last two, which name an optimizer of this run
};
GradScaler::StateDict to_dict(const SavedScaler& scaler);
/// Of torch's five numbers the rest is the law's of `now`, and the counts begin anew. Throws for a
/// senseless value, and for a missing one: of the five, or of the others where one of these is
/// there.
SavedScaler from_dict(const GradScaler::StateDict& saved, const ScalerLaw& now);

}  // namespace halftape::amp
