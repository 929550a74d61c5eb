#include "halftape/optim/algorithms/lbfgs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/policy.h"
#include "halftape/optim/algorithms/line_search.h"
#include "halftape/optim/state/options_map.h"
#include "halftape/optim/state/param_storage.h"

namespace halftape::optim {

void LBFGSOptions::validate() const {
  constexpr double inf = std::numeric_limits<double>::infinity();
  check_option("LBFGS", "lr", lr(), 0, inf);
  check_option("LBFGS", "max_iter", static_cast<double>(max_iter()), 1, inf);
  check_option("LBFGS", "max_eval", static_cast<double>(max_eval().value_or(1)), 1, inf);
  check_option("LBFGS", "history_size", static_cast<double>(history_size()), 1, inf);
  HALFTAPE_CHECK(!line_search_fn() || *line_search_fn() == "strong_wolfe",
                 "LBFGS: line_search_fn \"", line_search_fn().value_or(""),
                 "\" is not known; only \"strong_wolfe\" is");
}

std::map<std::string, double> LBFGSOptions::to_map() const {
  return {{"lr", lr()},
          {"max_iter", static_cast<double>(max_iter())},
          {"max_eval", static_cast<double>(max_eval().value_or(0))},
          {"tolerance_grad", tolerance_grad()},
          {"tolerance_change", tolerance_change()},
          {"history_size", static_cast<double>(history_size())},
          {"strong_wolfe", line_search_fn().has_value()}};
}

void LBFGSOptions::from_map(const std::map<std::string, double>& saved) {
  const auto count = [&](const char* key) {
    return static_cast<int64_t>(saved_option(saved, key));
  };
  lr(saved_option(saved, "lr"));
  max_iter(count("max_iter")).history_size(count("history_size"));
  max_eval(count("max_eval") == 0 ? std::nullopt : std::optional(count("max_eval")));
  tolerance_grad(saved_option(saved, "tolerance_grad"));
  tolerance_change(saved_option(saved, "tolerance_change"));
  line_search_fn(count("strong_wolfe") == 0 ? std::nullopt
                                            : std::optional<std::string>("strong_wolfe"));
}

LBFGS::LBFGS(const std::vector<OptimizerParamGroup>& groups, const LBFGSOptions& defaults)
    : Optimizer(groups, defaults.clone()) {
  HALFTAPE_CHECK(groups.size() == 1, "LBFGS: expected one parameter group, got ", groups.size());
}

namespace {

/// What is known from one iteration to the next. Between steps it stands in the state of the first
/// parameter, so that it is saved.
struct Memory {
  int64_t func_evals = 0, n_iter = 0;
  double t = 0, prev_loss = 0;
  Tensor d, H_diag, prev_flat_grad;
  std::vector<Tensor> old_dirs, old_stps, ro;  // differences of gradients and of positions; 1/(y·s)

  explicit Memory(const ParamState& saved) {
    if (!saved.count("n_iter")) return;
    const auto tensor = [&](const std::string& key) { return Tensor(saved.at(key)); };
    func_evals = read_int64(saved.at("func_evals"));
    n_iter = read_int64(saved.at("n_iter"));
    if (n_iter == 0) return;
    t = read_double(saved.at("t"));
    prev_loss = read_double(saved.at("prev_loss"));
    d = tensor("d");
    H_diag = tensor("H_diag");
    prev_flat_grad = tensor("prev_flat_grad");
    for (size_t i = 0; saved.count("ro." + std::to_string(i)); ++i) {
      old_dirs.push_back(tensor("old_dirs." + std::to_string(i)));
      old_stps.push_back(tensor("old_stps." + std::to_string(i)));
      ro.push_back(tensor("ro." + std::to_string(i)));
    }
  }

  void write(ParamState& saved) const {
    saved.clear();
    saved["func_evals"] = full({}, func_evals, kInt64).array();
    saved["n_iter"] = full({}, n_iter, kInt64).array();
    if (n_iter == 0) return;
    saved["t"] = full({}, t, kFloat64).array();
    saved["prev_loss"] = full({}, prev_loss, kFloat64).array();
    saved["d"] = d.array();
    saved["H_diag"] = H_diag.array();
    saved["prev_flat_grad"] = prev_flat_grad.array();
    for (size_t i = 0; i < ro.size(); ++i) {
      saved["old_dirs." + std::to_string(i)] = old_dirs[i].array();
      saved["old_stps." + std::to_string(i)] = old_stps[i].array();
      saved["ro." + std::to_string(i)] = ro[i].array();
    }
  }

  /// One pair more, and the oldest one less where there are too many.
  void remember(const Tensor& y, const Tensor& s, const Tensor& ys, int64_t history_size) {
    if (old_dirs.size() == static_cast<size_t>(history_size))
      for (auto* list : {&old_dirs, &old_stps, &ro}) list->erase(list->begin());
    old_dirs.push_back(y);
    old_stps.push_back(s);
    ro.push_back(1 / ys);
    H_diag = ys / y.dot(y);
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
  DtypePolicy* const policy = dtype_policy();  // autocast is the closure's
  const NoGradGuard no_grad;
  const PolicyScope as_they_are(nullptr);
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
    ++memory.n_iter;
    if (memory.n_iter == 1) {
      memory.d = -gradient;
      memory.H_diag = ones({}, dtype()).to(gradient.device());
    } else {
      const Tensor y = gradient - memory.prev_flat_grad;
      const Tensor s = memory.d * memory.t;
      const Tensor ys = y.dot(s);
      if (ys.item<double>() > 1e-10) memory.remember(y, s, ys, o.history_size());
      memory.d = memory.direction(gradient);
    }
    memory.prev_flat_grad = gradient;
    memory.prev_loss = loss;
    memory.t = o.lr();
    if (memory.n_iter == 1) memory.t *= std::min(1.0, 1 / gradient.abs().sum().item<double>());

    const double slope = gradient.dot(memory.d).item<double>();
    if (slope > -o.tolerance_change()) break;
    int64_t now = 0;
    if (o.line_search_fn()) {
      const std::vector<Tensor> origin = positions();
      const auto evaluate = [&](double t) {
        move(t, memory.d);
        const double value = call().item<double>();
        const Tensor g = gathered_gradient();
        set_positions(origin);
        return LinePoint{t, value, g.dot(memory.d).item<double>(), g};
      };
      LineSearch search =
          strong_wolfe(evaluate, {0, loss, slope, gradient}, memory.t, largest(memory.d),
                       o.tolerance_change(), max_eval - evaluations);
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
