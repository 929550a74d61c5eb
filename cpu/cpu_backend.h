// The CPU's side of the contract (core/contract/backend.h): calls run at once, on the caller and
// the pool. Each member is defined in the file of its family of kernels.
#pragma once
#include "halftape/core/contract/backend.h"

namespace halftape::cpu {

class CpuBackend final : public Backend {
 public:
  const char* name() const override { return "cpu"; }
#define HALFTAPE_CALL override
#include "halftape/core/contract/calls.inc"
};

}  // namespace halftape::cpu
