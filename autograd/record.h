// record(): the only place that writes history.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "halftape/autograd/grad_mode.h"
#include "halftape/autograd/node.h"

namespace halftape {

/// A node whose rule is a callable `Grads(Node& self, const Tensor& g)`.
template <class Rule>
class RuleNode final : public Node {
 public:
  RuleNode(const char* name, Rule&& rule) : Node(name), rule_(std::forward<Rule>(rule)) {}
  Grads vjp(Grads g) override {
    HALFTAPE_CHECK(rule_, "backward: `", name(),
                   "` was already released by an earlier backward(); ",
                   "pass retain_graph=true there to use the graph twice");
    return (*rule_)(*this, g[0]);
  }
  void release() override {
    // A rule that saved nothing has nothing to release, and may run again.
    if constexpr (!std::is_empty_v<Rule>) rule_.reset();
  }

 private:
  std::optional<std::decay_t<Rule>> rule_;
};

/// Is this op part of a recorded graph?
inline bool records(std::initializer_list<const Tensor*> inputs) {
  return GradMode::is_enabled() &&
         std::any_of(inputs.begin(), inputs.end(), [](auto* t) { return t->requires_grad(); });
}

/// A tensor over `value` that remembers how it was made. The rule is dropped when nobody will ask
/// for it.
template <class Rule>
Tensor record(const char* name, Array value, std::initializer_list<const Tensor*> inputs,
              Rule&& rule, bool is_view = false) {
  Tensor out(std::move(value));
  out.impl()->is_view = is_view;
  if (!records(inputs) || !out.is_floating_point()) return out;
  Ref<Node> node(
      new RuleNode<std::decay_t<Rule>>(name, std::forward<Rule>(rule)));  // NOLINT: counted
  node->next.reserve(inputs.size());
  for (const Tensor* t : inputs) node->next.push_back(t->gradient_edge());
  node->shape = out.sizes();
  node->dtype = out.dtype();
  out.impl()->history = {std::move(node), 0};
  return out;
}

}  // namespace halftape
