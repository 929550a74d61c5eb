// A captured step: a CUDA graph and its memory.
#pragma once
#include <memory>
#include <optional>

#include "halftape/cuda/runtime/arena.h"

namespace halftape::cuda {

class CudaRecording final : public Recording {
 public:
  explicit CudaRecording(Context& context);
  ~CudaRecording() override;
  void rehearse(const std::function<void()>& work) override;
  void record(const std::function<void()>& work) override;
  void check_queue() const override;
  void replay() override;
  int64_t size() const override { return size_; }

 private:
  Context& context_;
  cudaStream_t stream_;  // of the capture, with a workspace of its own for products
  std::optional<cudaStream_t> replayed_in_;
  std::shared_ptr<Arena> arena_;
  cudaGraphExec_t graph_ = nullptr;
  cudaEvent_t last_ = nullptr;  // the end of the last replay
  int64_t size_ = 0;
};

}  // namespace halftape::cuda
