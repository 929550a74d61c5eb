// Scalers of all ranks come to one verdict, and roundings to the same bits.
#include <algorithm>
#include <mutex>
#include <optional>
#include <set>
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
#include "halftape/optim/state/param_storage.h"

namespace halftape::distributed {
namespace {

/// One small message: flags, a position, and the course.
class GroupAgreement final : public amp::Agreement {
 public:
  explicit GroupAgreement(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}
  int size() const { return group_->size(); }

  void agree(std::span<const Array> flags, const amp::ScaleCourse& course,
             const Array& first) override {
    if (group_->size() == 1) return;
    const auto n = static_cast<int64_t>(flags.size());
    const Device device = course.scale.device();
    Backend& on = backend(device);
    const Array all({n + 1 + 2 * kCourse}, kFloat32, device);
    for (int64_t i = 0; i < n; ++i) on.copy(all.select(0, i), flags[static_cast<size_t>(i)]);
    put_first(all.select(0, n), first);
    // Of each number the largest, and the largest of the negative ones, which is the least.
    const Array own = all.slice(0, n + 1, n + 1 + kCourse),
                negative = all.slice(0, n + 1 + kCourse, n + 1 + 2 * kCourse);
    on.copy(own.select(0, 0), course.scale);
    on.fill(own.select(0, 1), law_number(course.law));
    if (course.trackers.defined())
      on.copy(own.slice(0, 2, kCourse), course.trackers);
    else
      on.fill(own.slice(0, 2, kCourse), 0);
    on.copy(negative, (-Tensor(own)).array());
    group_->all_reduce(Tensor(all), ReduceOp::Max, {.label = "the scaler's verdict"});
    // Where the host would have to wait, once for each scaler's law and loaded state.
    const std::pair key(course.state_number, law_number(course.law));
    if (!group_->queues() || !compared_.contains(key)) compare(own, negative, course.scale);
    compared_.insert(key);
    for (int64_t i = 0; i < n; ++i) {
      on.copy(flags[static_cast<size_t>(i)], all.select(0, i));
      flags[static_cast<size_t>(i)].bump_version();
    }
    take_first(first, all.select(0, n));
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
  /// A number of 24 bits, which float32 holds; other laws have another one but by chance.
  static double law_number(const ScaleLaw& law) {
    const double parts[] = {law.growth_factor,
                            law.backoff_factor,
                            static_cast<double>(law.growth_interval),
                            law.min_scale,
                            law.max_scale,
                            static_cast<double>(law.hysteresis),
                            static_cast<double>(law.refill)};
    return static_cast<double>(hash_bytes(parts, sizeof(parts)) >> 40);
  }
  void compare(const Array& most, const Array& least_negative, const Array& own) const {
    const std::vector<float> largest = Tensor(most).to_vector<float>();
    std::vector<float> least = Tensor(least_negative).to_vector<float>();
    for (float& x : least) x = -x;
    const double mine = read_double(own);
    const bool is_on = mine != 0;  // a scaler that is disabled says 0
    HALFTAPE_CHECK(least[0] != 0 || largest[0] == 0, "GradScaler: on this rank, ", group_->rank(),
                   ", it is ", is_on ? "enabled, and disabled" : "disabled, and enabled",
                   " on another one; give all the same options");
    HALFTAPE_CHECK(largest[0] == least[0], "GradScaler: this rank, ", group_->rank(),
                   ", scales by ", mine, ", and the ranks by ", least[0], " to ", largest[0],
                   "; give all the same options, and load the same state on all");
    HALFTAPE_CHECK(largest[1] == least[1],
                   "GradScaler: the factors, growth intervals, bounds or hysteresis of the ranks "
                   "differ, and their scales would part; give all the same options");
    HALFTAPE_CHECK(largest[2] == least[2] && largest[3] == least[3],
                   "GradScaler: the ranks have counted ", least[2], " to ", largest[2],
                   " steps since the scale changed, and ", least[3], " to ", largest[3],
                   " overflows, and their scales would part; load the same state on all");
  }
  static constexpr int64_t kCourse = 4;  // the scale, the law's number, the trackers
  std::shared_ptr<ProcessGroup> group_;
  std::set<std::pair<int64_t, double>> compared_;
};

/// Of an optimizer whose parameters belong to several groups.
class SeveralAgreements final : public amp::Agreement {
 public:
  /// The last one, which is the largest, has what the others have come to.
  explicit SeveralAgreements(std::vector<std::shared_ptr<GroupAgreement>> all)
      : all_(std::move(all)) {
    std::stable_sort(all_.begin(), all_.end(),
                     [](const auto& a, const auto& b) { return a->size() < b->size(); });
  }
  void agree(std::span<const Array> flags, const amp::ScaleCourse& course,
             const Array& first) override {
    for (const auto& one : all_) one->agree(flags, course, first);
  }

