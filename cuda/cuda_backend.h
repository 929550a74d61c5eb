// The GPU's side of the contract (core/contract/backend.h): calls put their work into the current
// stream and return. Each member is defined in the file of its family of kernels.
#pragma once
#include "halftape/core/contract/backend.h"
#include "halftape/cuda/runtime/side_queue.h"

namespace halftape::cuda {

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(DeviceIndex index) : context_(Context::of(index)), queues_(context_) {}
#define HALFTAPE_CALL override
#include "halftape/core/contract/calls.inc"
  Queues* queues() override { return &queues_; }

 private:
  Context& context_;
  CudaQueues queues_;
};

}  // namespace halftape::cuda
