#include "halftape/cuda/cuda_backend.h"

#include "halftape/cuda/runtime/recording.h"
#include "halftape/cuda/runtime/side_queue.h"

namespace halftape::cuda {
namespace {

size_t bytes_of(const Array& a) { return static_cast<size_t>(a.numel()) * element_size(a.dtype()); }

}  // namespace

BufferPtr CudaBackend::allocate(size_t bytes) { return context_.allocate(bytes); }
BufferPtr CudaBackend::allocate_pinned(size_t bytes) { return context_.allocate_pinned(bytes); }

void CudaBackend::copy_across(const Array& to, const Array& from, bool non_blocking) {
  if (to.numel() == 0) return;
  const Queue q = queue(to.device().is_cuda() ? to : from);
  const auto kind = to.device().is_cpu()     ? cudaMemcpyDeviceToHost
                    : from.device().is_cpu() ? cudaMemcpyHostToDevice
                                             : cudaMemcpyDefault;
  // Between two devices: the work of the source's stream comes first.
  if (kind == cudaMemcpyDefault) Context::of(from).synchronize(Context::of(from).current());
  context_.check_earlier(cudaMemcpyAsync(to.raw(), from.raw(), bytes_of(to), kind, q.stream),
                         "copying between host and device");
  // The source may be freed now, in the order of its own stream, which must not come first.
  if (kind == cudaMemcpyDefault) return CudaMoment(q.context).await_in(Context::of(from));
  // From memory that is not pinned, CUDA itself returns only when it has read all of it.
  const Buffer& host = to.device().is_cpu() ? *to.buffer() : *from.buffer();
  if (non_blocking && host.pinned()) return;
  if (to.device().is_cpu() || host.pinned()) q.context.synchronize(q.stream);
}

void CudaBackend::read(void* host, const Array& from) {
  if (from.numel() == 0) return;
  const Queue q = queue(from);
  context_.check_earlier(
      cudaMemcpyAsync(host, from.raw(), bytes_of(from), cudaMemcpyDeviceToHost, q.stream),
      "reading from the device");
  q.context.synchronize(q.stream);
}

void CudaBackend::synchronize() { context_.synchronize(); }
std::unique_ptr<Recording> CudaBackend::new_recording() {
  return std::make_unique<CudaRecording>(context_);
}
std::unique_ptr<QueueMoment> CudaBackend::now() { return std::make_unique<CudaMoment>(context_); }
std::unique_ptr<SideQueue> CudaBackend::new_side_queue() {
  return std::make_unique<CudaSideQueue>(context_);
}

}  // namespace halftape::cuda
