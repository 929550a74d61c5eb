#include "halftape/distributed/data_parallel/zero_redundancy_optimizer.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/core/capture/capture.h"
#include "halftape/core/contract/backend.h"
#include "halftape/distributed/collectives.h"
#include "halftape/distributed/data_parallel/impl.h"

namespace halftape::distributed {
namespace {

/// An integer dtype of that size: sums of bits, of which all but one are 0, are exact.
Dtype bits_of(Dtype dtype) {
  switch (element_size(dtype)) {
    case 1:
      return kUInt8;
    case 2:
      return kInt16;
    case 4:
      return kInt32;
    default:
      return kInt64;
  }
}

Array as_bits(const Array& a) {
  return {a.buffer(), {a.numel()}, {1}, a.offset(), bits_of(a.dtype())};
}

/// The names and dtypes of a state, on all ranks: the union of what they have. "step:9:0 …", with
/// the dtype, and 1 for a number that is the parameter's as a whole.
std::set<std::string> names_on_all(ProcessGroup& group, const std::string& own) {
  const int64_t most = 512;
  HALFTAPE_CHECK(static_cast<int64_t>(own.size()) < most,
                 "ZeroRedundancyOptimizer: the names of a state, ", own.size(), " bytes, are long");
  const TensorOptions bytes = TensorOptions(kUInt8).device(kCPU);  // whatever the default device
  const Tensor mine = zeros({most}, bytes), all = zeros({most * group.size()}, bytes);
  std::memcpy(mine.array().raw(), own.data(), own.size());
  group.all_gather_into_tensor(all, mine, {.label = "names of a state"});
  std::set<std::string> names;
  const auto* text = static_cast<const char*>(all.array().raw());
  for (int r = 0; r < group.size(); ++r) {
    std::string name;
    for (const char* c = text + r * most; *c; ++c) {
      if (*c != ' ') {
        name += *c;
        continue;
      }
      names.insert(std::exchange(name, {}));
    }
  }
  return names;
}

}  // namespace

StateShards::StateShards(std::shared_ptr<ProcessGroup> group,
                         const std::vector<optim::OptimizerParamGroup>& groups)
    : group_(group ? std::move(group) : default_group()) {
  agreements_.push_back(agree_over(group_, optim::parameters_of(groups)));
}

StateShards::StateShards(DistributedDataParallel& ddp,
                         const std::vector<optim::OptimizerParamGroup>& groups)
    : group_(ddp.impl_->group), ddp_(ddp.impl_) {
  for (const Bucket& bucket : ddp.impl_->buckets) add_lot(bucket);
  attached_ = ddp.impl_->attach(groups);
  const Pieces checked(*this, groups);
}

void StateShards::plan(const std::vector<optim::OptimizerParamGroup>& groups) {
  for (; !takes_parts() && planned_ < groups.size(); ++planned_)
    add_group(groups[planned_].params());
  for (const Tensor& p : optim::parameters_of(groups)) {
    const auto found = places_.find(p.impl());
    if (found == places_.end() && takes_parts() && !p.requires_grad() && !p.grad().defined())
      continue;
    HALFTAPE_CHECK(
        found != places_.end(), "ZeroRedundancyOptimizer: a parameter of shape ", p.sizes(),
        takes_parts() ? " is not one that the DistributedDataParallel reduces; make that "
                        "of a module that has it, with requires_grad() on"
                      : " came to a group after its first step; add_param_group()");
    Place& at = found->second;
    HALFTAPE_CHECK(p.is_contiguous(), "ZeroRedundancyOptimizer: the parameter of shape ", p.sizes(),
                   " is not contiguous; clone() it");
    const Array own = p.array().reshape({p.numel()}).slice(0, at.begin, at.end);
    if (!at.piece.defined())
      at.piece = Tensor(own);
    else
      at.piece.impl()->set_value(own);
    at.piece.impl()->times_set = p.impl()->times_set;
  }
}

void StateShards::check_reduced() const {
  if (!takes_parts()) return;
  const auto ddp = ddp_.lock();
  HALFTAPE_CHECK(ddp,
                 "ZeroRedundancyOptimizer: its DistributedDataParallel is gone, and gradients "
                 "are no longer reduced; keep it for as long as the optimizer steps");
  ddp->check_all_updated();
}

void StateShards::add_lot(Bucket lot) {
  const int64_t each = part_size(lot.numel(), group_->size()), first = group_->rank() * each;
  for (size_t i = 0; i < lot.params().size(); ++i) {
    const Tensor& p = lot.params()[i];
    const int64_t begin = std::clamp(first - lot.offset(i), int64_t{0}, p.numel()),
                  end = std::clamp(first + each - lot.offset(i), int64_t{0}, p.numel());
    places_[p.impl()] = {lots_.size(), begin, end, {}};
  }
  lots_.push_back(std::move(lot));
}

void StateShards::add_group(const std::vector<Tensor>& params) {
  agreements_.push_back(agree_over(group_, params));  // of those that came after the constructor
  std::vector<std::vector<size_t>> alike;
  for (size_t i = 0; i < params.size(); ++i) {
    const auto lot = std::find_if(alike.begin(), alike.end(), [&](const auto& numbers) {
      const Tensor& one = params[numbers[0]];
      return one.dtype() == params[i].dtype() && one.device() == params[i].device();
    });
    (lot == alike.end() ? alike.emplace_back() : *lot).push_back(i);
  }
  for (auto& numbers : alike) add_lot(Bucket(params, std::move(numbers)));
}

void StateShards::release() {
  for (auto& [parameter, at] : places_) {
    if (!at.piece.defined()) continue;
    at.piece.mutable_grad() = Tensor();
    at.piece.impl()->set_value(Array());
  }
}

const StateShards::Place& StateShards::place(const Tensor& parameter) const {
  const auto found = places_.find(parameter.impl());
  HALFTAPE_CHECK(found != places_.end(), "ZeroRedundancyOptimizer: a parameter of shape ",
                 parameter.sizes(), " is in none of its groups");
  return found->second;
}

std::vector<Tensor> StateShards::with_gradients(const std::vector<Tensor>& parameters) const {
  std::vector<Tensor> all;
  for (const Tensor& p : parameters) {
    const Place& at = place(p);
    if (at.begin == at.end) continue;
    const Array flat = p.grad().array().reshape({p.numel()});
    at.piece.mutable_grad() = Tensor(flat.slice(0, at.begin, at.end));
    all.push_back(at.piece);
  }
  return all;
}

optim::ParamState StateShards::cut(const Tensor& parameter, const optim::ParamState& whole) const {
  const Place& at = place(parameter);
  optim::ParamState part;
  for (const auto& [name, value] : whole)
    part[name] = value.shape() == parameter.sizes()
                     ? value.reshape({parameter.numel()}).slice(0, at.begin, at.end).clone()
                     : value.clone();
  return part;
}

optim::ParamState StateShards::join(const Tensor& parameter, const optim::ParamState& part) const {
  const Place& at = place(parameter);
  std::string own;
  for (const auto& [name, value] : part)
    own += name + ':' + std::to_string(static_cast<int>(value.dtype())) + ':' +
           std::to_string(value.numel() != at.end - at.begin || value.dim() == 0) + ' ';
  optim::ParamState whole;
  for (const std::string& item : names_on_all(*group_, own)) {
    const size_t second = item.rfind(':'), first = item.rfind(':', second - 1);
    const std::string name = item.substr(0, first);
    const auto dtype = static_cast<Dtype>(std::stoi(item.substr(first + 1, second - first - 1)));
    const bool single = item.back() == '1';
    const auto found = part.find(name);
    Array all = full(single ? Shape{} : parameter.sizes(), 0, dtype, parameter.device());
    if (found != part.end())
      backend(all.device())
          .copy(single ? all : all.reshape({all.numel()}).slice(0, at.begin, at.end),
                single ? found->second.reshape({}) : found->second);
    // Ranks that share the parameter have the same number of steps; the others have 0.
    group_->all_reduce(Tensor(as_bits(all)), single ? ReduceOp::Max : ReduceOp::Sum,
                       {.label = name});
    whole[name] = all;
  }
  return whole;
}

void StateShards::gather(const std::vector<std::vector<Tensor>>& updated,
                         const StepControl& control) const {
  const Array& skip = control.found_inf;
  const bool host_sees = skip.defined() && skip.device().is_cpu() && !Capture::active_or_tried();
  if (group_->size() == 1 || (host_sees && read_double(skip) != 0)) return;
  std::set<size_t> lots;
  for (const auto& of_group : updated)
    for (const Tensor& p : of_group) lots.insert(place(p).lot);
  for (const size_t n : lots) {
    const Array all = lots_[n].values();
    const std::vector<Tensor> parts = parts_for(*group_, all);
    group_->all_gather(parts, parts[static_cast<size_t>(group_->rank())],
                       {.label = "updated parameters " + std::to_string(n)});
    lots_[n].put_values(all);
  }
}

}  // namespace halftape::distributed
