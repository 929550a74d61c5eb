#include "halftape/autograd/tape/implicit_one.h"

#include <map>
#include <mutex>
#include <tuple>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/core/capture/capture.h"
#include "halftape/core/contract/backend.h"

namespace halftape::autograd {
namespace {

/// For each device and dtype; made once.
class Ones {
 public:
  static Ones& all() {
    static auto* own = new Ones;  // NOLINT: outlives every static tensor
    return *own;
  }
  Tensor of(Device device, Dtype dtype) {
    const std::lock_guard lock(mutex_);
    One& one = made_[{device.type(), device.index(), dtype}];
    if (!one.unchanged()) {
      const LastingState stays;
      const InferenceMode off(false);  // a later graph may save it
      one.tensor = Tensor(full({}, 1, dtype, device));
      one.version = one.tensor.version();
      backend(device).synchronize();  // every stream and thread may read it
    }
    return one.tensor;
  }
  bool is(const Tensor& g) {
    const std::lock_guard lock(mutex_);
    const auto found = made_.find({g.device().type(), g.device().index(), g.dtype()});
    return found != made_.end() && found->second.unchanged() &&
           found->second.tensor.array().buffer() == g.array().buffer();
  }

 private:
  struct One {
    Tensor tensor;
    uint64_t version = 0;
    /// False once a hook has written the tensor that it was given.
    bool unchanged() const { return tensor.defined() && tensor.version() == version; }
  };
  std::mutex mutex_;
  std::map<std::tuple<DeviceType, DeviceIndex, Dtype>, One> made_;
};

}  // namespace

Tensor implicit_one(Device device, Dtype dtype) { return Ones::all().of(device, dtype); }
bool is_implicit_one(const Tensor& g) { return Ones::all().is(g); }
Tensor writable(const Tensor& g) {
  // Expanded to more elements it cannot be written to in place.
  return g.numel() == 1 && is_implicit_one(g) ? g.clone() : g;
}

}  // namespace halftape::autograd
