// How the ranks' Gloo contexts find each other.
#pragma once
#include <gloo/context.h>

#include <memory>

#include "halftape/distributed/engine/engine.h"

namespace halftape::distributed {

/// A context that is connected with those of all other ranks. Throws a std::exception after about
/// setup.timeout.
std::shared_ptr<gloo::Context> meet(const EngineSetup& setup);

}  // namespace halftape::distributed
