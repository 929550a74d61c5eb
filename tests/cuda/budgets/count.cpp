#include "count.h"

#include <halftape/halftape.h>

#include <algorithm>
#include <cmath>

#include "halftape/core/capture/capture.h"
#include "halftape/core/contract/forwarding_backend.h"
#include "runtime/device.h"
#include "tally.h"

namespace halftape::testing {
namespace {

/// The bytes of an array that a call touches. An element that the strides visit several times, as
/// those of a broadcast or of windows do, counts once.
double bytes_of(const Array& a) {
  if (a.numel() == 0) return 0;
  double visited = 1, extent = 1;
  for (int d = 0; d < a.dim(); ++d) {
    if (a.strides()[d] == 0) continue;
    visited *= static_cast<double>(a.size(d));
    extent += static_cast<double>(a.size(d) - 1) * std::abs(static_cast<double>(a.strides()[d]));
  }
  return std::min(visited, extent) * static_cast<double>(element_size(a.dtype()));
}

double operations_of(const Gemm& g) {
  return 2.0 * static_cast<double>(g.d.numel()) * static_cast<double>(g.a.size(g.a.dim() - 1));
}
/// Forward, for the weights, and back to every layer, of which the first only if x has a gradient.
double operations_of(const MlpLoss& m) {
  double weights = 0;
  for (size_t i = 0; i < m.weights.size(); ++i) {
    const double products = (m.dweights.empty() ? 1 : i == 0 && !m.dx.defined() ? 2 : 3);
    weights += products * static_cast<double>(m.weights[i].numel());
  }
  return 2 * weights * static_cast<double>(m.x.size(0));
}
/// A product over the pairs of query and key that take part, for each element of a row.
double operations_of(const Attention& a, double of_keys, double of_values) {
  const auto L = static_cast<double>(a.q.size(2)), S = static_cast<double>(a.k.size(2));
  const double seen = std::min(L, S);
  const double pairs = a.causal ? seen * (seen + 1) / 2 + (L - seen) * S : L * S;
  return 2 * pairs * static_cast<double>(a.q.size(0) * a.q.size(1)) *
         (of_keys * static_cast<double>(a.q.size(3)) +
          of_values * static_cast<double>(a.v.size(3)));
}
double operations_of(const Call& call) {
  if (const auto* m = std::get_if<const MlpLoss*>(&call)) return operations_of(**m);
  if (const auto* a = std::get_if<const Attention*>(&call)) return operations_of(**a, 1, 1);
  // The scores once more, dq, dk; the gradients of the weights, dv.
  if (const auto* d = std::get_if<const AttentionGrad*>(&call))
    return operations_of((*d)->of, 3, 2);
  return 0;
}

/// Counts the calls of a captured step. What the device cannot do in one call is seen as the calls
/// that take its place.
class Traffic final : public ForwardingBackend {
 public:
  explicit Traffic(Count& count) : ForwardingBackend(backend(kCUDA)), count_(count) {}

  BufferPtr allocate(size_t bytes, bool pinned) override {
    const int64_t before = simt::counters().allocated_bytes;
    BufferPtr made = ForwardingBackend::allocate(bytes, pinned);
    if (Capture::active())
      count_.arena_bytes += static_cast<double>(simt::counters().allocated_bytes - before);
    return made;
  }
  void gemm(const Gemm& g) override {
    if (Capture::active()) count_.operations += operations_of(g);
    ForwardingBackend::gemm(g);
  }
  bool try_fused(std::span<const Call> calls) override {
    if (!to().try_fused(calls)) return false;
    see(calls);
    if (Capture::active())
      for (const Call& call : calls) count_.operations += operations_of(call);
    return true;
  }

 private:
  void before(const std::string& call, const Touched& touched) override {
    if (!Capture::active()) return;
    Count::Calls& calls = count_.calls[call];
    ++calls.count;
    for (const auto* arrays : {&touched.writes, &touched.reads})
      for (const Array* a : *arrays)
        if (a->defined() && a->device().is_cuda()) {
          calls.bytes += bytes_of(*a);
          count_.bytes += bytes_of(*a);
        }
  }
  Count& count_;
};

}  // namespace

Count count_step(const std::function<void()>& step) {
  Count count;
  step();                  // makes what outlasts it, such as moments
  Traffic traffic(count);  // the graph keeps a reference
  std::optional<Graph> graph;
  {
    const BackendGuard watched(kCUDA, traffic);
    graph.emplace(kCUDA, step);
  }
  count.nodes = graph->size();
  for (const std::string& name : simt::latest_nodes()) ++count.kernels[simt::plain_name(name)];
  if (const auto found = count.kernels.find("cublaslt_matmul"); found != count.kernels.end())
    count.library_calls = found->second;
  graph->replay();
  simt::reset_counters();
  step();
  graph->replay();
  count.host_waits = simt::counters().synchronisations;
  return count;
}

}  // namespace halftape::testing
