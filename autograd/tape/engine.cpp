#include "halftape/autograd/tape/engine.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <queue>
#include <unordered_set>

#include "halftape/autograd/tape/anomaly_mode.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/grad_tag.h"
#include "halftape/autograd/tape/implicit_one.h"
#include "halftape/autograd/tape/node.h"
#include "halftape/autograd/tape/op_timer.h"
#include "halftape/autograd/tape/policy.h"
#include "halftape/core/capture/capture.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/start_thread.h"

namespace halftape::autograd {
namespace {

/// All nodes that can be reached from the roots, youngest first. Creation order is a topological
/// order: a node leaves the queue only after every node that leads to it.
std::vector<Ref<Node>> reachable(const std::vector<Edge>& roots) {
  const auto older = [](const Node* a, const Node* b) { return a->seq() < b->seq(); };
  std::priority_queue<Node*, std::vector<Node*>, decltype(older)> queue(older);
  auto visit = [&](const Edge& e) {
    if (e) queue.push(e.node.get());
  };
  for (const Edge& e : roots) visit(e);
  std::vector<Ref<Node>> order;
  while (!queue.empty()) {
    Node* n = queue.top();
    queue.pop();
    if (!order.empty() && order.back().get() == n) continue;  // reached twice
    order.emplace_back(n);
    for (const Edge& e : n->next) visit(e);
  }
  return order;
}

/// A gradient in the dtype in which it is kept where it arrives.
Tensor as_stored(const Edge& edge, Tensor g) {
  const Node::Output& to = edge.node->output(edge.output);
  if (g.dtype() != to.dtype && !(to.wide && g.dtype() == kFloat32)) g = g.to(to.dtype);
  return g;
}

bool has_hooks(const Node& leaf) { return !static_cast<const Accumulate&>(leaf).after.empty(); }

/// The gradients that have arrived at each node of a pass, and the marks of their sums.
class Arrivals {
 public:
  Arrivals(const std::vector<Ref<Node>>& order, GradTag::Pass& pass)
      : order_(order), pass_(pass), nodes_(order.size()) {
    for (auto n = order.rbegin(); n != order.rend() && (*n)->is_leaf(); ++n)
      early_leaves_ |= has_hooks(**n);
    if (!early_leaves_) return;
    for (const Ref<Node>& n : order)
      for (const Edge& e : n->next)
        if (e && e.node->is_leaf()) ++nodes_[index_of(*e.node, 0)].awaited;
  }
  /// Called once for each edge of a rule that has run, after add(): where in the order a leaf is
  /// that has now got all its gradients, and has hooks. Such a leaf does not wait for the end of
  /// the pass: a data-parallel training sends its gradient meanwhile.
  std::optional<size_t> completes(const Edge& edge, size_t begin) {
    if (!early_leaves_ || !edge || !edge.node->is_leaf()) return {};
    const size_t at = index_of(*edge.node, begin);
    if (--nodes_[at].awaited > 0 || !has_hooks(*edge.node)) return {};
    return at;
  }
  /// Adds `g` to what has arrived over the edge. The edge's node is at order[begin] or later.
  void add(const Edge& edge, Tensor g, size_t begin) {
    if (!edge || !g.defined()) return;
    const Node::Output& output = edge.node->output(edge.output);
    HALFTAPE_CHECK(g.sizes() == output.shape, "backward: a gradient of shape ", g.sizes(),
                   " arrived at `", edge.node->name(), "`, expected shape ", output.shape);
    g = as_stored(edge, std::move(g));
    const size_t at = index_of(*edge.node, begin);
    HALFTAPE_CHECK(at < order_.size() && order_[at] == edge.node, "backward: a gradient for `",
                   edge.node->name(), "` came after its turn");
    Grads& slots = nodes_[at].grads;
    if (marked_) {
      GradTag*& mark = nodes_[at].mark;
      mark = slots.empty() ? GradTag::current() : pass_.sum(mark, GradTag::current());
    }
    if (slots.size() <= edge.output) slots.resize(edge.output + 1);
    Tensor& slot = slots[edge.output];
    if (!slot.defined()) {
      slot = std::move(g);
      return;
    }
    if (slot.dtype() == g.dtype() && slot.unique() && slot.is_contiguous())
      accumulate(slot, g);
    else
      slot = slot.add(g);
    nodes_[at].summed = true;
  }
  bool summed(size_t i) const { return nodes_[i].summed; }
  Grads take(size_t i) { return std::move(nodes_[i].grads); }
  GradTag* mark(size_t i) const { return nodes_[i].mark; }

