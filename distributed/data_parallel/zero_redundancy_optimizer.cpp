#include "halftape/distributed/data_parallel/zero_redundancy_optimizer.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/core/contract/backend.h"

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
  const Tensor mine = zeros({most}, kUInt8), all = zeros({most * group.size()}, kUInt8);
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

StateShards::StateShards(std::shared_ptr<ProcessGroup> group)
    : group_(group ? std::move(group) : default_group()) {}

std::pair<int64_t, int64_t> StateShards::range(const Lot& lot, int64_t offset, int64_t numel,
                                               int rank) const {
  const int64_t begin = std::clamp(rank * lot.each - offset, int64_t{0}, numel),
                end = std::clamp((rank + 1) * lot.each - offset, int64_t{0}, numel);
  return {begin, end};
}

void StateShards::plan(const std::vector<optim::OptimizerParamGroup>& groups) {
  for (; planned_ < groups.size(); ++planned_) add_group(groups[planned_].params());
  for (const Lot& lot : lots_)
    for (const Tensor& p : lot.params) {
      const auto found = places_.find(p.impl());
      Place& at = found->second;
      HALFTAPE_CHECK(p.is_contiguous(), "ZeroRedundancyOptimizer: the parameter of shape ",
                     p.sizes(), " is not contiguous; clone() it");
      const Array own = p.array().reshape({p.numel()}).slice(0, at.begin, at.end);
      if (!at.piece.defined())
        at.piece = Tensor(own);
      else
        at.piece.impl()->set_value(own);
    }
}

void StateShards::add_group(const std::vector<Tensor>& params) {
  const size_t first = lots_.size();
  for (const Tensor& p : params) {
    size_t n = first;
    while (n < lots_.size() &&
           (lots_[n].params[0].dtype() != p.dtype() || lots_[n].params[0].device() != p.device()))
      ++n;
    if (n == lots_.size()) lots_.emplace_back();
    Lot& lot = lots_[n];
    lot.params.push_back(p);
    lot.offsets.push_back(lot.numel);
    lot.numel = checked_add(lot.numel, p.numel());
  }
  for (size_t n = first; n < lots_.size(); ++n) {
    Lot& lot = lots_[n];
    lot.each = (lot.numel + group_->size() - 1) / group_->size();
    for (size_t i = 0; i < lot.params.size(); ++i) {
      const auto [begin, end] = range(lot, lot.offsets[i], lot.params[i].numel(), group_->rank());
      places_[lot.params[i].impl()] = {n, lot.offsets[i], begin, end, {}};
    }
  }
}

void StateShards::release() {
  for (auto& [parameter, at] : places_) {
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

const Tensor& StateShards::piece(const Tensor& parameter) const { return place(parameter).piece; }

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

void StateShards::gather(const std::vector<Tensor>& parameters) const {
  if (group_->size() == 1) return;
  std::set<size_t> lots;
  for (const Tensor& p : parameters) lots.insert(place(p).lot);
  for (const size_t n : lots) {
    const Lot& lot = lots_[n];
    const Tensor& first = lot.params[0];
    Backend& on = backend(first.device());
    const Array all({lot.each * group_->size()}, first.dtype(), first.device());
    const Array own = all.slice(0, group_->rank() * lot.each, (group_->rank() + 1) * lot.each);
    on.fill(own, 0);  // the last part may be shorter
    const auto each_part = [&](int rank, const auto& copy) {
      for (size_t i = 0; i < lot.params.size(); ++i) {
        const Array flat = lot.params[i].array().reshape({lot.params[i].numel()});
        const auto [begin, end] = range(lot, lot.offsets[i], flat.numel(), rank);
        if (begin < end)
          copy(flat.slice(0, begin, end),
               all.slice(0, lot.offsets[i] + begin, lot.offsets[i] + end));
      }
    };
    each_part(group_->rank(),
              [&](const Array& of_param, const Array& of_all) { on.copy(of_all, of_param); });
    group_->all_gather_into_tensor(Tensor(all), Tensor(own), {.label = "updated parameters"});
    for (int r = 0; r < group_->size(); ++r)
      if (r != group_->rank())
        each_part(r, [&](const Array& of_param, const Array& of_all) {
          on.copy(of_param, of_all);
          of_param.bump_version();
        });
  }
}

}  // namespace halftape::distributed
