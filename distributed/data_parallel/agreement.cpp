// Scalers of all ranks come to one verdict.
#include <mutex>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "halftape/amp/agreement.h"
#include "halftape/amp/async_grad_scaler.h"
#include "halftape/amp/grad_scaler.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/core/bit_cast.h"
#include "halftape/core/contract/backend.h"
#include "halftape/distributed/data_parallel/impl.h"

namespace halftape::distributed {
namespace {

/// One small message: flags and scales.
class GroupAgreement final : public amp::Agreement {
 public:
  explicit GroupAgreement(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}

  void agree(std::span<const Array> flags, const Array& scale, const Array& first) override {
    if (group_->size() == 1) return;
    const auto n = static_cast<int64_t>(flags.size());
    Backend& on = backend(scale.device());
    // The largest scale, and the largest of the negative ones, which is the least.
    const Array all({n + 3}, kFloat32, scale.device());
    for (int64_t i = 0; i < n; ++i) on.copy(all.select(0, i), flags[static_cast<size_t>(i)]);
    on.copy(all.select(0, n), scale);
    on.copy(all.select(0, n + 1), (-Tensor(scale)).array());
    put_first(all.select(0, n + 2), first);
    group_->all_reduce(Tensor(all), ReduceOp::Max, {.label = "the scaler's verdict"});
    if (!group_->queues() || !std::exchange(compared_, true))
      compare(all.slice(0, n, n + 2), scale);
    for (int64_t i = 0; i < n; ++i) {
      on.copy(flags[static_cast<size_t>(i)], all.select(0, i));
      flags[static_cast<size_t>(i)].bump_version();
    }
    take_first(first, all.select(0, n + 2));
  }

 private:
  // The least position is the largest negative one; none is -inf. float32 holds 2^24 positions.
  static void put_first(const Array& to, const Array& first) {
    const Tensor at = first.defined() ? Tensor(first).to(kFloat32) : full({}, -1).to(to.device());
    backend(to.device()).copy(to, where(at < 0, -INFINITY, -at).array());
  }
  static void take_first(const Array& first, const Array& from) {
    if (!first.defined()) return;
    const Tensor at(from);
    backend(first.device()).copy(first, where(isinf(at), -1, -at).array());
    first.bump_version();
  }
  void compare(const Array& scales, const Array& own) const {
    const std::vector<float> both = Tensor(scales).to_vector<float>();
    const float largest = both[0], least = -both[1];
    const double mine = read_double(own);
    const bool is_on = mine != 0;  // a scaler that is disabled says 0
    HALFTAPE_CHECK(least != 0 || largest == 0, "GradScaler: on this rank, ", group_->rank(),
                   ", it is ", is_on ? "enabled, and disabled" : "disabled, and enabled",
                   " on another one; give all the same options");
    HALFTAPE_CHECK(largest == least, "GradScaler: this rank, ", group_->rank(), ", scales by ",
                   mine, ", and the ranks by ", least, " to ", largest,
                   "; give all the same options, and load the same state on all");
  }
  std::shared_ptr<ProcessGroup> group_;
  bool compared_ = false;  // where the host would have to wait, once
};

/// Which parameters belong to which group.
struct Registry {
  std::mutex mutex;
  std::unordered_map<const halftape::detail::TensorImpl*, std::weak_ptr<GroupAgreement>> groups;
};
Registry& registry() {
  static Registry* one = new Registry;  // NOLINT: outlives every static scaler
  return *one;
}

std::shared_ptr<amp::Agreement> find(std::span<const Tensor> parameters) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const Tensor& p : parameters)
    if (const auto found = all.groups.find(p.impl()); found != all.groups.end())
      if (auto agreement = found->second.lock()) return agreement;
  return nullptr;
}

template <class Scaler>
void take_state(ProcessGroup& group, Scaler& scaler, int src) {
  HALFTAPE_CHECK(src >= 0 && src < group.size(), "broadcast_scaler: from rank ", src,
                 " in a group of ", group.size());
  std::ostringstream own;
  for (const auto& [name, value] : scaler.state_dict())
    own << name << ' ' << bit_cast<uint64_t>(value) << '\n';
  std::istringstream text(text_of(group, own.str(), src, "the scaler's state"));
  typename Scaler::StateDict state;
  std::string name;
  for (uint64_t bits = 0; text >> name >> bits;) state[name] = bit_cast<double>(bits);
  HALFTAPE_CHECK(
      state.empty() == own.str().empty(), "broadcast_scaler: the scaler of rank ", src,
      state.empty() ? " is disabled, and that of rank " : " is enabled, and that of rank ",
      group.rank(), " is not; give all the same options");
  if (!state.empty()) scaler.load_state_dict(state);
}

}  // namespace

void DistributedDataParallel::broadcast_scaler(amp::GradScaler& scaler, int src) {
  take_state(*impl_->group, scaler, src);
}
void DistributedDataParallel::broadcast_scaler(amp::AsyncGradScaler& scaler, int src) {
  take_state(*impl_->group, scaler, src);
}

std::shared_ptr<void> agree_over(std::shared_ptr<ProcessGroup> group,
                                 const std::vector<Tensor>& params) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  auto agreement = std::make_shared<GroupAgreement>(std::move(group));
  for (const Tensor& p : params) all.groups[p.impl()] = agreement;
  amp::set_agreement_finder(find);
  // The entries go with the model's parallel training, before an address can be another tensor's.
  return std::shared_ptr<void>(agreement.get(), [agreement, params](void*) {
    Registry& registered = registry();
    const std::lock_guard held(registered.mutex);
    for (const Tensor& p : params) {
      const auto found = registered.groups.find(p.impl());
      if (found != registered.groups.end() && found->second.lock() == agreement)
        registered.groups.erase(found);
    }
  });
}

}  // namespace halftape::distributed
