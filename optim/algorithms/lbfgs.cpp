#include "halftape/optim/algorithms/lbfgs.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <tuple>
#include <utility>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/policy.h"
#include "halftape/optim/state/mismatches.h"

namespace halftape::optim {

void LBFGSOptions::fields(StateFields& f) {
  f.owner = "LBFGS";
  f.add("lr", lr_, kNonNegative);
  f.add("max_iter", max_iter_, kAtLeastOne);
  f.put({.name = "max_eval",
         .value = static_cast<double>(max_eval_.value_or(0)),
         .set = [this](double n) { max_eval_ = n == 0 ? std::nullopt : std::optional(int64_t(n)); },
         .whole = true,
         .range = kNonNegative});
  f.add("tolerance_grad", tolerance_grad_);
  f.add("tolerance_change", tolerance_change_);
  f.add("history_size", history_size_, kAtLeastOne);
  f.put({.name = "strong_wolfe",
         .value = line_search_fn_ ? 1.0 : 0.0,
         .set =
             [this](double n) {
               line_search_fn_ = n == 0 ? std::nullopt : std::optional<std::string>("strong_wolfe");
             },
         .whole = true,
         .range = kFraction});
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
  check_options(param_groups()[0].options());
}

void LBFGS::add_param_group(const OptimizerParamGroup&) {
  halftape::detail::fail(
      "LBFGS: expected one parameter group, and it has one; give it all "
      "parameters when it is made, or call add_parameters()");
}

void LBFGS::check_options(const OptimizerOptions& options) const {
  HALFTAPE_CHECK(param_groups().size() == 1, "LBFGS: expected one parameter group, got ",
                 param_groups().size());
  HALFTAPE_CHECK(dynamic_cast<const LBFGSOptions*>(&options),
                 "LBFGS: its group has the options of another class of optimizers");
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

  /// Replaces `saved`, or throws and leaves it.
  void write(ParamState& saved) {
    ParamState now;
    now["func_evals"] = full({}, func_evals, kInt64).array();
    now["n_iter"] = full({}, n_iter, kInt64).array();
    if (n_iter > 0) {
      now["t"] = full({}, t, kFloat64).array();
      now["prev_loss"] = full({}, prev_loss, kFloat64).array();
      for (const auto& [key, tensor] : tensors()) now[key] = tensor->array();
      for (const auto& [key, list] : lists())
        for (size_t i = 0; i < list->size(); ++i) now[key + std::to_string(i)] = (*list)[i].array();
    }
    saved = std::move(now);
  }

  std::map<std::string, Tensor*> tensors() {
    return {{"d", &d}, {"H_diag", &H_diag}, {"prev_flat_grad", &prev_flat_grad}};
  }
  std::map<std::string, std::vector<Tensor>*> lists() {
    return {{"old_dirs_", &old_dirs}, {"old_stps_", &old_stps}, {"ro_", &ro}};
  }

  /// Adds one pair, and drops the oldest beyond history_size.
  void remember(const Tensor& y, const Tensor& s, const Tensor& ys, int64_t history_size) {
    while (old_dirs.size() >= static_cast<size_t>(history_size))
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

/// A point on the line x + t·d.
struct LinePoint {
  double t = 0;
  double loss = 0;
  double slope = 0;  // gradient·d
  Tensor gradient;
};
struct LineSearch {
  LinePoint found;
  int64_t evaluations = 0;
};

constexpr double kDecrease = 1e-4, kCurvature = 0.9;

/// The minimum within [low, high] of the cubic through both points with their slopes.
double cubic_minimum(const LinePoint& one, const LinePoint& other, double low, double high) {
  const auto& [a, b] = one.t <= other.t ? std::tie(one, other) : std::tie(other, one);
  const double d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t);
  const double square = d1 * d1 - a.slope * b.slope;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const double lowest = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2));
  return std::min(std::max(lowest, low), high);
}

/// The strong Wolfe conditions, for points on one line.
struct WolfeConditions {
  const LinePoint& start;
  bool falls_enough(const LinePoint& p) const {
    return !(p.loss > start.loss + kDecrease * p.t * start.slope);
  }
  bool flat_enough(const LinePoint& p) const {
    return std::abs(p.slope) <= -kCurvature * start.slope;
  }
};

