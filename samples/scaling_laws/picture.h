// The page that shows the run of every law on one trace.
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

/// A table of all outcomes and a small chart for each. `command`: the command line.
std::string picture(const LimitTrace& trace, const std::vector<Outcome>& outcomes,
                    const std::string& command);