 private:
  /// Handles before `begin` may be null by now.
  size_t index_of(const Node& n, size_t begin) const {
    const auto at =
        std::lower_bound(order_.begin() + static_cast<std::ptrdiff_t>(begin), order_.end(), n.seq(),
                         [](const Ref<Node>& other, uint64_t seq) { return other->seq() > seq; });
    return static_cast<size_t>(at - order_.begin());
  }
  struct AtNode {
    Grads grads;
    GradTag* mark = nullptr;
    bool summed = false;   // several gradients have arrived
    uint32_t awaited = 0;  // of a leaf: edges whose rules have not run yet
  };
  const std::vector<Ref<Node>>& order_;
  GradTag::Pass& pass_;
  const bool marked_ = GradTag::enabled();
  bool early_leaves_ = false;  // some leaf has hooks
  std::vector<AtNode> nodes_;
};

/// The gradients that grad() asks for, and the nodes that lead to them. What lies below those nodes
/// does not run, and keeps its graph.
class WantedGrads {
 public:
  /// Null for a backward() that accumulates in all leaves: every node runs.
  WantedGrads(const std::vector<Edge>* edges, const std::vector<Ref<Node>>& order)
      : edges_(edges), grads_(edges ? edges->size() : 0), marks_(grads_.size()) {
    if (!edges) return;
    for (const Edge& e : *edges) nodes_.insert(e.node.get());
    const auto leads_on = [&](const Edge& e) { return e && nodes_.count(e.node.get()) > 0; };
    for (auto n = order.rbegin(); n != order.rend(); ++n)
      if (std::any_of((*n)->next.begin(), (*n)->next.end(), leads_on))
        above_.insert(n->get()), nodes_.insert(n->get());
  }
  /// The nodes that a gradient is to reach; null for all.
  const std::unordered_set<Node*>* nodes() const { return edges_ ? &nodes_ : nullptr; }
  bool runs(Node& n) const { return !edges_ || above_.count(&n) > 0; }
  /// Keeps those of the gradients `g` of node n that are wanted, and the current mark with them.
  void keep(const Node& n, const Grads& g) {
    for (size_t i = 0; i < grads_.size(); ++i) {
      const Edge& e = (*edges_)[i];
      if (e.node.get() != &n || e.output >= g.size() || !g[e.output].defined()) continue;
      grads_[i] = writable(g[e.output].to(n.output(e.output).dtype));
      marks_[i] = Ref(GradTag::current());
    }
  }
  Grads take(std::vector<Ref<GradTag>>& marks) {
    marks = std::move(marks_);
    return std::move(grads_);
  }

 private:
  const std::vector<Edge>* edges_;
  std::unordered_set<Node*> above_, nodes_;  // nodes_: above_ and the nodes of the edges
  Grads grads_;
  std::vector<Ref<GradTag>> marks_;
};

struct Request {
  std::vector<Edge> roots;
  Grads root_grads;
  std::vector<GradTag*> root_marks = {};
  const std::vector<Edge>* wanted = nullptr;  // null: accumulate into leaves
  bool retain_graph = false, create_graph = false;
  std::vector<Ref<GradTag>> marks = {};  // run() returns here the marks of the wanted gradients
};

/// Counts the backward passes that run within each other, as those of nested checkpoints do. Where
/// they are too deep for the stack, the next one runs on a thread of its own.
class Nested {
 public:
  Nested() { ++depth; }
  ~Nested() { --depth; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
  static bool too_deep() { return depth >= 48; }
  /// Of all threads that wait for this one, too.
  static int passes() { return outside + depth; }
  /// On a new thread: how many passes wait for it.
  static void begin(int waiting) { outside = waiting; }
  static constexpr int kMost = 10'000;

 private:
  static inline thread_local int depth = 0, outside = 0;
};

/// What hooks of a backward() have put off until its end.
class PutOff {
 public:
  PutOff() : outer_(current) {
    if (!outer_) current = this;
  }
  ~PutOff() { current = outer_; }
  PutOff(const PutOff&) = delete;
  PutOff& operator=(const PutOff&) = delete;
  /// At the end of a pass; only the outermost one does something.
  void call() {
    if (outer_) return;
    current = nullptr;
    for (const std::function<void()>& f : calls_) f();
  }
  void add(std::function<void()> f) { calls_.push_back(std::move(f)); }
  /// Of this thread; null outside of backward().
  static inline thread_local PutOff* current = nullptr;

