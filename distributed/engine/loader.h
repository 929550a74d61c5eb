// Finds the library of an engine, as that of the CUDA backend is found.
#pragma once
#include <memory>
#include <string>

#include "halftape/distributed/engine/engine.h"

namespace halftape::distributed {

/// Loads libhalftape_<name>.so and starts its engine. HALFTAPE_<NAME>_LIBRARY names another file.
/// Throws Error, with the reason and the remedy, when it is not installed, or does not start.
std::unique_ptr<Engine> open_engine(const std::string& name, const EngineSetup& setup);

}  // namespace halftape::distributed
