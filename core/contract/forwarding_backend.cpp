#include "halftape/core/contract/forwarding_backend.h"

#include <algorithm>

#include "halftape/core/formula/binary.h"
#include "halftape/core/formula/unary.h"

namespace halftape {
namespace {

using Arrays = std::vector<const Array*>;

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
bool lists(const Arrays& list, const Array& a) {
  return std::any_of(list.begin(), list.end(), [&](const Array* other) {
    return other->defined() && other->raw() == a.raw() && other->numel() == a.numel();
  });
}

/// The names and the arrays of tasks.
struct Name {
  std::string operator()(const CrossEntropy*) const { return "cross_entropy"; }
  std::string operator()(const CrossEntropyGrad*) const { return "cross_entropy_grad"; }
  std::string operator()(const MlpLoss*) const { return "mlp_loss"; }
  std::string operator()(const LossScaling*) const { return "scale_loss"; }
  std::string operator()(const GradientCheck* c) const {
    return c->divides ? "unscale" : "check_finite";
  }
  std::string operator()(const ListNorm*) const { return "list_norm"; }
  std::string operator()(const ListUpdate* u) const {
    return std::visit([](const auto& rule) { return std::string(rule.name); }, u->rule);
  }
  std::string operator()(const Transition*) const { return "transition"; }
  std::string operator()(const Push*) const { return "push"; }
};

struct Touch {
  Arrays &writes, &reads;

  void operator()(const CrossEntropy* c) const {
    add(writes, {&c->loss, &c->counted, &c->grad, &c->total, &c->mean});
    add(reads, {&c->x, &c->target, &c->weight});
  }
  void operator()(const CrossEntropyGrad* c) const {
    add(writes, {&c->dx});
    add(reads, {&c->slopes, &c->g, &c->total});
  }
  void operator()(const MlpLoss* m) const {
    add(writes, {&m->loss, &m->dx});
    add(reads, {&m->x, &m->target, &m->g});
    for (const auto* written : {&m->dweights, &m->dbiases})
      for (const Array& a : *written) writes.push_back(&a);
    for (const auto* read : {&m->weights, &m->biases})
      for (const Array& a : *read) reads.push_back(&a);
  }
  void operator()(const LossScaling* s) const {
    add(writes, {&s->scaled, &s->bad_loss, &s->factor, &s->inverse, &s->found_inf, &s->first});
    add(reads, {&s->loss, &s->scale});
  }
  void operator()(const GradientCheck* c) const {
    add(writes, {&c->found_inf, &c->first});
    reads.push_back(&c->inv_scale);
    for (const Array& g : c->grads) (c->divides ? writes : reads).push_back(&g);
  }
  void operator()(const ListNorm* n) const {
    add(writes, {&n->norm, &n->factor});
    for (const Array& x : n->xs) reads.push_back(&x);
    reads.push_back(&n->unit);
  }
  void operator()(const ListUpdate* u) const {
    const StepControl& control = u->control;
    add(reads, {&control.found_inf, &control.inv_scale, &control.live_rule, &control.clip});
    for (const UpdateSlot& s : u->slots) {
      add(writes, {&s.param, &s.step, &s.keeping.extra, &s.low});
      for (const Array& m : s.moments) writes.push_back(&m);
      (control.clip.defined() ? writes : reads).push_back(&s.grad);
    }
  }
  void operator()(const Transition* t) const {
    add(writes, {&t->scale, &t->trackers, &t->counts});
    reads.push_back(&t->bad_loss);
    for (const CheckResult& r : t->results) add(reads, {&r.found_inf, &r.first});
  }
  void operator()(const Push* p) const {
    add(writes, {&p->ring, &p->count});
    reads.push_back(&p->value);
  }
};

}  // namespace

std::string ForwardingBackend::unary_name(OpId op) { return name_in<UnaryOps>(op); }
std::string ForwardingBackend::binary_name(OpId op) { return name_in<BinaryOps>(op); }
std::string ForwardingBackend::name_of(const Call& call) { return std::visit(Name{}, call); }

Arrays ForwardingBackend::pointers(std::span<const Array> arrays) {
  Arrays all;
  for (const Array& a : arrays) all.push_back(&a);
  return all;
}

ForwardingBackend::Touched ForwardingBackend::touched_by(const Call& call) {
  Touched touched;
  std::visit(Touch{touched.writes, touched.reads}, call);
  return touched;
}
ForwardingBackend::Touched ForwardingBackend::touched_by(const Gemm& g) {
  Touched touched{{&g.d, &g.bias_grad}, {&g.a, &g.b}};
  if (g.bias) touched.reads.push_back(g.bias);
  const bool reads_aux = g.epilogue == Epilogue::DRelu || g.epilogue == Epilogue::DGelu;
  (reads_aux ? touched.reads : touched.writes).push_back(&g.aux);
  return touched;
}
ForwardingBackend::Touched ForwardingBackend::touched_by(const NormGrads& d, const Array& g,
                                                         const Norm& norm) {
  return {{&d.dx, &d.dweight, &d.dbias},
          {&g, &norm.x, &norm.weight, &norm.bias, &norm.mean, &norm.rstd}};
}
ForwardingBackend::Touched ForwardingBackend::touched_by(const Array& y, const Norm& norm,
                                                         bool training,
                                                         const RunningStats& running) {
  Touched touched{{&y, &running.mean, &running.var, &running.batches},
                  {&norm.x, &norm.weight, &norm.bias}};
  add(training ? touched.writes : touched.reads, {&norm.mean, &norm.rstd});
  return touched;
}

bool ForwardingBackend::try_fused(std::span<const Call> calls) {
  std::string names;
  Touched all;
  for (const Call& call : calls) {
    names += (names.empty() ? "" : ", ") + name_of(call);
    // An array that an earlier one of the calls has is not listed twice.
    const Touched more = touched_by(call);
    const Touched earlier = all;
    for (const Array* a : more.writes)
      if (!a->defined() || !lists(earlier.writes, *a)) all.writes.push_back(a);
    for (const Array* a : more.reads)
      if (!a->defined() || !(lists(earlier.writes, *a) || lists(earlier.reads, *a)))
        all.reads.push_back(a);
  }
  seen(names, all).run_calls(calls);
  return true;
}

}  // namespace halftape
