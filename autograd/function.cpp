#include "halftape/autograd/function.h"

#include <algorithm>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/record.h"

namespace halftape::autograd {
namespace {

/// Index of a tensor in a list, or −1, as for an undefined one.
int find(const variable_list& list, const Tensor& t) {
  const auto at = std::find_if(list.begin(), list.end(),
                               [&](const Tensor& o) { return o.defined() && o.is_same(t); });
  return at == list.end() ? -1 : static_cast<int>(at - list.begin());
}

/// An output of forward() that may get the op's history: y itself, or another tensor of its bytes.
/// An input that is returned unchanged becomes a view of itself.
Tensor without_history(const Tensor& y, bool input) {
  const bool view = input || y.is_view();
  if (!view && !y.requires_grad()) return y;
  Tensor own(y.array());
  if (!view) return own;
  const NoGradGuard unrecorded;
  own.impl()->becomes_view_of(y);
  own.impl()->creation_meta = CreationMeta::IN_CUSTOM_FUNCTION;
  return own;
}

}  // namespace

variable_list AutogradContext::get_saved_variables() const {
  HALFTAPE_CHECK(node_, "get_saved_variables: only backward() can ask");
  variable_list out;
  for (const Saved& s : saved_)
    out.push_back(s.defined() ? s.tensor(const_cast<FunctionNode&>(*node_))  // NOLINT
                              : Tensor());
  return out;
}

bool AutogradContext::needs_input_grad(size_t tensor) const {
  HALFTAPE_CHECK(node_, "needs_input_grad: only backward() can ask");
  HALFTAPE_CHECK(tensor < node_->next.size(), "needs_input_grad: `", node_->name(), "` has ",
                 node_->next.size(), " tensors among its arguments, not one with number ", tensor);
  return node_->wants(tensor);
}

bool AutogradContext::needs_input_grad(std::initializer_list<IndexRange> ranges) const {
  for (const auto& [first, end] : ranges)
    for (size_t i = first; i < end; ++i)
      if (needs_input_grad(i)) return true;
  return false;
}

variable_list FunctionNode::finish(variable_list outputs, const variable_list& inputs) {
  const variable_list to_save = std::move(context.to_save_), dirty = std::move(context.dirty_),
                      constant = std::move(context.non_differentiable_);
  context.to_save_ = context.dirty_ = context.non_differentiable_ = {};
  for (const Tensor& t : dirty) {
    HALFTAPE_CHECK(find(inputs, t) >= 0, name(), ": mark_dirty() of a tensor that is no input");
    HALFTAPE_CHECK(find(outputs, t) >= 0, name(),
                   ": mark_dirty() of an input that forward() does not return");
  }
  if (!records(inputs)) return outputs;

  for (const Tensor& t : inputs) next.push_back(t.gradient_edge());
  renumber();  // an input may have got a history since the node was made
  std::vector<Output> layouts;
  const Ref<Node> self(this);
  variable_list results = outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    Tensor& y = results[i];
    given_.push_back(y.defined());
    layouts.push_back(y.defined() ? Output{y.sizes(), y.dtype(), y.device()} : Output{});
    if (!y.defined() || !y.is_floating_point()) continue;
    const bool changed = find(dirty, y) >= 0;
    const bool input = find(inputs, y) >= 0;
    if (find(constant, y) >= 0) {
      if (input || y.requires_grad()) y = y.detach();
      continue;
    }
    if (!changed) y = without_history(y, input);
    if (halftape::detail::tape_is_watched()) halftape::detail::show_made(*this, y.array());
    const Edge edge{self, static_cast<uint32_t>(i)};
    if (changed) {
      check_writable(name(), y, true);
      Tensor value(y.array());
      value.impl()->set_history(edge);
      take_history(y, value);
    } else {
      y.impl()->set_history(edge);
    }
  }
  for (const Tensor& y : results)  // views may stand before what forward() changed
    if (y.defined() && y.impl()->base && !y.impl()->follows())
      y.impl()->seen = y.impl()->base->rewritten;
  if (!layouts.empty()) {
    first = layouts[0];
    others.assign(layouts.begin() + 1, layouts.end());
  }
  for (const Tensor& t : to_save) {
    const int output = find(outputs, t);
    const bool made = output >= 0 && (find(inputs, t) < 0 || find(dirty, t) >= 0);
    const bool derived = made && t.is_floating_point() && find(constant, t) < 0;
    context.saved_.push_back(!t.defined() ? Saved()
                             : derived    ? Saved(t.array(), static_cast<uint32_t>(output))
                                          : Saved(t));
  }
  context.node_ = this;
  saves_ = !context.saved_.empty();
  return results;
}

Grads FunctionNode::vjp(Grads g) {
  g.resize(1 + others.size());
  for (size_t i = 0; i < g.size(); ++i) {
    const Output& o = output(static_cast<uint32_t>(i));
    // A rule may write to its gradient, and one number may be all's: the 1 of every pass, a scale.
    if (g[i].defined() && g[i].numel() == 1 && !g[i].unique())
      g[i] = g[i].clone();
    else if (!g[i].defined() && context.materialize_ && given_[i])
      g[i] = zeros(o.shape, TensorOptions(o.dtype).device(o.device));
  }
  const auto& carried = context.policy_of_backward;
  const std::shared_ptr<DtypePolicy> policy = carried ? carried->snapshot() : nullptr;
  const PolicyScope region(policy.get());
  variable_list given = backward_(&context, std::move(g));
  while (given.size() > arguments.size() && !given.back().defined()) given.pop_back();
  HALFTAPE_CHECK(given.size() == arguments.size(), "backward: `", name(), "` gave ", given.size(),
                 " gradients for the ", arguments.size(), " arguments of forward()");
  Grads d(next.size());
  for (size_t i = 0; i < given.size(); ++i) {
    if (!given[i].defined()) continue;
    HALFTAPE_CHECK(arguments[i] >= 0, "backward: `", name(), "` gave a gradient for argument ", i,
                   ", which is no tensor");
    const auto at = static_cast<size_t>(arguments[i]);
    if (!wants(at)) continue;
    const Output& o = next[at].node->output(next[at].output);
    d[at] = broadcasts_to(o.shape, given[i].sizes()) ? sum_to(given[i], o.shape) : given[i];
  }
  return d;
}

}  // namespace halftape::autograd
