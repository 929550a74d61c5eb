// What a scale and a law must satisfy, checked alike by options, setters and saved states.
#pragma once
#include "halftape/core/formula/scaler.h"

namespace halftape::amp {

void check_law(const ScalerLaw& law);
/// Positive, finite in float32, and within the law's bounds.
void check_scale(double scale, const ScalerLaw& law);

}  // namespace halftape::amp
