// The page that shows what every law did on one trace.
#pragma once

#include <halftape/halftape.h>

#include <string>
#include <vector>

#include "trace.h"

struct Outcome {
  halftape::amp::laws::Law law;
  halftape::amp::laws::Replay replay;
  halftape::amp::laws::Summary summary;
};

/// A table of all outcomes and one small chart for each. `command`: what was typed.
std::string picture(const LimitTrace& trace, const std::vector<Outcome>& outcomes,
                    const std::string& command);