 private:
  PutOff* outer_;
  std::vector<std::function<void()>> calls_;
};

Grads run(Request& request);
Grads run_elsewhere(Request& request) {
  HALFTAPE_CHECK(!Capture::active_or_tried(),
                 "backward: 48 backward passes within each other, as of nested checkpoints, inside "
                 "the step of a Graph; use fewer there");
  const int passes = Nested::passes();
  HALFTAPE_CHECK(passes < Nested::kMost, "backward: ", passes,
                 " backward passes within each other; "
                 "does a hook or a rule call backward() without an end?");
  Grads result;
  std::exception_ptr error;
  const auto work = [&, take_queues = queues_of_thread(), watcher = ValueWatcher::current(),
                     put_off = PutOff::current] {
    Nested::begin(passes);
    PutOff::current = put_off;
    take_queues();
    const ValueWatcher::Scope watched(watcher);
    try {
      result = run(request);
    } catch (...) {
      error = std::current_exception();
    }
  };
  constexpr auto who =
      "backward: 48 backward passes within each other, as of nested checkpoints, need a thread, "
      "which";
  halftape::detail::start_thread(who, work).join();
  if (error) std::rethrow_exception(error);
  return result;
}

/// Shows the results of n's rule to those who watch.
void look_at(const Node& n, Grads& d) {
  if (ValueWatcher* watcher = ValueWatcher::current()) {
    for (size_t i = 0; i < d.size(); ++i)
      if (n.next[i] && d[i].defined()) d[i] = as_stored(n.next[i], std::move(d[i]));
    watcher->derived(n, d);
  }
  if (AnomalyMode::should_check_nan()) refuse_nonfinite(n, d);
}

void show_sums(const Node& n, const Grads& sums) {
  if (!detail::tape_is_watched()) return;
  if (ValueWatcher* watcher = ValueWatcher::current()) watcher->added(n, sums);
}

/// The gradients of n's inputs from those of its outputs.
Grads call_rule(Node& n, Grads&& g, bool last) {
  Grads d;
  {
    const OpTimer span(n.name(), OpWatcher::Phase::Backward);
    d = n.run(std::move(g), last);
  }
  HALFTAPE_CHECK(d.size() == n.next.size(), "backward: `", n.name(), "` gave ", d.size(),
                 " gradients for ", n.next.size(), " inputs");
  if (detail::tape_is_watched()) [[unlikely]]
    look_at(n, d);
  return d;
}

/// The whole backward pass. Returns the gradients at request.wanted, if there are any.
Grads run(Request& request) {
  if (Nested::too_deep()) return run_elsewhere(request);
  const Nested nested;
  const AutoGradMode recording(request.create_graph);
  const PolicyScope no_policy(nullptr);  // dtypes were decided in the forward pass
  std::vector<Ref<Node>> order = reachable(request.roots);
  WantedGrads wanted(request.wanted, order);
  const Node::Wanted only(wanted.nodes());  // rules compute nothing for other nodes
  GradTag::Pass pass;
  Arrivals arrivals(order, pass);
  for (size_t i = 0; i < request.roots.size(); ++i) {
    pass.begin_rule(request.root_marks[i]);
    arrivals.add(request.roots[i], std::move(request.root_grads[i]), 0);
  }
  request.roots.clear();

  const auto visit = [&](size_t at) -> Grads {  // gives the gradients of the node's inputs
    Node& n = *order[at];
    Grads g = arrivals.take(at);
    if (g.empty()) return {};
    if (arrivals.summed(at)) show_sums(n, g);
    pass.begin_rule(arrivals.mark(at));
    n.run_hooks(g);
    wanted.keep(n, g);
    if (!wanted.runs(n)) return {};
    return call_rule(n, std::move(g), !request.retain_graph);
  };
  for (size_t at = 0; at < order.size(); ++at) {
    const Edges& next = order[at]->next;
    Grads d = visit(at);
    for (size_t i = 0; i < d.size(); ++i) arrivals.add(next[i], std::move(d[i]), at + 1);
    for (size_t i = 0; i < d.size(); ++i)
      if (const std::optional<size_t> leaf = arrivals.completes(next[i], at + 1)) visit(*leaf);
    if (!d.empty()) order[at] = {};
  }
  return wanted.take(request.marks);
}

/// For messages: "`tanh`" where tanh() made the tensor, or "a leaf".
std::string maker(const Tensor& y) {
  return y.is_leaf() ? "a leaf" : "`" + std::string(y.grad_fn()->name()) + "`";
}

Request prepare(const char* who, const TensorList& outputs, const TensorList& grad_outputs,
                std::optional<bool> retain_graph, bool create_graph) {
  HALFTAPE_CHECK(grad_outputs.empty() || grad_outputs.size() == outputs.size(), who, ": ",
                 grad_outputs.size(), " gradients for ", outputs.size(), " outputs");
  Request r;
  r.retain_graph = retain_graph.value_or(create_graph);
  r.create_graph = create_graph;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& y = outputs[i];
    HALFTAPE_CHECK(y.defined(), who, ": output ", i, " is undefined");
    Edge root = y.gradient_edge();
    HALFTAPE_CHECK(root, who, ": element ", i,
                   " of tensors does not require grad and does not have a grad_fn (shape ",
                   y.sizes(), "); was it made under NoGradGuard or from detached tensors?");
    Tensor g = grad_outputs.empty() ? Tensor() : grad_outputs[i];
    r.root_marks.push_back(g.defined() ? GradTag::current() : nullptr);
    if (!g.defined()) {
      HALFTAPE_CHECK(y.numel() == 1, who,
                     ": grad can be implicitly created only for scalar outputs, not for one of ",
                     y.sizes(), "; pass one, or reduce with sum() or mean()");
      g = implicit_one(y.device(), y.dtype()).reshape(y.sizes());
    }
    HALFTAPE_CHECK(g.sizes() == y.sizes(), who, ": gradient ", g.sizes(),
                   " for an output of shape ", y.sizes(), " of ", maker(y));
    HALFTAPE_CHECK(g.device() == y.device(), who, ": gradient on ", g.device(),
                   " for an output on ", y.device());
    r.roots.push_back(std::move(root));
    r.root_grads.push_back(std::move(g));
  }
  return r;
}

std::vector<Edge> edges_of(const char* who, const TensorList& inputs) {
  std::vector<Edge> edges;
  for (size_t i = 0; i < inputs.size(); ++i) {
    edges.push_back(inputs[i].defined() ? inputs[i].gradient_edge() : Edge{});
    HALFTAPE_CHECK(edges.back(), who, ": input ", i, " does not require grad");
  }
  return edges;
}

}  // namespace

void backward(const TensorList& outputs, const TensorList& grad_outputs,
              std::optional<bool> retain_graph, bool create_graph,
              const std::optional<TensorList>& inputs) {
  Request r = prepare("backward", outputs, grad_outputs, retain_graph, create_graph);
  PutOff put_off;
  if (!inputs) {
    run(r);
    return put_off.call();
  }
  HALFTAPE_CHECK(!inputs->empty(),
                 "backward: inputs cannot be empty; leave them out for all leaves");
  const std::vector<Edge> wanted = edges_of("backward", *inputs);
  r.wanted = &wanted;
  const Grads grads = run(r);
  const AutoGradMode recording(create_graph);
  for (size_t i = 0; i < grads.size(); ++i) {
    const auto first = std::find_if(wanted.begin(), wanted.end(), [&](const Edge& e) {
      return e.node == wanted[i].node && e.output == wanted[i].output;
    });
    const bool named_before = first - wanted.begin() < static_cast<std::ptrdiff_t>(i);
    // A pass fills the gradients that are retained by itself.
    if (!grads[i].defined() || named_before || (*inputs)[i].retains_grad()) continue;
    const GradTag::Pass marked(r.marks[i].get());
    if ((*inputs)[i].is_leaf())
      wanted[i].node->vjp({grads[i]});
    else
      accumulate((*inputs)[i].mutable_grad(), grads[i]);
  }
  put_off.call();
}

const void* current_backward() { return PutOff::current; }

void queue_callback(std::function<void()> f) {
  if (PutOff* put_off = PutOff::current)
    put_off->add(std::move(f));
  else
    f();
}

TensorList grad(const TensorList& outputs, const TensorList& inputs, const TensorList& grad_outputs,
                std::optional<bool> retain_graph, bool create_graph, bool allow_unused) {
  Request r = prepare("grad", outputs, grad_outputs, retain_graph, create_graph);
  HALFTAPE_CHECK(!inputs.empty(), "grad requires non-empty inputs.");
  const std::vector<Edge> wanted = edges_of("grad", inputs);
  r.wanted = &wanted;
  TensorList grads = run(r);
  for (size_t i = 0; i < grads.size(); ++i)
    HALFTAPE_CHECK(allow_unused || grads[i].defined(), "grad: the outputs do not depend on input ",
                   i, " of shape ", inputs[i].sizes(),
                   ". Set allow_unused=True to get an undefined tensor for it");
  // For those that are assigned as a parameter's gradient. Without a mark nothing is claimed: the
  // outputs may have been multiplied by a scale in any other way.
  for (size_t i = 0; i < grads.size(); ++i)
    if (grads[i].defined() && r.marks[i]) set_mark(grads[i], r.marks[i]);
  return grads;
}

}  // namespace halftape::autograd
