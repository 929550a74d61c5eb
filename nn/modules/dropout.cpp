#include "halftape/nn/modules/dropout.h"

namespace halftape::nn {

void detail::DropoutModule::reset() { check_fraction("Dropout", "probability", options.p()); }

#define HALFTAPE_DROPOUT(Name, function)                                                          \
  HALFTAPE_UNARY_FORWARD(Name, functional::detail::dropped(&function, x, options, is_training()), \
                         "p", options.p(), "inplace", options.inplace())
HALFTAPE_DROPOUT(Dropout, halftape::dropout)
HALFTAPE_DROPOUT(Dropout2d, functional::detail::channels_dropped<2>)
HALFTAPE_DROPOUT(Dropout3d, functional::detail::channels_dropped<3>)
HALFTAPE_DROPOUT(AlphaDropout, halftape::alpha_dropout)
HALFTAPE_DROPOUT(FeatureAlphaDropout, halftape::feature_alpha_dropout)
#undef HALFTAPE_DROPOUT

}  // namespace halftape::nn
