#include "halftape/optim/averaging.h"

#include <set>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/compare.h"
#include "halftape/autograd/ops/elementwise/mask.h"
#include "halftape/autograd/ops/elementwise/pointwise.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/policy.h"
#include "halftape/core/machine/warn.h"
#include "halftape/nn/modules/norm.h"
#include "halftape/optim/state/mismatches.h"

namespace halftape::optim {
namespace {

/// Parameters, then buffers.
OrderedDict<std::string, Tensor> all_of(const nn::Module& model) {
  OrderedDict<std::string, Tensor> all = model.named_parameters();
  all.update(model.named_buffers());
  return all;
}

}  // namespace

AveragedModel::AveragedModel(const nn::Module& model, const AveragedModelOptions& options)
    : options_(options), parameters_(model.named_parameters().size()) {
  const double decay = options.decay().value_or(0);
  HALFTAPE_CHECK(decay >= 0 && decay <= 1, "AveragedModel: decay ", decay, " is not in [0, 1]");
  const NoGradGuard no_grad;
  Device device = kCPU;
  for (const auto& item : all_of(model)) {
    const Tensor& t = item.value();
    averages_.insert(item.key(), t.detach().to(compute_dtype(t.dtype()), false, true));
    dtypes_.push_back(t.dtype());
    device = t.device();
  }
  HALFTAPE_CHECK(parameters_ > 0, "AveragedModel: the model has no parameters");
  n_averaged_ = zeros({}, kInt64).to(device);
}

OrderedDict<std::string, Tensor> AveragedModel::tensors_of(const nn::Module& model) const {
  OrderedDict<std::string, Tensor> all = all_of(model);
  Mismatches mismatches;
  for (size_t i = 0; i < averages_.size(); ++i) {
    const std::string& name = averages_[i].key();
    const Tensor* found = all.find(name);
    if (!found)
      mismatches.add("it has no \"", name, "\"");
    else
      mismatches.fits("\"" + name + "\"", found->array(), {averages_[i]->sizes(), dtypes_[i]});
  }
  for (const auto& item : all)
    if (!averages_.contains(item.key())) mismatches.add("\"", item.key(), "\" is new");
  mismatches.check("AveragedModel: the model is not the one that it was made of");
  return all;
}

bool AveragedModel::is_averaged(size_t i) const {
  return i < parameters_ || (options_.use_buffers() && is_floating_point(dtypes_[i]));
}

void AveragedModel::average(const Tensor& into, const Tensor& value, const Tensor& skipped) const {
  // Whole numbers are averaged as float64, and lose what follows the point.
  const Dtype wide = into.is_floating_point() ? into.dtype() : kFloat64;
  const Tensor before = into.to(wide), now = value.to(wide);
  Tensor next;
  if (!begun_)
    next = now;
  else if (options_.decay())
    next = lerp(before, now, 1 - *options_.decay());
  else
    next = before + (now - before) / (n_averaged_ + 1).to(into.device()).to(wide);
  into.copy_(skipped.defined() ? where(skipped.to(into.device()), before, next) : next);
}

void AveragedModel::update_parameters(const nn::Module& model, const Tensor& skipped) {
  HALFTAPE_CHECK(own_.empty(), "AveragedModel: the averages are in the model; swap_out() first");
  HALFTAPE_CHECK(!skipped.defined() || skipped.numel() == 1,
                 "AveragedModel: skipped is one number, got ", skipped.sizes());
  const OrderedDict<std::string, Tensor> values = tensors_of(model);
  const NoGradGuard no_grad;
  const PolicyScope as_they_are(nullptr);
  if (!begun_) begun_ = n_averaged() > 0;
  const Tensor no_step = skipped.defined() ? skipped.detach().reshape({}).ne(0) : Tensor();
  for (size_t i = 0; i < averages_.size(); ++i) {
    const Tensor value = values[averages_[i].key()].detach();
    if (is_averaged(i))
      average(*averages_[i], value, no_step);
    else
      averages_[i]->copy_(value);
  }
  if (no_step.defined())
    n_averaged_ += no_step.logical_not().to(kInt64).to(n_averaged_.device());
  else
    n_averaged_ += 1;
}

int64_t AveragedModel::n_averaged() const { return n_averaged_.item<int64_t>(); }

void AveragedModel::swap_in(nn::Module& model) {
  HALFTAPE_CHECK(own_.empty(), "AveragedModel::swap_in: the averages are in a model already");
  const OrderedDict<std::string, Tensor> values = tensors_of(model);
  const NoGradGuard no_grad;
  std::vector<Tensor> own, lent;
  for (const auto& average : averages_) {
    lent.push_back(values[average.key()]);
    own.push_back(lent.back().detach().clone());
  }
  lent.resize(parameters_);
  own_ = std::move(own);
  lent_ = std::move(lent);
  copy_to(model);
}

void AveragedModel::swap_out(nn::Module& model) {
  HALFTAPE_CHECK(!own_.empty(), "AveragedModel::swap_out: the averages are in no model");
  const OrderedDict<std::string, Tensor> values = tensors_of(model);
  for (size_t i = 0; i < parameters_; ++i)
    HALFTAPE_CHECK(values[averages_[i].key()].is_same(lent_[i]), "AveragedModel::swap_out: \"",
                   averages_[i].key(),
                   "\" is not the tensor that has the averages; is this another model?");
  const NoGradGuard no_grad;
  // All before any: a buffer may have several names.
  for (size_t i = parameters_; i < averages_.size(); ++i)
    averages_[i]->copy_(values[averages_[i].key()]);
  for (size_t i = 0; i < averages_.size(); ++i) values[averages_[i].key()].copy_(own_[i]);
  own_.clear();
  lent_.clear();
}

AveragedModel::Swapped::~Swapped() {
  try {
    averaged_.swap_out(model_);
  } catch (const std::exception& e) {
    warn(std::string("AveragedModel: the model keeps the averages: ") + e.what());
  }
}

void AveragedModel::copy_to(nn::Module& model) const {
  const OrderedDict<std::string, Tensor> values = tensors_of(model);
  const NoGradGuard no_grad;
  for (const auto& average : averages_) values[average.key()].copy_(average.value());
}

AveragedModelState AveragedModel::state_dict() const {
  AveragedModelState saved;
  for (const auto& average : averages_) saved["module." + average.key()] = average->array().clone();
  saved["n_averaged"] = n_averaged_.array().clone();
  return saved;
}

void AveragedModel::load_state_dict(const AveragedModelState& saved) {
  HALFTAPE_CHECK(own_.empty(), "AveragedModel: the averages are in the model; swap_out() first");
  std::map<std::string, Tensor> mine{{"n_averaged", n_averaged_}};
  for (const auto& average : averages_) mine["module." + average.key()] = average.value();
  std::set<std::string> names;
  for (const auto& [name, tensor] : mine) names.insert(name);
  Mismatches mismatches;
  mismatches.names(saved, names, "");
  for (const auto& [name, value] : saved)
    if (const auto to = mine.find(name); to != mine.end())
      mismatches.fits("\"" + name + "\"", value, {to->second.sizes(), to->second.dtype()});
  mismatches.check("AveragedModel: the saved state does not fit");
  const int64_t n = read_int64(saved.at("n_averaged"));
  HALFTAPE_CHECK(n >= 0 && n < int64_t{1} << 53, "AveragedModel: the saved \"n_averaged\" is ", n,
                 ", expected a number from 0 to 2^53");
  const NoGradGuard no_grad;
  for (const auto& [name, to] : mine) to.copy_(Tensor(saved.at(name)));
  begun_ = false;
}

namespace {
/// Calls f(momentum option, layer) once for each batch norm of the model, however many names it
/// has, always in the same order.
template <class F>
void each_batch_norm(nn::Module& model, const F& f) {
  std::set<const nn::Module*> met;
  model.apply([&](nn::Module& module) {
    auto* norm = dynamic_cast<nn::detail::BatchNorm*>(&module);
    if (norm && met.insert(&module).second) f(norm->options.momentum(), *norm);
  });
}
}  // namespace

FreshStatistics::FreshStatistics(nn::Module& model) : model_(model), trained_(model.is_training()) {
  each_batch_norm(model_, [&](std::optional<double>& momentum, nn::detail::BatchNorm& norm) {
    momenta_.push_back(std::exchange(momentum, std::nullopt));
    norm.reset_running_stats();
  });
  if (any()) model_.train();
}
FreshStatistics::~FreshStatistics() {
  auto former = momenta_.begin();
  each_batch_norm(model_, [&](std::optional<double>& momentum, nn::detail::BatchNorm&) {
    momentum = *former++;
  });
  if (any()) model_.train(trained_);
}

}  // namespace halftape::optim
