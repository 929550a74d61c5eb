#include "halftape/cuda/cuda_backend.h"

namespace halftape::cuda {
namespace {

size_t bytes_of(const Array& a) { return static_cast<size_t>(a.numel()) * element_size(a.dtype()); }

void copy_to_peer(const Array& to, const Array& from) {
  Context& source = Context::of(from);
  // The work of its stream comes first. A step that is captured cannot wait for what is not.
  if (Context::capturing())
    source.synchronize(source.current());
  else
    CudaMoment(source).await_in(Context::of(to));
  const Queue q = queue(to);
  // The other kinds of copies do not reach into the memory pool of another device.
  q.context.check_earlier(cudaMemcpyPeerAsync(to.raw(), q.context.index(), from.raw(),
                                              source.index(), bytes_of(to), q.stream),
                          "copying between devices");
  // The source may be freed now, in the order of its own stream, which must not come first.
  CudaMoment(q.context).await_in(source);
}

}  // namespace

BufferPtr CudaBackend::allocate(size_t bytes, bool pinned) {
  return pinned ? context_.allocate_pinned(bytes) : context_.allocate(bytes);
}

void CudaBackend::copy_across(const Array& to, const Array& from, bool non_blocking) {
  if (to.numel() == 0) return;
  if (to.device().is_cuda() && from.device().is_cuda()) return copy_to_peer(to, from);
  const bool to_host = to.device().is_cpu();
  const Queue q = queue(to_host ? from : to);
  const auto kind = to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
  context_.check_earlier(cudaMemcpyAsync(to.raw(), from.raw(), bytes_of(to), kind, q.stream),
                         "copying between host and device");
  const Buffer& host = to_host ? *to.buffer() : *from.buffer();
  if (host.pinned() && Context::capturing()) return;  // the graph holds the memory
  if (host.pinned() && non_blocking) return Context::used_by_copy(host, q.stream);
  // From other memory CUDA itself mostly returns only when it has read all of it.
  if (to_host || host.pinned() || q.context.copies_late_from(from.raw()))
    q.context.synchronize(q.stream);
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
}  // namespace halftape::cuda
