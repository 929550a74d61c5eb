#include "halftape/autograd/node.h"

#include "halftape/autograd/grad_mode.h"
#include "halftape/autograd/ops/binary.h"
#include "halftape/autograd/ops/view.h"
#include "halftape/autograd/policy.h"
#include "halftape/core/backend.h"
#include "halftape/core/formula/binary.h"

namespace halftape {
namespace {

std::atomic<uint64_t> next_seq{1};
std::atomic<int64_t> live_nodes{0};
thread_local DtypePolicy* current_policy = nullptr;

}  // namespace

Node::Node(const char* name) : seq_(next_seq.fetch_add(1, std::memory_order_relaxed)), name_(name) {
  live_nodes.fetch_add(1, std::memory_order_relaxed);
}
Node::~Node() { live_nodes.fetch_sub(1, std::memory_order_relaxed); }
int64_t Node::live_count() { return live_nodes.load(std::memory_order_relaxed); }

void dispose(Node* node) noexcept {
  // Deleting a node drops its edges and saved tensors, which may drop further nodes: those join
  // this list instead of the stack. Threaded through the nodes, so that it allocates nothing and
  // outlives no thread.
  thread_local Node* waiting = nullptr;
  thread_local bool draining = false;
  node->waiting_ = std::exchange(waiting, node);
  if (draining) return;
  draining = true;
  while (waiting) {
    Node* n = std::exchange(waiting, waiting->waiting_);
    delete n;
  }
  draining = false;
}

Accumulate::Accumulate(detail::TensorImpl* leaf) : Node("accumulate"), leaf_(leaf) {
  seq_ = 0;  // after every op, whenever the leaf was made
  shape = leaf->value.shape();
  dtype = leaf->value.dtype();
}

void Accumulate::detach_leaf() {
  const std::lock_guard lock(mutex_);
  leaf_ = nullptr;
}

Grads Accumulate::vjp(Grads gs) {
  const std::lock_guard lock(mutex_);
  if (!leaf_) return {};
  Tensor g = std::move(gs[0]);
  gs.clear();
  Tensor& grad = leaf_->grad;
  if (GradMode::is_enabled()) {
    grad =
        grad.defined() ? add(grad, g) : clone(g);  // its own bytes: gradients are changed in place
  } else if (!grad.defined()) {
    // Take the bytes when nobody else can see them; otherwise a later in-place addition would reach
    // others.
    grad = g.unique() && g.is_contiguous() ? g.detach() : Tensor(g.array().clone());
  } else if (grad.requires_grad()) {
    grad = Tensor(add(grad, g).array());  // the old one belongs to a graph somebody may still use
  } else {
    const Array& into = grad.array();
    backend(into.device()).binary(BinaryOps::index<Add>(), into, into, g.array());
    into.bump_version();
  }
  return {};
}

Saved::Saved(const Tensor& input)
    : array_(input.array()), edge_(input.gradient_edge()), version_(input.version()) {}

Saved::Saved(const Array& output) : array_(output), version_(output.version()), output_(true) {}

const Array& Saved::array(const Node& by) const {
  HALFTAPE_CHECK(array_.version() == version_, "backward: a tensor of shape ", array_.shape(),
                 " that `", by.name(), "` needs was changed in place after it was saved (version ",
                 array_.version(), ", saved at ", version_,
                 "); use an out-of-place operation or clone() it before the change");
  return array_;
}

Tensor Saved::tensor(Node& by) const {
  Tensor t(array(by));
  t.impl()->is_view = true;
  if (output_)
    t.impl()->history = {Ref<Node>(&by), 0};
  else
    t.impl()->history = edge_;
  return t;
}

DtypePolicy* dtype_policy() { return current_policy; }
PolicyScope::PolicyScope(DtypePolicy* policy) : before_(std::exchange(current_policy, policy)) {}
PolicyScope::~PolicyScope() { current_policy = before_; }

}  // namespace halftape