/// The minimum of the cubic through the bracket's ends. When it comes close to an end for the
/// second time in a row, a point a tenth of the bracket away from that end.
double next_trial(const LinePoint (&bracket)[2], bool& close_before) {
  const auto [near, far] = std::minmax(bracket[0].t, bracket[1].t);
  const double trial = cubic_minimum(bracket[0], bracket[1], near, far);
  const double margin = 0.1 * (far - near);
  const bool is_close = std::min(far - trial, trial - near) < margin;
  if (!is_close || (!close_before && trial < far && trial > near)) {
    close_before = is_close;
    return trial;
  }
  close_before = false;
  return std::abs(trial - far) < std::abs(trial - near) ? far - margin : near + margin;
}

/// Searches a t with loss(t) ≤ loss(0) + 1e-4·t·slope(0) and |slope(t)| ≤ 0.9·|slope(0)|; tries `t`
/// first. Ends after `max_evaluations`, or when the bracket's length times `d_max` falls below
/// 1e-9, as torch's, and returns the best point of the bracket then. Nocedal & Wright 2006,
/// algorithms 3.5 and 3.6.
LineSearch strong_wolfe(const std::function<LinePoint(double t)>& evaluate, const LinePoint& start,
                        double t, double d_max, int64_t max_evaluations) {
  const WolfeConditions wolfe{start};
  // Algorithm 3.5: longer and longer steps, until a good one lies between the last two.
  LinePoint before = start, now = evaluate(t);
  int64_t evaluations = 1, iterations = 0;
  for (; iterations < max_evaluations; ++iterations) {
    if (!wolfe.falls_enough(now) || (iterations > 1 && now.loss >= before.loss)) break;
    if (wolfe.flat_enough(now)) return {now, evaluations};
    if (now.slope >= 0) break;
    const double next = cubic_minimum(before, now, now.t + 0.01 * (now.t - before.t), now.t * 10);
    before = std::exchange(now, {});
    now = evaluate(next);
    ++evaluations;
  }
  if (iterations >= max_evaluations) before = start;

  // Algorithm 3.6: a smaller and smaller bracket around it.
  LinePoint bracket[2] = {before, now};
  size_t low = before.loss <= now.loss ? 0 : 1;
  bool close_before = false;
  for (; iterations < max_evaluations; ++iterations) {
    if (std::abs(bracket[1].t - bracket[0].t) * d_max < 1e-9) break;
    LinePoint point = evaluate(next_trial(bracket, close_before));
    ++evaluations;
    const size_t high = 1 - low;
    if (!wolfe.falls_enough(point) || point.loss >= bracket[low].loss) {
      bracket[high] = std::move(point);
      low = bracket[0].loss <= bracket[1].loss ? 0 : 1;
      continue;
    }
    const bool done = wolfe.flat_enough(point);
    if (!done && point.slope * (bracket[high].t - bracket[low].t) >= 0)
      bracket[high] = bracket[low];
    bracket[low] = std::move(point);
    if (done) break;
  }
  return {bracket[low], evaluations};
}

double largest(const Tensor& x) { return x.abs().max().item<double>(); }

/// All parameters as one vector, in float32, or in float64 if one is float64.
struct Parameters {
  const std::vector<Tensor>& all;
  const Dtype dtype = common_dtype(all);

  static Dtype common_dtype(const std::vector<Tensor>& all) {
    const bool wide =
        std::any_of(all.begin(), all.end(), [](const Tensor& p) { return p.dtype() == kFloat64; });
    return wide ? kFloat64 : kFloat32;
  }
  Tensor gradient() const {
    std::vector<Tensor> parts;
    for (const Tensor& p : all)
      parts.push_back(p.grad().defined() ? p.grad().detach().reshape({-1}).to(dtype)
                                         : zeros({p.numel()}, dtype).to(p.device()));
    return cat(parts);
  }
  void move(double t, const Tensor& d) const {
    int64_t at = 0;
    for (const Tensor& p : all) {
      const Tensor part = d.slice(0, at, at + p.numel()).view(p.sizes());
      p.copy_(p.detach().to(dtype) + part * t);
      at += p.numel();
    }
  }
  std::vector<Tensor> copies() const {
    std::vector<Tensor> values;
    for (const Tensor& p : all) values.push_back(p.detach().clone());
    return values;
  }
  void set(const std::vector<Tensor>& values) const {
    for (size_t i = 0; i < values.size(); ++i) all[i].copy_(values[i]);
  }
  /// Searches along d from here, and returns here.
  LineSearch search(const Tensor& d, const LinePoint& start, double t, int64_t max_evaluations,
                    const Optimizer::LossClosure& call) const {
    const std::vector<Tensor> origin = copies();
    const auto evaluate = [&](double length) {
      move(length, d);
      const double value = call().item<double>();
      const Tensor g = gradient();
      set(origin);
      return LinePoint{length, value, g.dot(d).item<double>(), g};
    };
    return strong_wolfe(evaluate, start, t, largest(d), max_evaluations);
  }
};

}  // namespace