 private:
  std::vector<std::shared_ptr<GroupAgreement>> all_;
};

/// Which parameters belong to which group, and the seeds that its ranks share for them.
struct Registry {
  struct Training {
    std::weak_ptr<GroupAgreement> agreement;
    std::optional<uint64_t> seed;  // of a DistributedDataParallel; an optimizer has none
  };
  /// The one that counts: of those that live the newest with a seed, else the newest.
  static const Training* current(const std::vector<Training>& all) {
    const Training* best = nullptr;
    for (const Training& one : all)
      if (!one.agreement.expired() && (!best || one.seed || !best->seed)) best = &one;
    return best;
  }
  const Training* find(const Tensor& parameter) const {
    const auto found = parameters.find(parameter.impl());
    return found == parameters.end() ? nullptr : current(found->second);
  }
  std::mutex mutex;
  std::unordered_map<const halftape::detail::TensorImpl*, std::vector<Training>> parameters;
};
Registry& registry() {
  static Registry* one = new Registry;  // NOLINT: outlives every static scaler
  return *one;
}

std::shared_ptr<amp::Agreement> find(std::span<const Tensor> parameters) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::vector<std::shared_ptr<GroupAgreement>> found;
  for (const Tensor& p : parameters)
    if (const Registry::Training* of_p = all.find(p))
      if (auto agreement = of_p->agreement.lock();
          agreement && std::find(found.begin(), found.end(), agreement) == found.end())
        found.push_back(std::move(agreement));
  if (found.size() > 1) return std::make_shared<SeveralAgreements>(std::move(found));
  return found.empty() ? nullptr : found[0];
}
std::optional<uint64_t> find_seed(const Tensor& parameter) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const Registry::Training* const found = all.find(parameter);
  return found ? found->seed : std::nullopt;
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
                                 const std::vector<Tensor>& params, std::optional<uint64_t> seed) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  auto agreement = std::make_shared<GroupAgreement>(std::move(group));
  for (size_t i = 0; i < params.size(); ++i)
    all.parameters[params[i].impl()].push_back({agreement, seed ? std::optional(*seed + i) : seed});
  amp::set_agreement_finder(find);
  optim::set_rounding_seed(find_seed);
  // The entries go with the model's parallel training, before an address can be another tensor's.
  return std::shared_ptr<void>(agreement.get(), [agreement, params](void*) {
    Registry& registered = registry();
    const std::lock_guard held(registered.mutex);
    for (const Tensor& p : params) {
      const auto found = registered.parameters.find(p.impl());
      std::erase_if(found->second, [&](const Registry::Training& one) {
        return one.agreement.lock() == agreement;
      });
      if (found->second.empty()) registered.parameters.erase(found);
    }
  });
}

std::optional<size_t> reduced_twice(const std::vector<Tensor>& params) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (size_t i = 0; i < params.size(); ++i)
    if (const auto found = all.parameters.find(params[i].impl()); found != all.parameters.end())
      if (std::count_if(found->second.begin(), found->second.end(),
                        [](const auto& one) { return one.seed.has_value(); }) > 1)
        return i;
  return {};
}

}  // namespace halftape::distributed
