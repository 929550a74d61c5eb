#include "halftape/optim/algorithms/lbfgs.h"

#include <algorithm>
#include <cmath>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/policy.h"
#include "halftape/optim/state/param_storage.h"

namespace halftape::optim {

void LBFGSOptions::fields(StateFields& f) {
  f.owner = "LBFGS";
  f.add("lr", lr_, kNonNegative);
  f.add("max_iter", max_iter_, kAtLeastOne);
  f.put({.name = "max_eval",
         .value = static_cast<double>(max_eval_.value_or(0)),
         .set = [this](double n) { max_eval_ = n == 0 ? std::nullopt : std::optional(int64_t(n)); },
         .whole = true});
  f.add("tolerance_grad", tolerance_grad_);
  f.add("tolerance_change", tolerance_change_);
  f.add("history_size", history_size_, kAtLeastOne);
  f.put({.name = "strong_wolfe", .value = line_search_fn_ ? 1.0 : 0.0, .set = [this](double n) {
           line_search_fn_ = n == 0 ? std::nullopt : std::optional<std::string>("strong_wolfe");
         }});
}

void LBFGSOptions::validate() const {
  OptimizerOptions::validate();
  HALFTAPE_CHECK(max_eval().value_or(1) >= 1,
                 "LBFGS: Invalid max_eval value: ", max_eval().value_or(0), " is not in [1, inf)");
  HALFTAPE_CHECK(!line_search_fn() || *line_search_fn() == "strong_wolfe",
                 "LBFGS: line_search_fn \"", line_search_fn().value_or(""),
                 "\" is not known; only \"strong_wolfe\" is");
}

LBFGS::LBFGS(const std::vector<OptimizerParamGroup>& groups, const LBFGSOptions& defaults)
    : Optimizer(groups, defaults.clone()) {
  HALFTAPE_CHECK(groups.size() == 1, "LBFGS: expected one parameter group, got ", groups.size());
}

namespace {

/// What one iteration leaves to the next. Between steps it lies in the state of the first
/// parameter, so that it is saved.
struct Memory {
  int64_t func_evals = 0, n_iter = 0;
  double t = 0, prev_loss = 0;
  Tensor d, H_diag, prev_flat_grad;
  std::vector<Tensor> old_dirs, old_stps, ro;  // differences of gradients and of positions; 1/(y·s)

  explicit Memory(const ParamState& saved) {
    if (!saved.count("n_iter")) return;
    func_evals = read_int64(saved.at("func_evals"));
    n_iter = read_int64(saved.at("n_iter"));
    if (n_iter == 0) return;
    t = read_double(saved.at("t"));
    prev_loss = read_double(saved.at("prev_loss"));
    for (const auto& [key, tensor] : tensors()) *tensor = Tensor(saved.at(key));
    for (const auto& [key, list] : lists())
      for (size_t i = 0; saved.count(key + std::to_string(i)); ++i)
        list->emplace_back(saved.at(key + std::to_string(i)));
  }

  void write(ParamState& saved) {
    saved.clear();
    saved["func_evals"] = full({}, func_evals, kInt64).array();
    saved["n_iter"] = full({}, n_iter, kInt64).array();
    if (n_iter == 0) return;
    saved["t"] = full({}, t, kFloat64).array();
    saved["prev_loss"] = full({}, prev_loss, kFloat64).array();
    for (const auto& [key, tensor] : tensors()) saved[key] = tensor->array();
    for (const auto& [key, list] : lists())
      for (size_t i = 0; i < list->size(); ++i) saved[key + std::to_string(i)] = (*list)[i].array();
  }

  std::map<std::string, Tensor*> tensors() {
    return {{"d", &d}, {"H_diag", &H_diag}, {"prev_flat_grad", &prev_flat_grad}};
  }
  std::map<std::string, std::vector<Tensor>*> lists() {
    return {{"old_dirs.", &old_dirs}, {"old_stps.", &old_stps}, {"ro.", &ro}};
  }

  /// Adds one pair, and drops the oldest beyond history_size.
  void remember(const Tensor& y, const Tensor& s, const Tensor& ys, int64_t history_size) {
    if (old_dirs.size() == static_cast<size_t>(history_size))
      for (auto* list : {&old_dirs, &old_stps, &ro}) list->erase(list->begin());
    old_dirs.push_back(y);
    old_stps.push_back(s);
    ro.push_back(1 / ys);
    H_diag = ys / y.dot(y);
  }

  /// Chooses the direction and the first step length of the next iteration.
  void begin(const Tensor& gradient, double loss, const LBFGSOptions& o) {
    if (++n_iter == 1) {
      d = -gradient;
      H_diag = ones({}, gradient.dtype()).to(gradient.device());
    } else {
      const Tensor y = gradient - prev_flat_grad;
      const Tensor s = d * t;
      const Tensor ys = y.dot(s);
      if (ys.item<double>() > 1e-10) remember(y, s, ys, o.history_size());
      d = direction(gradient);
    }
    prev_flat_grad = gradient;
    prev_loss = loss;
    t = o.lr();
    if (n_iter == 1) t *= std::min(1.0, 1 / gradient.abs().sum().item<double>());
  }

