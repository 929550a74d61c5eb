#include "halftape/nn/modules/dropout.h"

namespace halftape::nn {

void detail::DropoutModule::reset() {
  HALFTAPE_CHECK(options.p() >= 0 && options.p() <= 1, "Dropout: probability ", options.p(),
                 " is not between 0 and 1");
}

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