Tensor LBFGS::step(LossClosure closure) {
  HALFTAPE_CHECK(closure, "LBFGS: step() needs a closure that computes the loss and its gradients");
  check_options(param_groups()[0].options());
  const auto& o = static_cast<const LBFGSOptions&>(param_groups()[0].options());
  o.validate();
  HALFTAPE_CHECK(!params().empty(), "LBFGS: no parameters were given; are the modules registered?");
  DtypePolicy* const policy = dtype_policy();  // the closure runs under the caller's autocast
  const NoGradGuard no_grad;
  const PolicyScope no_casts(nullptr);
  const auto call = [&] {
    const AutoGradMode recording(true);
    const PolicyScope casts(policy);
    Tensor loss = closure();
    for (const Tensor& p : params()) {
      check_gradient(p);
      check_verdict(p.grad());
    }
    return loss;
  };
  const std::vector<Tensor> before = Parameters{params()}.copies();
  try {
    return run(o, call);
  } catch (...) {
    Parameters{params()}.set(before);
    throw;
  }
}

Tensor LBFGS::run(const LBFGSOptions& o, const LossClosure& call) {
  const Parameters here{params()};
  const int64_t max_eval = o.max_eval().value_or(o.max_iter() * 5 / 4);
  Tensor first_loss = call();
  double loss = first_loss.item<double>();
  Tensor gradient = here.gradient();
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
      LineSearch search =
          here.search(memory.d, {0, loss, slope, gradient}, memory.t, max_eval - evaluations, call);
      now = search.evaluations;
      memory.t = search.found.t;
      loss = search.found.loss;
      gradient = search.found.gradient;
      here.move(memory.t, memory.d);
    } else {
      here.move(memory.t, memory.d);
      // After the last iteration the next step evaluates anyway.
      if (iteration < o.max_iter()) {
        loss = call().item<double>();
        gradient = here.gradient();
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

bool LBFGS::state_is_ordered() const { return !params().empty() && !state_of(params()[0]).empty(); }

StateEntry LBFGS::expected_state(const std::string& key, const Tensor&,
                                 const std::map<std::string, double>&) const {
  if (key == "func_evals" || key == "n_iter") return {{}, kInt64, false, true};
  if (key == "t" || key == "prev_loss") return {{}, kFloat64};
  if (key == "H_diag" || key.starts_with("ro_")) return {{}, Parameters::common_dtype(params())};
  int64_t total = 0;
  for (const Tensor& p : params()) total += p.numel();
  return {{total}, Parameters::common_dtype(params())};
}

void LBFGS::check_names(const ParamState& saved, const Tensor& p, const OptimizerOptions&,
                        const std::string& of, Mismatches& mismatches) const {
  if (saved.empty()) return;
  std::set<std::string> expected;
  if (p.is_same(params()[0])) {
    expected = {"func_evals", "n_iter"};
    const auto n_iter = saved.find("n_iter");
    const bool begun = n_iter == saved.end() || !n_iter->second.defined() ||
                       n_iter->second.numel() != 1 || read_int64(n_iter->second) != 0;
    if (begun) expected.insert({"t", "prev_loss", "d", "H_diag", "prev_flat_grad"});
    for (size_t i = 0; begun && saved.count("ro_" + std::to_string(i)); ++i)
      for (const char* list : {"old_dirs_", "old_stps_", "ro_"})
        expected.insert(list + std::to_string(i));
  }
  mismatches.names(saved, expected, of);
}

}  // namespace halftape::optim
