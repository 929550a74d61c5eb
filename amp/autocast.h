// autocast: inside its scope every op runs in the dtype that its nature allows. Spelled as
// torch.amp.autocast.
#pragma once
#include <array>
#include <memory>
#include <optional>

#include "halftape/amp/policy.h"
#include "halftape/autograd/tape/policy.h"

namespace halftape::amp {

class Autocaster;

/// What a region sets: the switches of each device type, and one for the cache.
struct AutocastState {
  struct PerDevice {
    bool enabled = false;
    Dtype dtype = Dtype::Float32;
    std::shared_ptr<const Policy> policy = {};  // null: as the ops declare
  };
  std::array<PerDevice, kDeviceTypes> devices = {PerDevice{false, kBFloat16},
                                                 PerDevice{false, kFloat16}};
  bool cache_enabled = true;

  PerDevice& operator[](DeviceType d) { return devices[static_cast<size_t>(d)]; }
  const PerDevice& operator[](DeviceType d) const { return devices[static_cast<size_t>(d)]; }
};

/// The state of this thread, for a task that is to run as if it stood here:
///
///     std::thread([state = amp::capture(), &] {
///       amp::autocast region(state);
///       y = model->forward(x);
///     });
AutocastState capture();

/// A region in which ops are cast by their nature: matrix products run in `dtype`, range-hungry ops
/// in float32, the rest in what they are given (docs/mixed_precision.md has the table). Parameters
/// stay float32 and receive float32 gradients. Thread-local; nests; `enabled = false` opens a hole
/// in an outer region.
///
///     Tensor loss;
///     { amp::autocast region(kCPU, kFloat16);  loss = F::cross_entropy(model->forward(x), y); }
///     loss.backward();   // outside: backward follows the dtypes that forward chose
///
/// dtype: kFloat16 or kBFloat16 on either device; by default float16 on CUDA, bfloat16 on the CPU.
/// Others throw. cache_enabled: each float32 leaf that requires grad is cast once and used until it
/// changes or the outermost region of this thread ends, and its 16-bit copy stays with it, for
/// optimizers to write along and for later regions; by default as around the region. policy: also
/// for regions inside that name none.
class [[nodiscard]] autocast {
 public:
  explicit autocast(DeviceType device, std::optional<Dtype> dtype = {}, bool enabled = true,
                    std::optional<bool> cache_enabled = {});
  autocast(DeviceType device, std::optional<Dtype> dtype, Policy policy, bool enabled = true,
           std::optional<bool> cache_enabled = {});
  /// A region as it was where `state` was captured, for all device types.
  explicit autocast(const AutocastState& state);
  ~autocast();
  autocast(const autocast&) = delete;
  autocast& operator=(const autocast&) = delete;

 private:
  void enter(const AutocastState& state);

  Autocaster* by_ = nullptr;
  AutocastState before_;
  DtypePolicy* policy_before_ = nullptr;
};

// The thread's state, as a region sets it. In backward autocast is off, whatever region the call
// stands in.
bool is_autocast_enabled(DeviceType device);
Dtype get_autocast_dtype(DeviceType device);
bool is_autocast_cache_enabled();
// The same without a region, for programs that manage the state themselves.
void set_autocast_enabled(DeviceType device, bool enabled);
/// Throws for anything but float16 and bfloat16.
void set_autocast_dtype(DeviceType device, Dtype dtype);
void set_autocast_cache_enabled(bool enabled);
/// Does autocast know this type of device? It may know one that this build has no backend for.
bool is_autocast_available(DeviceType device);

/// Drops the thread's cached casts, and the 16-bit copies that leaves keep between regions, of all
/// threads: 2 bytes per weight.
void clear_autocast_cache();
/// How many casts the thread's cache holds.
size_t autocast_cache_size();
/// Counts a region that nobody opened, and closes it; both give the depth. At 0 the cache is
/// dropped.
int increment_autocast_nesting();
int decrement_autocast_nesting();

/// x as a region would cast it for an op of this dtype: where it stands in a region, is floating,
/// and not float64. Otherwise x itself.
Tensor cast_if_eligible(const Tensor& x, Dtype dtype);

}  // namespace halftape::amp
