#include "halftape/autograd/tape/node.h"

#include "halftape/autograd/tape/anomaly_mode.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/grad_tag.h"
#include "halftape/autograd/tape/policy.h"
#include "halftape/autograd/tape/value_watcher.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/binary.h"
#include "halftape/core/machine/per_thread.h"
#include "halftape/core/place.h"

namespace halftape {
namespace {

std::atomic<uint64_t> newest_seq{0};
using LiveNodes = Counter<struct OfNodes>;
thread_local DtypePolicy* current_policy = nullptr;
thread_local SavedHooks* current_hooks = nullptr;
thread_local ValueWatcher* current_watcher = nullptr;

}  // namespace

Node::Node(const char* name, bool saves) : saves_(saves), name_(name) {
  renumber();
  LiveNodes::add(1);
  if (detail::tape_is_watched()) [[unlikely]]
    note_call();
}
void Node::renumber() { seq_ = kOps + 1 + newest_seq.fetch_add(1, std::memory_order_relaxed); }
void Node::note_call() {
  if (const detail::Place* at = detail::place_at_work) extras().place = at->path;
  if (autograd::AnomalyMode::is_enabled()) extras().origin = autograd::call_site();
}
Node::~Node() { LiveNodes::add(-1); }
int64_t Node::live_count() { return LiveNodes::total(); }

Grads Node::run(Grads&& g, bool last) {
  if (!saves_) return vjp(std::move(g));
  int32_t running = runs_.load(std::memory_order_relaxed);
  do {
    HALFTAPE_CHECK(running != kReleased, "backward: `", name_,
                   "` was already released by an earlier backward(); ",
                   "pass retain_graph=true there to use the graph twice",
                   autograd::where_called(*this));
    HALFTAPE_CHECK(!last || running == 0, "backward: another backward() is running `", name_,
                   "`; pass retain_graph=true to both to use the graph twice");
  } while (!runs_.compare_exchange_weak(running, last ? kReleased : running + 1,
                                        std::memory_order_acq_rel));
  struct End {  // a rule that threw may run again
    std::atomic<int32_t>& runs;
    bool failed_last;
    ~End() {
      if (runs.load(std::memory_order_relaxed) != kReleased)
        runs.fetch_sub(1, std::memory_order_release);
      else if (failed_last)
        runs.store(0, std::memory_order_release);
    }
  } end{runs_, last};
  Grads d = vjp(std::move(g));
  if (last) release();
  end.failed_last = false;
  return d;
}

void dispose(Node* node) noexcept {
  // Deleting a node may drop further nodes: they join this list instead of the stack. The list
  // runs through Node::waiting_, so that it allocates nothing.
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

void GradSlot::set_owner(detail::TensorImpl* owner) {
  const std::lock_guard lock(mutex_);
  owner_ = owner;
}

void GradSlot::with(const std::function<void(Tensor&)>& f) {
  const std::lock_guard lock(mutex_);
  if (!owner_) return;
  const Device device = owner_->value.device();
  void* const here = current_queue(device);
  void* const before = filled_in_;
  if (before && here && before != here) backend(device).queues()->follow(before);
  filled_in_ = here;
  if (!before || !here || before == here) return f(owner_->grad);
  const BufferPtr bytes = owner_->grad.defined() ? owner_->grad.array().buffer() : BufferPtr();
  f(owner_->grad);
  if (bytes) backend(device).queues()->record_use(*bytes);
}

Tensor GradSlot::owner() {
  const std::lock_guard lock(mutex_);
  return owner_ ? Tensor(Ref<detail::TensorImpl>::if_alive(owner_)) : Tensor();
}

Node::Extras& Node::extras() {
  if (!extras_) extras_ = std::make_unique<Extras>();
  return *extras_;
}

void Node::run_hooks(Grads& g) const {
  if (!extras_) return;
  auto has_arrived = [&](uint32_t i) { return i < g.size() && g[i].defined(); };
  auto in_own_dtype = [&](uint32_t i) { return g[i].to(output(i).dtype); };
  // By index: a hook may register or remove others.
  for (size_t i = 0; i < extras_->hooks.size(); ++i) {
    const auto [number, at, hook] = extras_->hooks[i];
    if (!hook || !has_arrived(at)) continue;
    if (!g[at].unique()) g[at] = g[at].clone();
    const Tensor given = in_own_dtype(at);
    const uint64_t version = given.version();
    const Tensor changed = hook(given);
    if (!changed.defined()) {
      if (given.version() != version) g[at] = given;  // which may be a copy
      continue;
    }
    HALFTAPE_CHECK(changed.sizes() == given.sizes(), "backward: a hook on the output of `", name_,
                   "` gave a gradient of shape ", changed.sizes(), " for one of shape ",
                   given.sizes());
    g[at] = changed.to(given.dtype());
  }
  for (const auto& kept : extras_->retained) {
    if (!has_arrived(kept.first)) continue;
    const Tensor retained = in_own_dtype(kept.first);  // another handle, or other bytes
    kept.second->with([&](Tensor& grad) { accumulate(grad, retained); });
  }
}

Accumulate::Accumulate(detail::TensorImpl* leaf) : Node("accumulate"), slot_(leaf) {
  seq_ -= kOps;  // runs after all operations, whenever the leaf was made
  first = {leaf->value.shape(), leaf->value.dtype(), leaf->value.device()};
}

bool Accumulate::attach_leaf(detail::TensorImpl* leaf) {
  const Array& now = leaf->value;
  if (now.shape() != first.shape || now.dtype() != first.dtype || now.device() != first.device)
    return false;
  slot_.set_owner(leaf);
  return true;
}

void Accumulate::take_over(Accumulate& former) {
  after = std::move(former.after);
  slots = std::move(former.slots);
  if (first.device == former.first.device) slot_.take_over(former.slot_);  // else it has moved
  if (auto& hooks = former.extras().hooks; !hooks.empty()) extras().hooks = std::move(hooks);
}

void accumulate(Tensor& grad, const Tensor& g) {
  HALFTAPE_CHECK(!grad.defined() || (grad.sizes() == g.sizes() && grad.device() == g.device() &&
                                     grad.is_floating_point()),
                 "backward: a gradient ", g.dtype(), " ", g.sizes(), " on ", g.device(),
                 " cannot be added to the one that is there, ", grad.dtype(), " ", grad.sizes(),
                 " on ", grad.device(), "; after set_data() with another shape call zero_grad()");
  if (GradMode::is_enabled()) {
    grad = grad.defined() ? grad.add(g) : g.clone();
  } else if (!grad.defined()) {
    // Takes the bytes only if nobody else holds them: later gradients are added in place.
    grad = g.unique() && g.is_contiguous() ? g.detach() : Tensor(g.array().clone());
  } else if (grad.requires_grad() || overlaps_itself(grad.sizes(), grad.strides())) {
    grad = Tensor(grad.add(g).array());  // the old one is part of a recorded graph, or expanded
  } else {
    const Array& into = grad.array();
    backend(into.device()).binary(BinaryOps::index<formula::Add>(), into, into, g.array());
    into.bump_version();
  }
}

void Accumulate::add_to(Tensor& grad, const Tensor& g) const {
  Array slot = slots && !grad.defined() && !GradMode::is_enabled() ? slots->gradient() : Array();
  if (!slot.defined()) return accumulate(grad, g);
  HALFTAPE_CHECK(slot.shape() == g.sizes(), "backward: a gradient ", g.sizes(),
                 " has no place in the flat storage, which was made for ", slot.shape(),
                 "; flatten() the parameters again");
  backend(slot.device()).copy(slot, g.array());
  grad = Tensor(std::move(slot));
}

Grads Accumulate::vjp(Grads gs) {
  Tensor g = std::move(gs[0]);
  gs.clear();
  slot_.with([&](Tensor& grad) {
    std::optional<Ref<GradTag>> mark = GradTag::of_sum(grad);
    const bool partial = is_partial(grad);
    add_to(grad, g);
    if (mark) set_mark(grad, std::move(*mark));
    if (partial) set_partial(grad, true);
  });
  g = Tensor();  // the leaf alone holds the gradient when a hook sees it
  if (!after.empty())
    if (const Tensor leaf = slot_.owner(); leaf.defined())
      for (size_t i = 0; i < after.size(); ++i)
        if (const auto hook = after[i].call) hook(leaf);
  return {};
}

ValueWatcher* ValueWatcher::current() { return current_watcher; }
ValueWatcher::Scope::Scope(ValueWatcher* watcher) : ScopedValue(current_watcher, watcher) {
  ++detail::tape_watchers;
}
void detail::show_made(const Node& node, const Array& value) {
  if (current_watcher) current_watcher->made(node, value);
  if (OpWatcher* profiler = OpWatcher::current()) profiler->made(value);
}
void detail::show_made_inside(const char* op, const Tensor& weight, const Array& value) {
  if (current_watcher) current_watcher->made_inside(op, weight.gradient_edge(), value);
}
void detail::show_derived_inside(const Node& node, size_t weight, const Array& gradient) {
  if (current_watcher) current_watcher->derived_inside(node, weight, gradient);
}

SavedHooks* SavedHooks::current() { return current_hooks; }
SavedHooks::Scope::Scope(SavedHooks* hooks) : ScopedValue(current_hooks, hooks) {}

Saved::Saved(const Tensor& input)
    : array_(input.array()), edge_(input.gradient_edge()), version_(input.version()) {
  // In the mode itself nothing is recorded: what is saved there goes at once.
  HALFTAPE_CHECK(!input.is_inference() || InferenceMode::is_enabled(),
                 "Inference tensors cannot be saved for backward. clone() the tensor ",
                 input.sizes(), " outside InferenceMode");
  if (!input.is_leaf()) pack();
}

Saved::Saved(const Array& output, uint32_t number)
    : array_(output), edge_{{}, number}, version_(output.version()), output_(true) {
  pack();
}

void Saved::pack() {
  SavedHooks* hooks = SavedHooks::current();
  if (!hooks) return;
  key_ = hooks->pack(array_);
  hooks_ = Ref<SavedHooks>(hooks);
  array_ = {};
}

const Array& Saved::array(const Node& by) const {
  const SavedHooks::Packed* packed = hooks_ ? &hooks_->unpack(key_) : nullptr;
  const Array& array = packed ? packed->array : array_;
  const uint64_t version = packed ? packed->version : version_;
  HALFTAPE_CHECK(
      array.version() == version, "backward: a tensor of shape ", array.shape(), " that `",
      by.name(), "` needs was changed in place after it was saved (version ", array.version(),
      ", saved at ", version,
      "); data_ptr<T>() and accessors count as changes, const_data_ptr<T>() does not; use an "
      "out-of-place operation or clone() it before the change",
      autograd::where_called(by));
  return array;
}

Tensor Saved::tensor(Node& by) const {
  Tensor t(array(by));
  t.impl()->is_view = true;
  t.impl()->creation_meta = autograd::CreationMeta::NO_GRAD_MODE;
  t.impl()->history = output_ ? Edge{Ref<Node>(&by), edge_.output} : edge_;
  return t;
}

DtypePolicy* dtype_policy() { return current_policy; }
void set_dtype_policy(DtypePolicy* policy) { current_policy = policy; }
detail::Decision detail::decide(const CastOp& op, std::span<const Tensor* const> given,
                                std::span<Tensor> casts) {
  DtypePolicy* policy = dtype_policy();
  if (op.cast == Cast::Keep && !policy->every_op) return {};
  const std::optional<Dtype> compute_as = policy->cast(op, given, casts);
  set_dtype_policy(nullptr);
  return {policy, compute_as};
}

namespace {
constinit thread_local uint64_t policy_scopes = 0, current_policy_scope = 0;
}
PolicyScope::PolicyScope(DtypePolicy* policy)
    : ScopedValue(current_policy, policy), number_(current_policy_scope, ++policy_scopes) {}
uint64_t PolicyScope::current() { return current_policy_scope; }

}  // namespace halftape
