// The GPU's side of the contract (core/contract/backend.h): calls put their work into the current
// stream and return. Each member is defined in the file of its family of kernels.
#pragma once
#include "halftape/core/contract/backend.h"
#include "halftape/cuda/runtime/context.h"

namespace halftape::cuda {

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(DeviceIndex index) : context_(Context::of(index)) {}
#define HALFTAPE_CALL override
#include "halftape/core/contract/calls.inc"
  std::unique_ptr<Recording> new_recording() override;
  std::unique_ptr<QueueMoment> now() override;
  std::unique_ptr<SideQueue> new_side_queue() override;

 private:
  Context& context_;
};

}  // namespace halftape::cuda
