// record(): writes history. Ops of several outputs, custom functions and in-place calls, which have
// more to say, write their own.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/node.h"
#include "halftape/autograd/tape/value_watcher.h"

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

namespace detail {
inline const Tensor& tensor_of(const Tensor* t) { return *t; }
inline const Tensor& tensor_of(const Tensor& t) { return t; }
}  // namespace detail

/// True if an op of these inputs is to be recorded. Asks all of them: a view whose base was written
/// records its new history when it is asked, and that node must be older than the op's.
template <class Inputs = std::initializer_list<const Tensor*>>
bool records(const Inputs& inputs) {
  if (!GradMode::is_enabled()) return false;
  bool any = false;
  for (const auto& t : inputs) any |= detail::tensor_of(t).requires_grad();
  return any;
}

/// A tensor with this value, and with the rule as its history if one of the inputs, which are a
/// TensorList or {&x, …}, requires grad. `view_of`: the input whose bytes the value shares, if any.
template <class Rule, class Inputs = std::initializer_list<const Tensor*>>
Tensor record(const char* name, Array value, const Inputs& inputs, Rule&& rule,
              const Tensor* view_of = nullptr) {
  Tensor out(std::move(value));
  if (view_of) out.impl()->becomes_view_of(*view_of);
  if (!records(inputs) || !out.is_floating_point()) return out;
  Ref<Node> node(
      new RuleNode<std::decay_t<Rule>>(name, std::forward<Rule>(rule)));  // NOLINT: counted
  for (const auto& t : inputs) node->next.push_back(detail::tensor_of(t).gradient_edge());
  node->first = {out.sizes(), out.dtype(), out.device()};
  if (detail::tape_is_watched() && !view_of) [[unlikely]]
    detail::show_made(*node, out.array());
  out.impl()->history = {std::move(node), 0};
  return out;
}

/// Throws if x must not be written. `history`: whether the new value has one.
void check_writable(const char* op, const Tensor& x, bool history);

/// After `value` was written to x in place: gives x the history of `value`. If x is a view, its
/// base gets that history for the part that x shows.
void take_history(const Tensor& x, const Tensor& value);

}  // namespace halftape
