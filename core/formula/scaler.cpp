#include "halftape/core/formula/scaler.h"

#include <sstream>

namespace halftape {

std::string skip_warning(const char* scaler, int64_t in_row, float scale, bool bad_loss) {
  std::ostringstream text;
  text << scaler << ": " << in_row << " steps in a row were skipped, the scale is " << scale
       << (bad_loss ? "; the loss itself is infinite or NaN, which no scale cures"
                    : "; scaler.stats().nonfinite names the first gradient that is not finite");
  return text.str();
}

}  // namespace halftape
