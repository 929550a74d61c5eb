// record(): the only place that writes history.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/node.h"

namespace halftape {

/// A node whose rule is a callable `Grads(Node& self, const Tensor& g)`.
template <class Rule>
class RuleNode final : public Node {
 public:
  RuleNode(const char* name, Rule&& rule)
      : Node(name, !std::is_empty_v<Rule>), rule_(std::forward<Rule>(rule)) {}
  Grads vjp(Grads g) override { return (*rule_)(*this, g[0]); }

 private:
  void release() override { rule_.reset(); }
  std::optional<std::decay_t<Rule>> rule_;
};

/// True if an op of these inputs is to be recorded.
inline bool records(std::initializer_list<const Tensor*> inputs) {
  return GradMode::is_enabled() &&
         std::any_of(inputs.begin(), inputs.end(), [](auto* t) { return t->requires_grad(); });
}

/// A tensor with this value, and with the rule as its history unless nothing is to be recorded.
/// `view_of`: the input whose bytes the value shares, if any.
template <class Rule>
Tensor record(const char* name, Array value, std::initializer_list<const Tensor*> inputs,
              Rule&& rule, const Tensor* view_of = nullptr) {
  Tensor out(std::move(value));
  if (view_of) out.impl()->becomes_view_of(*view_of);
  if (!records(inputs) || !out.is_floating_point()) return out;
  Ref<Node> node(
      new RuleNode<std::decay_t<Rule>>(name, std::forward<Rule>(rule)));  // NOLINT: counted
  for (const Tensor* t : inputs) node->next.push_back(t->gradient_edge());
  node->first = {out.sizes(), out.dtype(), out.device()};
  out.impl()->history = {std::move(node), 0};
  return out;
}

/// record() for a list of inputs.
template <class Rule>
Tensor record_list(const char* name, const Array& y, const TensorList& inputs, Rule&& rule) {
  const auto first =
      std::find_if(inputs.begin(), inputs.end(), [](const Tensor& t) { return t.requires_grad(); });
  if (first == inputs.end()) return Tensor(y);
  Tensor out = record(name, y, {&*first}, std::forward<Rule>(rule));
  if (const Ref<Node>& node = out.grad_fn()) {
    node->next.clear();
    for (const Tensor& t : inputs) node->next.push_back(t.gradient_edge());
  }
  return out;
}

/// After `value` was written to x in place: gives x the history of `value`. If x is a view, its
/// base gets that history for the part that x shows.
void take_history(const Tensor& x, const Tensor& value);

}  // namespace halftape
