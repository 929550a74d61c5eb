#include "halftape/autograd/tape/separate_gradients.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "halftape/autograd/tape/grad_tag.h"
#include "halftape/core/contract/backend.h"

namespace halftape {
namespace {

void copy_bytes(const Tensor& parameter) {
  Tensor& g = parameter.mutable_grad();
  GradMark mark = mark_of(g);
  const bool partial = is_partial(g);
  g = Tensor(g.array().clone());
  if (mark.known) set_mark(g, std::move(mark.tag));
  set_partial(g, partial);
}

}  // namespace

void separate_gradients(std::span<const Tensor> parameters, const Array& other) {
  // Gradients in flat storage share no byte, and lie one behind another.
  uintptr_t end = 0;
  bool ascending = true;
  for (const Tensor& p : parameters) {
    const Tensor& g = p.grad();
    if (!g.defined() || g.numel() == 0) continue;
    if (overlaps_itself(g.sizes(), g.strides())) copy_bytes(p);
    if (g.unique()) continue;
    const Extent e = extent(g.array());
    if (other.defined() && e.meets(extent(other))) copy_bytes(p);
    ascending &= e.begin >= end;
    end = e.end;
  }
  if (ascending) return;
  std::vector<std::pair<Extent, const Tensor*>> shared;
  for (const Tensor& p : parameters)
    if (p.grad().defined() && p.grad().numel() > 0 && !p.grad().unique())
      shared.emplace_back(extent(p.grad().array()), &p);
  std::stable_sort(shared.begin(), shared.end(),
                   [](const auto& a, const auto& b) { return a.first.begin < b.first.begin; });
  end = 0;
  for (const auto& [e, parameter] : shared) {
    if (e.begin < end) copy_bytes(*parameter);
    end = std::max(end, e.end);
  }
}

void zero_gradient(const Tensor& parameter) {
  Tensor& g = parameter.mutable_grad();
  if (g.requires_grad() || overlaps_itself(g.sizes(), g.strides()))
    g = Tensor(full(g.sizes(), 0, g.dtype(), g.device()));
  else
    g.zero_();
  set_partial(g, false);
}

}  // namespace halftape
