// The DtypePolicy through which autocast casts the inputs of ops; internal.
#pragma once
#include <map>
#include <memory>
#include <utility>

#include "halftape/amp/autocast.h"

namespace halftape::amp {

/// A leaf's values in another dtype, without a graph node. Each use records a cast of its own:
/// gradients of several uses are then added in float32, and a cast made under NoGradGuard serves a
/// later recorded use.
struct CachedCast {
  Tensor leaf;  // keeps the key's address from being reused
  Array source, lowered;
  uint64_t version = 0, lowered_version = 0;
  void* queue = nullptr;  // of the device, in which it was cast
};

class Autocaster final : public DtypePolicy, public std::enable_shared_from_this<Autocaster> {
 public:
  AutocastState state;
  int nesting = 0;          // regions that are open
  int entered_by_call = 0;  // those of them that increment_autocast_nesting() began
  std::map<std::pair<const detail::TensorImpl*, Dtype>, CachedCast> cache;
  CastObserver* observer = nullptr;
  bool to_float32 = false;  // regions cast to float32 alone, for a tool that compares with that
  bool carried = false;     // a snapshot, whose settings inner regions take even where it is off

  /// This thread's: its own, or one that a checkpoint or a custom function brought along.
  static Autocaster& current();
  /// The same for a region. A carried one lives as long as somebody holds it.
  static std::shared_ptr<Autocaster> hold();
  /// True in the destructors of statics, which outlive their thread's own.
  static bool outlived(const Autocaster* a);
  /// Null when the policy is off, as in backward.
  static Autocaster* active() { return dynamic_cast<Autocaster*>(dtype_policy()); }

  /// Makes this the thread's policy, or none if every device is disabled. Whether a carried one is
  /// the policy only the scope decides that carried it.
  void install();

  std::optional<Dtype> cast(const CastOp& op, std::span<const Tensor* const> given,
                            std::span<Tensor> casts) override;
  std::shared_ptr<DtypePolicy> snapshot() const override;

  const AutocastState::PerDevice& region_of(const Tensor& x) const {
    return state[x.device().type()];
  }
  /// Floating, not float64, on a device with a region.
  bool eligible(const Tensor& x) const {
    return x.defined() && x.is_floating_point() && x.dtype() != kFloat64 && region_of(x).enabled;
  }
  /// x in `target`, from the cache if x is a float32 leaf that requires grad.
  Tensor cached(const Tensor& x, Dtype target);
};

}  // namespace halftape::amp
