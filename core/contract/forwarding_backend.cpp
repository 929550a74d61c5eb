#include "halftape/core/contract/forwarding_backend.h"

#include <algorithm>

#include "halftape/core/formula/binary.h"
#include "halftape/core/formula/unary.h"

namespace halftape {
namespace {

using Arrays = std::vector<const Array*>;
using Touched = ForwardingBackend::Touched;

template <class List>
std::string name_in(OpId op) {
  std::string found;
  OpId at = 0;
  List::each([&](auto tag) {
    if (at++ == op) found = decltype(tag)::type::name;
  });
  return found;
}

void add(Arrays& to, const Arrays& more) { to.insert(to.end(), more.begin(), more.end()); }
Arrays all_of(std::span<const Array> arrays) {
  Arrays all;
  for (const Array& a : arrays) all.push_back(&a);
  return all;
}
bool lists(const Arrays& list, const Array& a) {
  return std::any_of(list.begin(), list.end(), [&](const Array* other) {
    return other->defined() && other->raw() == a.raw() && other->numel() == a.numel();
  });
}

Touched of_gradients(const NormGrads& d, const Array& g, const Norm& norm) {
  return {{&d.dx, &d.dweight, &d.dbias},
          {&g, &norm.x, &norm.weight, &norm.bias, &norm.mean, &norm.rstd}};
}

/// The name and the arrays of a task, for before().
struct Named {
  std::string name;
  Touched touched;
};
Named named(const CrossEntropy& c) {
  return {"cross_entropy",
          {{&c.loss, &c.counted, &c.grad, &c.total, &c.mean}, {&c.x, &c.target, &c.weight}}};
}
Named named(const CrossEntropyGrad& c) {
  return {"cross_entropy_grad", {{&c.dx}, {&c.slopes, &c.g, &c.total}}};
}
Named named(const MlpLoss& m) {
  Touched touched{{&m.loss, &m.dx}, {&m.x, &m.target, &m.g}};
  for (const auto* written : {&m.dweights, &m.dbiases}) add(touched.writes, all_of(*written));
  for (const auto* read : {&m.weights, &m.biases}) add(touched.reads, all_of(*read));
  return {"mlp_loss", touched};
}
Named named(const CheckedScale& s) {
  return {"checked_scale",
          {{&s.y, &s.nonfinite, &s.factor, &s.inverse, &s.found_inf, &s.first}, {&s.x, &s.scale}}};
}
Named named(const GradientCheck& c) {
  Touched touched{{&c.found_inf, &c.first}, {&c.inv_scale}};
  add(c.divides ? touched.writes : touched.reads, all_of(c.grads));
  return {c.divides ? "unscale" : "check_finite", touched};
}
Named named(const ListNorm& n) {
  Touched touched{{&n.norm, &n.factor}, all_of(n.xs)};
  touched.reads.push_back(&n.unit);
  return {"list_norm", touched};
}
Named named(const ListUpdate& u) {
  const StepControl& control = u.control;
  Touched touched{{}, {&control.found_inf, &control.inv_scale, &control.live_rule, &control.clip}};
  for (const UpdateSlot& s : u.slots) {
    add(touched.writes, {&s.param, &s.step, &s.keeping.extra, &s.low});
    add(touched.writes, all_of(s.moments));
    (control.clip.defined() ? touched.writes : touched.reads).push_back(&s.grad);
  }
  return {std::visit([](const auto& rule) { return rule.name; }, u.rule), touched};
}
Named named(const Transition& t) {
  Touched touched{{&t.scale, &t.trackers, &t.counts}, {&t.bad_loss}};
  for (const CheckResult& r : t.results) add(touched.reads, {&r.found_inf, &r.first});
  return {"transition", touched};
}
Named named(const Attention& a) {
  return {"attention", {{&a.y, &a.largest, &a.total}, {&a.q, &a.k, &a.v, &a.mask, &a.live}}};
}
Named named(const AttentionGrad& d) {
  const Attention& a = d.of;
  return {"attention_grad",
          {{&d.dq, &d.dk, &d.dv},
           {&d.g, &a.q, &a.k, &a.v, &a.mask, &a.live, &a.y, &a.largest, &a.total}}};
}
Named named(const DropoutTask& d) { return {"dropout", {{&d.y}, {&d.x, &d.live}}}; }
Named named(const Push& p) { return {"push", {{&p.ring, &p.count}, {&p.value}}}; }

Named named(const Call& call) {
  return std::visit([](const auto* task) { return named(*task); }, call);
}

}  // namespace

Backend& ForwardingBackend::seen(const Call& call) {
  const auto [name, touched] = named(call);
  return seen(name, touched);
}

BufferPtr ForwardingBackend::allocate(size_t bytes, bool pinned) {
  return to_.allocate(bytes, pinned);
}
void ForwardingBackend::copy(const Array& to, const Array& from) {
  seen(to.dtype() == from.dtype() ? "copy" : "cast", {{&to}, {&from}}).copy(to, from);
}
void ForwardingBackend::copy_across(const Array& to, const Array& from, bool non_blocking) {
  seen("copy_across", {{&to}, {&from}}).copy_across(to, from, non_blocking);
}
void ForwardingBackend::read(void* host, const Array& from) {
  seen("read", {{}, {&from}}).read(host, from);
}
void ForwardingBackend::fill(const Array& to, Scalar value) {
  seen("fill", {{&to}}).fill(to, value);
}
void ForwardingBackend::random(const Array& y, Distribution kind, double a, double b,
                               RandomKey key) {
  seen("random", {{&y}}).random(y, kind, a, b, key);
}
void ForwardingBackend::unary(OpId op, const Array& y, const Array& x, const Params<Scalar>& p) {
  seen(name_in<UnaryOps>(op), {{&y}, {&x}}).unary(op, y, x, p);
}
void ForwardingBackend::unary_grad(OpId op, const Array& dx, const Array& g, const Array& saved,
                                   Params<double> p) {
  seen(name_in<UnaryOps>(op) + "_grad", {{&dx}, {&g, &saved}}).unary_grad(op, dx, g, saved, p);
}
void ForwardingBackend::binary(OpId op, const Array& y, const Array& a, const Array& b) {
  seen(name_in<BinaryOps>(op), {{&y}, {&a, &b}}).binary(op, y, a, b);
}
void ForwardingBackend::where(const Array& y, const Array& condition, const Array& a,
                              const Array& b) {
  seen("where", {{&y}, {&condition, &a, &b}}).where(y, condition, a, b);
}
void ForwardingBackend::reduce(OpId op, const Array& y, const Array& x, const Dims& dims) {
  seen("reduce", {{&y}, {&x}}).reduce(op, y, x, dims);
}
void ForwardingBackend::arg_extremum(const Array& y, const Array& x, int dim, bool least) {
  seen(least ? "argmin" : "argmax", {{&y}, {&x}}).arg_extremum(y, x, dim, least);
}
void ForwardingBackend::scan(OpId op, const Array& y, const Array& x, int dim, bool reverse) {
  seen("scan", {{&y}, {&x}}).scan(op, y, x, dim, reverse);
}
void ForwardingBackend::argsort(const Array& y, const Array& x, int dim, bool descending) {
  seen("argsort", {{&y}, {&x}}).argsort(y, x, dim, descending);
}
void ForwardingBackend::gemm(const Gemm& g) {
  Touched touched{{&g.d, &g.bias_grad}, {&g.a, &g.b}};
  if (g.bias) touched.reads.push_back(g.bias);
  const bool reads_aux = g.epilogue == Epilogue::DRelu || g.epilogue == Epilogue::DGelu;
  (reads_aux ? touched.reads : touched.writes).push_back(&g.aux);
  seen("gemm", touched).gemm(g);
}
void ForwardingBackend::softmax(const Array& y, const Array& x, bool log) {
  seen("softmax", {{&y}, {&x}}).softmax(y, x, log);
}
void ForwardingBackend::softmax_grad(const Array& dx, const Array& g, const Array& y, bool log) {
  seen("softmax_grad", {{&dx}, {&g, &y}}).softmax_grad(dx, g, y, log);
}
void ForwardingBackend::cross_entropy(const CrossEntropy& c) { seen({&c}).cross_entropy(c); }
void ForwardingBackend::row_norm(const Array& y, const Norm& norm) {
  seen("row_norm", {{&y, &norm.mean, &norm.rstd}, {&norm.x, &norm.weight, &norm.bias}})
      .row_norm(y, norm);
}
void ForwardingBackend::row_norm_grad(const NormGrads& d, const Array& g, const Norm& norm) {
  seen("row_norm_grad", of_gradients(d, g, norm)).row_norm_grad(d, g, norm);
}
void ForwardingBackend::batch_norm(const Array& y, const Norm& norm, bool training,
                                   const RunningStats& running) {
  Touched touched{{&y, &running.mean, &running.var, &running.batches},
                  {&norm.x, &norm.weight, &norm.bias}};
  add(training ? touched.writes : touched.reads, {&norm.mean, &norm.rstd});
  seen("batch_norm", touched).batch_norm(y, norm, training, running);
}
void ForwardingBackend::batch_norm_grad(const NormGrads& d, const Array& g, const Norm& norm,
                                        bool training) {
  seen("batch_norm_grad", of_gradients(d, g, norm)).batch_norm_grad(d, g, norm, training);
}
void ForwardingBackend::unfold(const Array& y, const Array& x, const Windows& windows) {
  seen("unfold", {{&y}, {&x}}).unfold(y, x, windows);
}
void ForwardingBackend::fold(const Array& y, const Array& g, const Windows& windows) {
  seen("fold", {{&y}, {&g}}).fold(y, g, windows);
}
void ForwardingBackend::argmax_windows(const Array& y, const Array& x, const Windows& windows) {
  seen("argmax_windows", {{&y}, {&x}}).argmax_windows(y, x, windows);
}
void ForwardingBackend::gather(const Array& y, const Array& x, int dim, const Array& index,
                               IndexUse use) {
  seen("gather", {{&y}, {&x, &index}}).gather(y, x, dim, index, use);
}
void ForwardingBackend::scatter(const Array& y, const Array& x, int dim, const Array& index,
                                IndexUse use) {
  seen("scatter", {{&y}, {&x, &index}}).scatter(y, x, dim, index, use);
}
void ForwardingBackend::scatter_reduce(OpId op, const Array& y, const Array& g, int dim,
                                       const Array& index, IndexUse use) {
  seen("scatter_reduce", {{&y}, {&g, &index}}).scatter_reduce(op, y, g, dim, index, use);
}
void ForwardingBackend::flat_index(const Array& y, std::span<const Array> indices,
                                   const Shape& sizes, IndexUse use) {
  seen("flat_index", {{&y}, all_of(indices)}).flat_index(y, indices, sizes, use);
}
void ForwardingBackend::nonzero(const Array& y, const Array& x) {
  seen("nonzero", {{&y}, {&x}}).nonzero(y, x);
}
void ForwardingBackend::check(const GradientCheck& c) { seen({&c}).check(c); }
void ForwardingBackend::list_norm(const ListNorm& n) { seen({&n}).list_norm(n); }
void ForwardingBackend::update(std::span<const UpdateSlot> slots, const UpdateRule& rule,
                               const StepControl& control) {
  const ListUpdate task{slots, rule, control};
  seen({&task}).update(slots, rule, control);
}
void ForwardingBackend::transition(const Transition& t) { seen({&t}).transition(t); }
void ForwardingBackend::count_numbers(CountBy by, const Array& counts, const Array& x) {
  seen(by == CountBy::Exponent ? "count_exponents" : "count_classes", {{&counts}, {&x}})
      .count_numbers(by, counts, x);
}
void ForwardingBackend::synchronize() { seen("synchronize", {}).synchronize(); }

void ForwardingBackend::see(std::span<const Call> calls) {
  std::string names;
  Touched all;
  for (const Call& call : calls) {
    const auto [name, more] = named(call);
    names += (names.empty() ? "" : ", ") + name;
    // An array that an earlier one of the calls has is not listed twice.
    const Touched earlier = all;
    for (const Array* a : more.writes)
      if (!a->defined() || !lists(earlier.writes, *a)) all.writes.push_back(a);
    for (const Array* a : more.reads)
      if (!a->defined() || !(lists(earlier.writes, *a) || lists(earlier.reads, *a)))
        all.reads.push_back(a);
  }
  before(names, all);
}

/// Always true: what the other backend cannot do at once it does one by one.
bool ForwardingBackend::try_fused(std::span<const Call> calls) {
  see(calls);
  to_.run_calls(calls);
  return true;
}

}  // namespace halftape
