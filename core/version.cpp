#include "halftape/core/version.h"

namespace halftape {

const char* version() { return HALFTAPE_VERSION; }

}  // namespace halftape
