// The dtypes that tests go through.
#pragma once
#include "halftape/core/dtype.h"

namespace halftape::testing {

inline constexpr Dtype kAllDtypes[] = {kBool,  kUInt8,   kInt8,     kInt16,   kInt32,
                                       kInt64, kFloat16, kBFloat16, kFloat32, kFloat64};
/// All but int8 and int16.
inline constexpr Dtype kMostDtypes[] = {kBool,    kUInt8,    kInt32,   kInt64,
                                        kFloat16, kBFloat16, kFloat32, kFloat64};
inline constexpr Dtype kFloats[] = {kFloat16, kBFloat16, kFloat32, kFloat64};

}  // namespace halftape::testing
