// The seam for tools that look at the numbers of a training step: the values of recorded ops, and
// the gradients of their inputs. Without a watcher it costs one load per recorded op and per rule.
#pragma once
#include <atomic>

#include "halftape/autograd/tape/node.h"
#include "halftape/core/machine/shared.h"

namespace halftape {

namespace detail {
/// How many look at the tape as it is written and run: ValueWatcher scopes, and anomaly mode.
HALFTAPE_SHARED inline std::atomic<int> tape_watchers{0};
inline bool tape_is_watched() { return tape_watchers.load(std::memory_order_relaxed) > 0; }
// Each calls the function of that name of this thread's watcher, if there is one.
void show_made(const Node& node, const Array& value);
void show_made_inside(const char* op, const Tensor& weight, const Array& value);
void show_derived_inside(const Node& node, size_t weight, const Array& gradient);
}  // namespace detail

class ValueWatcher {
 public:
  virtual ~ValueWatcher() = default;
  /// An op recorded `node`, and gave this value. Not called for views.
  virtual void made(const Node& node, const Array& value) = 0;
  /// The rule of `node` gave the gradients of its inputs: gradients[i] goes to node.next[i].
  virtual void derived(const Node& node, const Grads& gradients) = 0;
  /// Several gradients of outputs of `node` arrived, and these are their sums.
  virtual void added(const Node& node, const Grads& sums) = 0;
  // Of ops that are several layers in one, such as mlp().
  /// The output of the layer with that weight, which is not the last one.
  virtual void made_inside(const char* op, const Edge& weight, const Array& value) = 0;
  /// The gradient of the output of the layer whose weight is input `weight` of the node, by the
  /// rule of the layer after it.
  virtual void derived_inside(const Node& node, size_t weight, const Array& gradient) = 0;

  /// This thread's; null: none.
  static ValueWatcher* current();
  /// Sets the thread's watcher for a scope; null: none.
  class [[nodiscard]] Scope : ScopedValue<ValueWatcher*> {
   public:
    [[nodiscard]] explicit Scope(ValueWatcher* watcher);
    ~Scope() { --detail::tape_watchers; }
  };
};

}  // namespace halftape