  /// −H·gradient, H the inverse Hessian that the pairs suggest. Nocedal & Wright, algorithm 7.4.
  Tensor direction(const Tensor& gradient) const {
    std::vector<Tensor> al(ro.size());
    Tensor q = -gradient;
    for (size_t i = ro.size(); i-- > 0;) {
      al[i] = old_stps[i].dot(q) * ro[i];
      q -= old_dirs[i] * al[i];
    }
    q *= H_diag;
    for (size_t i = 0; i < ro.size(); ++i) q += old_stps[i] * (al[i] - old_dirs[i].dot(q) * ro[i]);
    return q;
  }
};

double largest(const Tensor& x) { return x.abs().max().item<double>(); }

}  // namespace

Tensor LBFGS::step(LossClosure closure) {
  HALFTAPE_CHECK(closure, "LBFGS: step() needs a closure that computes the loss and its gradients");
  const auto& o = static_cast<const LBFGSOptions&>(param_groups()[0].options());
  o.validate();
  HALFTAPE_CHECK(!params().empty(), "LBFGS: no parameters were given; are the modules registered?");
  DtypePolicy* const policy = dtype_policy();  // the closure runs under the caller's autocast
  const NoGradGuard no_grad;
  const PolicyScope no_casts(nullptr);
  const auto call = [&] {
    const AutoGradMode recording(true);
    const PolicyScope casts(policy);
    return closure();
  };
  const std::vector<Tensor> before = positions();
  try {
    return run(o, call);
  } catch (...) {
    set_positions(before);
    throw;
  }
}

Tensor LBFGS::run(const LBFGSOptions& o, const LossClosure& call) {
  const int64_t max_eval = o.max_eval().value_or(o.max_iter() * 5 / 4);
  const Tensor first_loss = call();
  double loss = first_loss.item<double>();
  Tensor gradient = gathered_gradient();
  Memory memory(state_of(params()[0]));
  HALFTAPE_CHECK(!memory.d.defined() || memory.d.numel() == gradient.numel(),
                 "LBFGS: ", gradient.numel(),
                 " elements of parameters, and the steps so far were of ", memory.d.numel(),
                 "; make a new optimizer");
  ++memory.func_evals;
  int64_t evaluations = 1;
  if (largest(gradient) <= o.tolerance_grad()) {
    memory.write(state(params()[0]));
    return first_loss;
  }

  for (int64_t iteration = 1;; ++iteration) {
    memory.begin(gradient, loss, o);
    const double slope = gradient.dot(memory.d).item<double>();
    if (slope > -o.tolerance_change()) break;
    int64_t now = 0;
    if (o.line_search_fn()) {
      LineSearch search = searched(memory.d, {0, loss, slope, gradient}, memory.t,
                                   max_eval - evaluations, o.tolerance_change(), call);
      now = search.evaluations;
      memory.t = search.found.t;
      loss = search.found.loss;
      gradient = search.found.gradient;
      move(memory.t, memory.d);
    } else {
      move(memory.t, memory.d);
      // After the last iteration the next step evaluates anyway.
      if (iteration < o.max_iter()) {
        loss = call().item<double>();
        gradient = gathered_gradient();
        now = 1;
      }
    }
    evaluations += now;
    memory.func_evals += now;
    if (iteration >= o.max_iter() || evaluations >= max_eval) break;
    if (largest(gradient) <= o.tolerance_grad()) break;
    if (largest(memory.d * memory.t) <= o.tolerance_change()) break;
    if (std::abs(loss - memory.prev_loss) < o.tolerance_change()) break;
  }
  memory.write(state(params()[0]));
  return first_loss;
}

LineSearch LBFGS::searched(const Tensor& d, const LinePoint& start, double t,
                           int64_t max_evaluations, double tolerance_change,
                           const LossClosure& call) const {
  const std::vector<Tensor> origin = positions();
  const auto evaluate = [&](double length) {
    move(length, d);
    const double value = call().item<double>();
    const Tensor g = gathered_gradient();
    set_positions(origin);
    return LinePoint{length, value, g.dot(d).item<double>(), g};
  };
  return strong_wolfe(evaluate, start, t, largest(d), tolerance_change, max_evaluations);
}

Dtype LBFGS::dtype() const {
  const bool wide = std::any_of(params().begin(), params().end(),
                                [](const Tensor& p) { return p.dtype() == kFloat64; });
  return wide ? kFloat64 : kFloat32;
}

Tensor LBFGS::gathered_gradient() const {
  std::vector<Tensor> all;
  for (const Tensor& p : params()) {
    check_gradient(p);
    all.push_back(p.grad().defined() ? p.grad().detach().reshape({-1}).to(dtype())
                                     : zeros({p.numel()}, dtype()).to(p.device()));
  }
  return cat(all);
}

void LBFGS::move(double t, const Tensor& d) const {
  int64_t at = 0;
  for (const Tensor& p : params()) {
    const Tensor part = d.slice(0, at, at + p.numel()).view(p.sizes());
    p.copy_(p.detach().to(dtype()) + part * t);
    at += p.numel();
  }
}

std::vector<Tensor> LBFGS::positions() const {
  std::vector<Tensor> all;
  for (const Tensor& p : params()) all.push_back(p.detach().clone());
  return all;
}

void LBFGS::set_positions(const std::vector<Tensor>& positions) const {
  for (size_t i = 0; i < positions.size(); ++i) params()[i].copy_(positions[i]);
}

StateEntry LBFGS::expected_state(const std::string& key, const Tensor&,
                                 const std::map<std::string, double>&) const {
  if (key == "func_evals" || key == "n_iter") return {{}, kInt64};
  if (key == "t" || key == "prev_loss") return {{}, kFloat64};
  if (key == "H_diag" || key.starts_with("ro.")) return {{}, dtype()};
  int64_t total = 0;
  for (const Tensor& p : params()) total += p.numel();
  return {{total}, dtype()};
}

}  // namespace halftape::optim
