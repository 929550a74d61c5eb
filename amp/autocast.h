// autocast: inside its scope every op runs in the dtype that its nature allows. Spelled as
// torch.amp.autocast.
#pragma once
#include <array>
#include <optional>

#include "halftape/autograd/policy.h"

namespace halftape::amp {

/// The switches of one device type.
struct AutocastState {
  bool enabled = false;
  Dtype dtype = Dtype::Float32;
};

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
/// changes or the outermost region of this thread ends.
class [[nodiscard]] autocast {
 public:
  explicit autocast(DeviceType device, std::optional<Dtype> dtype = {}, bool enabled = true,
                    std::optional<bool> cache_enabled = {});
  ~autocast();
  autocast(const autocast&) = delete;
  autocast& operator=(const autocast&) = delete;

 private:
  std::array<AutocastState, kDeviceTypes> before_;
  bool cache_before_;
  std::optional<PolicyScope> scope_;
};

/// The thread's state, as a region set it.
bool is_autocast_enabled(DeviceType device);
Dtype get_autocast_dtype(DeviceType device);
bool is_autocast_cache_enabled();
/// Drops the thread's cached casts.
void clear_autocast_cache();
/// How many casts the thread's cache holds.
size_t autocast_cache_size();

}  // namespace halftape::amp
