#include "halftape/nn/modules/dropout.h"

namespace halftape::nn {

void detail::DropoutModule::reset() { check_fraction("Dropout", "probability", options.p()); }

#define HALFTAPE_DROPOUT(Name, function)                                                      \
  HALFTAPE_UNARY_FORWARD(                                                                     \
      Name, functional::detail::dropped(&halftape::function, x, options, is_training()), "p", \
      options.p(), "inplace", options.inplace())
HALFTAPE_DROPOUT(Dropout, dropout)
HALFTAPE_DROPOUT(Dropout2d, feature_dropout)
HALFTAPE_DROPOUT(Dropout3d, feature_dropout)
HALFTAPE_DROPOUT(AlphaDropout, alpha_dropout)
HALFTAPE_DROPOUT(FeatureAlphaDropout, feature_alpha_dropout)
#undef HALFTAPE_DROPOUT

}  // namespace halftape::nn
