#include "halftape/core/contract/forwarding_backend.h"

#include "halftape/core/formula/binary.h"
#include "halftape/core/formula/unary.h"

namespace halftape {
namespace {

template <class List>
std::string name_of(OpId op) {
  std::string found;
  OpId at = 0;
  List::each([&](auto tag) {
    if (at++ == op) found = decltype(tag)::type::name;
  });
  return found;
}

std::string name_of(const UpdateRule& rule) {
  return std::visit([](const auto& r) { return std::string(r.name); }, rule);
}

std::vector<const Array*> pointers(std::span<const Array> arrays) {
  std::vector<const Array*> all;
  for (const Array& a : arrays) all.push_back(&a);
  return all;
}
void add(std::vector<const Array*>& to, std::initializer_list<const Array*> more) {
  to.insert(to.end(), more);
}

}  // namespace

ForwardingBackend::Touched ForwardingBackend::touched_by(const CrossEntropy& c) {
  return {{&c.loss, &c.counted, &c.grad, &c.total, &c.mean}, {&c.x, &c.target, &c.weight}};
}
ForwardingBackend::Touched ForwardingBackend::touched_by(const MlpLoss& m) {
  Touched touched{{&m.loss, &m.dx}, {&m.x, &m.target, &m.g}};
  for (const auto* written : {&m.dweights, &m.dbiases})
    for (const Array& a : *written) touched.writes.push_back(&a);
  for (const auto* read : {&m.weights, &m.biases})
    for (const Array& a : *read) touched.reads.push_back(&a);
  return touched;
}
ForwardingBackend::Touched ForwardingBackend::touched_by(std::span<const Array> xs, bool divides,
                                                         const Array& inv_scale,
                                                         const Array& found_inf,
                                                         const Array& first) {
  Touched touched{{&found_inf, &first}, {&inv_scale}};
  for (const Array& x : xs) (divides ? touched.writes : touched.reads).push_back(&x);
  return touched;
}
ForwardingBackend::Touched ForwardingBackend::touched_by(std::span<const UpdateSlot> slots,
                                                         const StepControl& control) {
  Touched touched{{}, {&control.found_inf, &control.inv_scale, &control.live_rule, &control.clip}};
  for (const UpdateSlot& s : slots) {
    add(touched.writes, {&s.param, &s.step, &s.keeping.extra, &s.low});
    for (const Array& m : s.moments) touched.writes.push_back(&m);
    (control.clip.defined() ? touched.writes : touched.reads).push_back(&s.grad);
  }
  return touched;
}
void ForwardingBackend::Touched::join(const ListNorm& n) {
  add(writes, {&n.norm, &n.factor});
  for (const Array& x : n.xs) reads.push_back(&x);
  reads.push_back(&n.unit);
}
void ForwardingBackend::Touched::join(const LossScaling& s) {
  add(writes, {&s.scaled, &s.bad_loss, &s.factor, &s.inverse, &s.found_inf, &s.first});
  add(reads, {&s.loss, &s.scale});
}
void ForwardingBackend::Touched::join(const ScalerUpdate& update) {
  add(writes, {&update.scale, &update.trackers, &update.counts});
  reads.push_back(&update.bad_loss);
  for (const ScalerFinding& f : update.findings) add(reads, {&f.found_inf, &f.first});
}

void ForwardingBackend::copy(const Array& to, const Array& from) {
  before(to.dtype() == from.dtype() ? "copy" : "cast", {{&to}, {&from}});
  to_.copy(to, from);
}
void ForwardingBackend::copy_across(const Array& to, const Array& from, bool non_blocking) {
  before("copy_across", {{&to}, {&from}});
  to_.copy_across(to, from, non_blocking);
}
void ForwardingBackend::read(void* host, const Array& from) {
  before("read", {{}, {&from}});
  to_.read(host, from);
}
void ForwardingBackend::fill(const Array& to, Scalar value) {
  before("fill", {{&to}});
  to_.fill(to, value);
}
void ForwardingBackend::unary(OpId op, const Array& y, const Array& x, const Params<Scalar>& p) {
  before(name_of<UnaryOps>(op), {{&y}, {&x}});
  to_.unary(op, y, x, p);
}
void ForwardingBackend::unary_grad(OpId op, const Array& dx, const Array& g, const Array& saved,
                                   Params<double> p) {
  before(name_of<UnaryOps>(op) + "_grad", {{&dx}, {&g, &saved}});
  to_.unary_grad(op, dx, g, saved, p);
}
void ForwardingBackend::binary(OpId op, const Array& y, const Array& a, const Array& b) {
  before(name_of<BinaryOps>(op), {{&y}, {&a, &b}});
  to_.binary(op, y, a, b);
}
void ForwardingBackend::where(const Array& y, const Array& condition, const Array& a,
                              const Array& b) {
  before("where", {{&y}, {&condition, &a, &b}});
  to_.where(y, condition, a, b);
}
void ForwardingBackend::reduce(OpId op, const Array& y, const Array& x, const Dims& dims) {
  before("reduce", {{&y}, {&x}});
  to_.reduce(op, y, x, dims);
}
void ForwardingBackend::argmax(const Array& y, const Array& x, int dim) {
  before("argmax", {{&y}, {&x}});
  to_.argmax(y, x, dim);
}
void ForwardingBackend::argmin(const Array& y, const Array& x, int dim) {
  before("argmin", {{&y}, {&x}});
  to_.argmin(y, x, dim);
}
void ForwardingBackend::scan(OpId op, const Array& y, const Array& x, int dim, bool reverse) {
  before("scan", {{&y}, {&x}});
  to_.scan(op, y, x, dim, reverse);
}
void ForwardingBackend::argsort(const Array& y, const Array& x, int dim, bool descending) {
  before("argsort", {{&y}, {&x}});
  to_.argsort(y, x, dim, descending);
}
void ForwardingBackend::gemm(const Gemm& g) {
  Touched touched{{&g.d, &g.bias_grad}, {&g.a, &g.b}};
  if (g.bias) touched.reads.push_back(g.bias);
  const bool reads_aux = g.epilogue == Epilogue::DRelu || g.epilogue == Epilogue::DGelu;
  (reads_aux ? touched.reads : touched.writes).push_back(&g.aux);
  before("gemm", touched);
  to_.gemm(g);
}
void ForwardingBackend::softmax(const Array& y, const Array& x, bool log) {
  before("softmax", {{&y}, {&x}});
  to_.softmax(y, x, log);
}
void ForwardingBackend::softmax_grad(const Array& dx, const Array& g, const Array& y, bool log) {
  before("softmax_grad", {{&dx}, {&g, &y}});
  to_.softmax_grad(dx, g, y, log);
}
void ForwardingBackend::cross_entropy(const CrossEntropy& c) {
  before("cross_entropy", touched_by(c));
  to_.cross_entropy(c);
}
void ForwardingBackend::cross_entropy_grad(const Array& dx, const Array& slopes, const Array& g,
                                           const Array& total) {
  before("cross_entropy_grad", {{&dx}, {&slopes, &g, &total}});
  to_.cross_entropy_grad(dx, slopes, g, total);
}
void ForwardingBackend::mlp_loss(const MlpLoss& m) {
  before("mlp_loss", touched_by(m));
  to_.mlp_loss(m);
}
void ForwardingBackend::row_norm(const Array& y, const Norm& norm) {
  before("row_norm", {{&y, &norm.mean, &norm.rstd}, {&norm.x, &norm.weight, &norm.bias}});
  to_.row_norm(y, norm);
}
void ForwardingBackend::row_norm_grad(const NormGrads& d, const Array& g, const Norm& norm) {
  before("row_norm_grad", {{&d.dx, &d.dweight, &d.dbias},
                           {&g, &norm.x, &norm.weight, &norm.bias, &norm.mean, &norm.rstd}});
  to_.row_norm_grad(d, g, norm);
}
void ForwardingBackend::batch_norm(const Array& y, const Norm& norm, bool training,
                                   const RunningStats& running) {
  Touched touched{{&y, &running.mean, &running.var, &running.batches},
                  {&norm.x, &norm.weight, &norm.bias}};
  add(training ? touched.writes : touched.reads, {&norm.mean, &norm.rstd});
  before("batch_norm", touched);
  to_.batch_norm(y, norm, training, running);
}
void ForwardingBackend::batch_norm_grad(const NormGrads& d, const Array& g, const Norm& norm,
                                        bool training) {
  before("batch_norm_grad", {{&d.dx, &d.dweight, &d.dbias},
                             {&g, &norm.x, &norm.weight, &norm.bias, &norm.mean, &norm.rstd}});
  to_.batch_norm_grad(d, g, norm, training);
}
void ForwardingBackend::fold(const Array& y, const Array& g, const Windows& windows) {
  before("fold", {{&y}, {&g}});
  to_.fold(y, g, windows);
}
void ForwardingBackend::argmax_windows(const Array& y, const Array& x, const Windows& windows) {
  before("argmax_windows", {{&y}, {&x}});
  to_.argmax_windows(y, x, windows);
}
void ForwardingBackend::gather(const Array& y, const Array& x, int dim, const Array& index,
                               IndexUse use) {
  before("gather", {{&y}, {&x, &index}});
  to_.gather(y, x, dim, index, use);
}
void ForwardingBackend::scatter(const Array& y, const Array& x, int dim, const Array& index,
                                IndexUse use) {
  before("scatter", {{&y}, {&x, &index}});
  to_.scatter(y, x, dim, index, use);
}
void ForwardingBackend::scatter_reduce(OpId op, const Array& y, const Array& g, int dim,
                                       const Array& index, IndexUse use) {
  before("scatter_reduce", {{&y}, {&g, &index}});
  to_.scatter_reduce(op, y, g, dim, index, use);
}
void ForwardingBackend::flat_index(const Array& y, std::span<const Array> indices,
                                   const Shape& sizes, IndexUse use) {
  before("flat_index", {{&y}, pointers(indices)});
  to_.flat_index(y, indices, sizes, use);
}
void ForwardingBackend::nonzero(const Array& y, const Array& x) {
  before("nonzero", {{&y}, {&x}});
  to_.nonzero(y, x);
}
void ForwardingBackend::random(const Array& y, Distribution kind, double a, double b,
                               RandomKey key) {
  before("random", {{&y}});
  to_.random(y, kind, a, b, key);
}
void ForwardingBackend::check_finite(std::span<const Array> xs, const Array& found_inf,
                                     const Array& inv_scale, const Array& first) {
  before("check_finite", touched_by(xs, false, inv_scale, found_inf, first));
  to_.check_finite(xs, found_inf, inv_scale, first);
}
void ForwardingBackend::unscale(std::span<const Array> grads, const Array& inv_scale,
                                const Array& found_inf, const Array& first) {
  before("unscale", touched_by(grads, true, inv_scale, found_inf, first));
  to_.unscale(grads, inv_scale, found_inf, first);
}
void ForwardingBackend::list_norm(const ListNorm& n) {
  Touched touched;
  touched.join(n);
  before("list_norm", touched);
  to_.list_norm(n);
}
void ForwardingBackend::update(std::span<const UpdateSlot> slots, const UpdateRule& rule,
                               const StepControl& control) {
  before(name_of(rule), touched_by(slots, control));
  to_.update(slots, rule, control);
}
void ForwardingBackend::scale_loss(const LossScaling& s) {
  Touched touched;
  touched.join(s);
  before("scale_loss", touched);
  to_.scale_loss(s);
}
void ForwardingBackend::scaler_update(const ScalerUpdate& update, const ScalerLaw& law) {
  Touched touched;
  touched.join(update);
  before("scaler_update", touched);
  to_.scaler_update(update, law);
}
void ForwardingBackend::push(const Array& ring, const Array& count, const Array& value) {
  before("push", {{&ring, &count}, {&value}});
  to_.push(ring, count, value);
}
void ForwardingBackend::cross_entropy_and_scale(const CrossEntropy& c, const LossScaling& scaling) {
  Touched touched = touched_by(c);
  touched.join(scaling);
  before("cross_entropy, scale_loss", touched);
  to_.cross_entropy_and_scale(c, scaling);
}
void ForwardingBackend::mlp_loss_and_scale(const MlpLoss& m, const LossScaling& scaling,
                                           const std::optional<GradientCheck>& check) {
  Touched touched = touched_by(m);
  touched.join(scaling);
  if (check) {  // its gradients are the MLP's
    add(touched.writes, {&check->found_inf, &check->first});
    touched.reads.push_back(&check->inv_scale);
  }
  before("mlp_loss, scale_loss", touched);
  to_.mlp_loss_and_scale(m, scaling, check);
}
void ForwardingBackend::check_and_norm(const GradientCheck& c, const ListNorm& n) {
  Touched touched = touched_by(c.grads, c.divides, c.inv_scale, c.found_inf, c.first);
  touched.join(n);
  before(std::string(c.divides ? "unscale" : "check_finite") + ", list_norm", touched);
  to_.check_and_norm(c, n);
}
void ForwardingBackend::update_and_move_scale(std::span<const UpdateSlot> slots,
                                              const UpdateRule& rule, const StepControl& control,
                                              const ScalerUpdate& moved, const ScalerLaw& law) {
  Touched touched = touched_by(slots, control);
  touched.join(moved);
  before(name_of(rule) + ", scaler_update", touched);
  to_.update_and_move_scale(slots, rule, control, moved, law);
}
void ForwardingBackend::synchronize() {
  before("synchronize", {{}});
  to_.synchronize();
}

}  // namespace halftape
