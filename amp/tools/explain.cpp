#include "halftape/amp/tools/explain.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "halftape/amp/autocaster.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/tape/grad_mode.h"

namespace halftape::amp {
namespace {

std::string reason(const CastOp& op, Cast rule, bool by_user, bool mixed) {
  if (op.decided) return "dtype argument";
  if (by_user) return std::string("user rule: ") + name_of(rule);
  if (rule == Cast::Keep) return mixed ? "promotion" : "as given";
  return std::string("list: ") + name_of(rule);
}

CastPlan::Input input_of(const Tensor& x, Dtype used, Dtype lower) {
  CastPlan::Input input{x.sizes(), x.dtype(), used};
  if (x.dtype() != kFloat32) return input;
  const Tensor plain = x.detach(), low = plain.to(lower);
  input.overflows = sum(isinf(low) & isfinite(plain)).item<int64_t>();
  input.vanishes = sum((low == 0) & (plain != 0)).item<int64_t>();
  return input;
}

bool same(const CastPlan::Step& a, const CastPlan::Step& b) {
  return a.op == b.op && a.dtype == b.dtype && a.why == b.why && a.inputs == b.inputs;
}

}  // namespace

void CastPlan::note(const CastOp& op, Cast rule, const AutocastState::PerDevice& region,
                    std::span<const Tensor* const> given, std::span<const Tensor> casts,
                    std::optional<Dtype> compute_as) {
  const PolicyScope plain(nullptr);
  const NoGradGuard no_grad;
  const bool by_user = region.policy && region.policy->get(op) != op.cast;
  std::vector<Input> inputs;
  std::optional<Dtype> dtype;
  bool mixed = false;
  for (size_t i = 0; i < given.size(); ++i) {
    if (!given[i]->defined()) continue;
    const Dtype used = casts[i].defined() ? casts[i].dtype() : given[i]->dtype();
    inputs.push_back(input_of(*given[i], used, region.dtype));
    mixed |= dtype && *dtype != used;
    dtype = dtype ? promote(*dtype, used) : used;
  }
  Step step{op.name, compute_as.value_or(*dtype), reason(op, rule, by_user, mixed),
            std::move(inputs)};
  if (!steps.empty() && same(steps.back(), step))
    ++steps.back().count;
  else
    steps.push_back(std::move(step));
}

int64_t CastPlan::casts() const {
  int64_t total = 0;
  for (const Step& step : steps)
    for (const Input& input : step.inputs) total += input.given != input.used ? step.count : 0;
  return total;
}

std::ostream& operator<<(std::ostream& out, const CastPlan& plan) {
  std::vector<std::array<std::string, 5>> rows{{"op", "runs in", "why", "casts", "would not fit"}};
  for (const CastPlan::Step& step : plan.steps) {
    std::ostringstream casts, misfits;
    for (const CastPlan::Input& in : step.inputs) {
      if (in.given != in.used)
        casts << (casts.tellp() > 0 ? ", " : "") << in.shape << ' ' << in.given << " to "
              << in.used;
      if (in.overflows + in.vanishes == 0) continue;
      misfits << (misfits.tellp() > 0 ? "; " : "") << in.shape << ": " << in.overflows
              << " to inf, " << in.vanishes << " to 0";
    }
    rows.push_back({step.op + (step.count > 1 ? " x" + std::to_string(step.count) : ""),
                    std::string(name(step.dtype)), step.why, casts.str(), misfits.str()});
  }
  std::array<size_t, 5> widths{};
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  for (const auto& row : rows) {
    std::ostringstream line;
    for (size_t i = 0; i < row.size(); ++i)
      line << std::left << std::setw(static_cast<int>(widths[i] + 2)) << row[i];
    const std::string text = line.str();
    out << text.substr(0, text.find_last_not_of(' ') + 1) << '\n';
  }
  return out;
}

CastRecorder::CastRecorder(CastPlan& plan)
    : autocaster_(Autocaster::hold()),
      region_([&] { return Before{std::exchange(autocaster_->observer, &plan)}; },
              autocaster_.get()) {
  if (Autocaster::active()) autocaster_->install();
}
CastRecorder::~CastRecorder() {
  region_.end("CastRecorder", [&](Before before) {
    if (Autocaster::outlived(autocaster_.get())) return;
    autocaster_->observer = before.observer;
    if (Autocaster::active() == autocaster_.get()) autocaster_->install();
  });
}

CastPlan explain(const std::function<void()>& f) {
  CastPlan plan;
  const CastRecorder recorder(plan);
  f();
  return plan;
}

}  // namespace halftape::amp
