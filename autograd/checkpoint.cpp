#include "halftape/autograd/checkpoint.h"

#include <deque>
#include <mutex>
#include <optional>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/node.h"
#include "halftape/autograd/tape/policy.h"
#include "halftape/core/capture/capture.h"
#include "halftape/core/random/random.h"

namespace halftape::autograd {
namespace {

/// One checkpointed call. Its nodes save numbers instead of arrays. The arrays come from a second
/// run, in which the same ops save in the same order.
class Segment final : public SavedHooks {
 public:
  Segment(std::function<TensorList(const TensorList&)> f, const TensorList& inputs)
      : f_(std::move(f)), inputs_(inputs.begin(), inputs.end()), policy_(policy_snapshot()) {}

  TensorList first_run(const TensorList& inputs) {
    TensorList outputs = run(inputs, false);
    finished_ = true;
    return outputs;
  }

  size_t pack(const Array& saved) override {
    if (again_) {
      if (count_ < layouts_.size()) check_layout(layouts_[count_], saved);
      bytes_.push_back({saved, saved.version()});
    } else {
      layouts_.push_back({saved.shape(), saved.dtype(), saved.device()});
    }
    return count_++;
  }

  const Packed& unpack(size_t key) override {
    const std::lock_guard lock(mutex_);
    // If f itself calls backward, it asks during its second run for what that run has saved so far.
    if (bytes_.empty() && !again_) run_again();
    if (key >= bytes_.size()) other_work();
    return bytes_[key];
  }

 private:
  /// Of an array that the first run saved.
  struct Layout {
    Shape shape;
    Dtype dtype;
    Device device;
  };

  /// What an input was. A tensor that may get a history from here, by a write in place, is not
  /// held: it would hold itself.
  struct Input {
    explicit Input(const Tensor& t) {
      if (!t.defined()) return;
      version = t.version();
      times_set = t.impl()->times_set;
      if (t.requires_grad() && t.is_leaf()) {
        leaf = t;
        return;
      }
      array = t.array();
      if (t.requires_grad()) edge = t.gradient_edge();
    }
    Tensor tensor() const {
      if (!array.defined()) return leaf;
      Tensor again(array);
      again.impl()->history = edge;
      return again;
    }
    bool is_as_it_was(const Tensor& x) const {
      return !x.defined() ||
             (x.version() == version && (!leaf.defined() || x.impl()->times_set == times_set));
    }
    uint64_t version = 0;
    uint32_t times_set = 0;  // other bytes may have the same version
    Tensor leaf;
    Array array;
    Edge edge;
  };

  TensorList run(const TensorList& inputs, bool again) {
    const Scope hooks(this);
    const DrawScope drawn(draws_, again);
    return f_(inputs);
  }

  [[noreturn]] void other_work() const {
    halftape::detail::fail("checkpoint: the function saved ", layouts_.size(),
                           " tensors the first time, and ", bytes_.size(),
                           " when it ran again; it must do the same work");
  }
  static void check_layout(const Layout& first, const Array& saved) {
    HALFTAPE_CHECK(first.shape == saved.shape() && first.dtype == saved.dtype() &&
                       first.device == saved.device(),
                   "checkpoint: the function saved a tensor ", first.dtype, " ", first.shape,
                   " on ", first.device, " the first time, and ", saved.dtype(), " ", saved.shape(),
                   " on ", saved.device(), " when it ran again; it must do the same work");
  }

  void run_again() {
    TensorList inputs;
    for (const Input& input : inputs_) {
      const Tensor x = input.tensor();
      HALFTAPE_CHECK(input.is_as_it_was(x), "checkpoint: input ", inputs.size(), " of shape ",
                     x.sizes(),
                     " was changed in place after the call; clone() it before the change");
      inputs.push_back(x);
    }
    const AutoGradMode recording(true);
    // A copy for this run alone, so that its cached casts end with the run.
    const std::shared_ptr<DtypePolicy> policy = policy_ ? policy_->snapshot() : nullptr;
    const PolicyScope region(policy.get());
    // What it draws beyond the log, before the first run has ended, that one draws, too.
    std::optional<RandomScope> own;
    if (!Capture::active()) own.emplace(get_random_state());
    const ScopedValue again(again_, true);
    const ScopedValue<size_t> counted(count_, 0);  // f may still be in its first run
    try {
      run(inputs, true);
      if (finished_ && bytes_.size() != layouts_.size()) other_work();
    } catch (...) {
      bytes_.clear();
      throw;
    }
  }

  std::recursive_mutex mutex_;
  std::function<TensorList(const TensorList&)> f_;
  std::vector<Input> inputs_;
  std::shared_ptr<DtypePolicy> policy_;
  DrawLog draws_;
  bool again_ = false, finished_ = false;  // whether it runs again; the first run has ended
  size_t count_ = 0;
  std::vector<Layout> layouts_;
  std::deque<Packed> bytes_;  // which stay where they are as it grows
};

}  // namespace

TensorList checkpoint(const std::function<TensorList(const TensorList&)>& f,
                      const TensorList& inputs) {
  if (!GradMode::is_enabled()) return f(inputs);
  return make_ref<Segment>(f, inputs)->first_run(inputs);
}

Tensor checkpoint(const std::function<Tensor(const TensorList&)>& f, const TensorList& inputs) {
  return checkpoint([f](const TensorList& x) { return TensorList{f(x)}; }, inputs)[0];
}

}  // namespace halftape::autograd
