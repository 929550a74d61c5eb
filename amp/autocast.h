// autocast: a region in which each op runs in the dtype that suits it. Spelled as
// torch.amp.autocast.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "halftape/amp/policy.h"
#include "halftape/autograd/tape/policy.h"
#include "halftape/core/machine/region.h"

namespace halftape::amp {

class Autocaster;

/// The settings of a region, for each device type.
struct AutocastState {
  /// The settings of one device type.
  struct PerDevice {
    bool enabled = false;                       // whether ops are cast
    Dtype dtype = Dtype::Float32;               // of ops that go fast in 16 bits
    std::shared_ptr<const Policy> policy = {};  // null: as the ops declare
  };
  /// CPU and CUDA; off, with the dtypes that PyTorch takes there.
  std::array<PerDevice, kDeviceTypes> devices = {PerDevice{false, kBFloat16},
                                                 PerDevice{false, kFloat16}};
  bool cache_enabled = true;  // keeps the casts of weights until the outermost region ends

  PerDevice& operator[](DeviceType d) { return devices[static_cast<size_t>(d)]; }
  const PerDevice& operator[](DeviceType d) const { return devices[static_cast<size_t>(d)]; }
};

/// The seam for tools, such as explain(): its note() is called for each op before the op runs.
class CastObserver {
 public:
  /// `given`: the inputs, `casts`: what the op gets instead of them. `compute_as`: the dtype to
  /// which an op converts as it computes, without casts.
  virtual void note(const CastOp& op, Cast rule, const AutocastState::PerDevice& region,
                    std::span<const Tensor* const> given, std::span<const Tensor> casts,
                    std::optional<Dtype> compute_as) = 0;

 protected:
  ~CastObserver() = default;
};

/// This thread's state, to open the same region in another thread:
///
///     std::thread([state = amp::capture(), &] {
///       amp::autocast region(state);
///       y = model->forward(x);
///     });
AutocastState capture();

/// Casts the inputs of ops: matrix products run in `dtype`, ops that need range in float32, and the
/// rest in the dtype of their inputs (docs/mixed_precision.md has the table). Parameters stay
/// float32 and receive float32 gradients. Thread-local; nests; `enabled = false` switches autocast
/// off inside an outer region.
///
///     Tensor loss;
///     { amp::autocast region(kCPU, kFloat16);  loss = F::cross_entropy(model->forward(x), y); }
///     loss.backward();   // outside: backward follows the dtypes that forward chose
///
/// dtype: kFloat16 or kBFloat16 on either device; others throw, unless enabled is false. By default
/// that of the outer region, or of set_autocast_dtype(): at first float16 on CUDA, bfloat16 on the
/// CPU.
/// cache_enabled: a float32 leaf that requires grad is cast once, until it or its cast changes, or
/// the outermost region of this thread ends. Its 16-bit copy stays with the leaf: optimizers update
/// it, and later regions use it. By default as outside the region.
/// policy: also applies to inner regions that name none.
///
/// Regions end in the thread that began them, the innermost first. One that ends while an inner one
/// is open changes nothing for that one; when the last has ended, all is as before the first. One
/// that is destroyed in another thread stays open in its own. Both warn, once per process. What the
/// backward() of a Function or the second run of a checkpoint begins ends with it at the latest.
class [[nodiscard]] autocast {
 public:
  [[nodiscard]] explicit autocast(DeviceType device, std::optional<Dtype> dtype = {},
                                  bool enabled = true, std::optional<bool> cache_enabled = {});
  [[nodiscard]] autocast(DeviceType device, std::optional<Dtype> dtype, Policy policy,
                         bool enabled = true, std::optional<bool> cache_enabled = {});
  /// The region that capture() saw, for all device types.
  [[nodiscard]] explicit autocast(const AutocastState& state);
  ~autocast();
  autocast(const autocast&) = delete;
  autocast& operator=(const autocast&) = delete;

 private:
  struct Before {
    AutocastState state;
    DtypePolicy* policy;
    uint64_t scope;  // PolicyScope::current()
  };
  void enter(const AutocastState& state);

  std::shared_ptr<Autocaster> autocaster_;
  std::optional<Region<Before>> region_;
};

// The thread's state. Autocast is off during backward, in every region.
bool is_autocast_enabled(DeviceType device);
Dtype get_autocast_dtype(DeviceType device);
bool is_autocast_cache_enabled();
// Sets the state without a region.
void set_autocast_enabled(DeviceType device, bool enabled);
/// Throws for anything but float16 and bfloat16.
void set_autocast_dtype(DeviceType device, Dtype dtype);
void set_autocast_cache_enabled(bool enabled);
/// True for a device type that autocast knows, even if this build has no backend for it.
bool is_autocast_available(DeviceType device);

/// Drops this thread's cached casts, and the 16-bit copies that leaves keep between regions (2
/// bytes per weight) in all threads.
void clear_autocast_cache();
/// The number of casts in this thread's cache.
size_t autocast_cache_size();
/// Enters and leaves a region without a guard; both return the new depth. At depth 0 the cache is
/// dropped.
int increment_autocast_nesting();
int decrement_autocast_nesting();

/// x in `dtype`, if a region is active and x is floating-point and not float64; otherwise x.
Tensor cast_if_eligible(const Tensor& x, Dtype dtype);

}  // namespace halftape::amp
