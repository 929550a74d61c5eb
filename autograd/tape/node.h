// One recorded operation, what it saved, and where its gradients go.
#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "halftape/autograd/tensor.h"
#include "halftape/core/machine/free_list.h"
#include "halftape/core/machine/scoped_value.h"
#include "halftape/core/machine/shared.h"

namespace halftape {

/// Gradients of a node's outputs or inputs. An undefined Tensor means zero.
using Grads = std::vector<Tensor>;

/// A node's pointer to the tensor whose gradient it fills. The tensor owns the node, so the node
/// must not own the tensor: the tensor cuts the pointer when it dies.
class GradSlot {
 public:
  explicit GradSlot(detail::TensorImpl* owner) : owner_(owner) {}
  void cut() { set_owner(nullptr); }
  void set_owner(detail::TensorImpl* owner);
  /// The gradient is the one that `former` had.
  void take_over(const GradSlot& former) { filled_in_ = former.filled_in_; }
  /// Calls f with the tensor's gradient, unless the tensor is gone. One thread at a time, and one
  /// queue of a device: two may run backward over graphs that share a leaf. Of a Graph, replay()
  /// does not come by here.
  void with(const std::function<void(Tensor& grad)>& f);
  /// The tensor itself, undefined when it is gone.
  Tensor owner();

 private:
  std::mutex mutex_;
  detail::TensorImpl* owner_;
  void* filled_in_ = nullptr;  // the queue of a device that wrote the gradient last
};

/// The edges of a node, one for each input. Two are stored inline: few ops have more inputs.
class Edges {
 public:
  size_t size() const { return size_; }
  const Edge* begin() const { return size_ <= few_.size() ? few_.data() : many_.data(); }
  const Edge* end() const { return begin() + size_; }
  const Edge& operator[](size_t i) const { return begin()[i]; }
  void push_back(Edge edge) {
    if (size_ == few_.size()) many_.assign(few_.begin(), few_.end());
    if (size_ < few_.size())
      few_[size_] = std::move(edge);
    else
      many_.push_back(std::move(edge));
    ++size_;
  }
  void clear() { *this = Edges(); }

 private:
  std::array<Edge, 2> few_;
  std::vector<Edge> many_;  // all edges, if there are more than two
  size_t size_ = 0;
};

/// A recorded operation. seq() counts creations and is unique; that of an Accumulate is below that
/// of every operation. So descending seq() is a topological order of any graph.
class Node : public RefCounted, public FreeListed {
 public:
  /// `saves`: whether release() drops anything.
  explicit Node(const char* name, bool saves = false);
  virtual ~Node();
  /// The vector-Jacobian product: gradients of the inputs, one for each `next`, from those of the
  /// outputs. Written in Tensor operations.
  virtual Grads vjp(Grads g) = 0;
  /// vjp() in a backward pass. The `last` pass over a graph drops what the node saved: a later run
  /// throws, and so does one in another thread meanwhile.
  Grads run(Grads&& g, bool last);

  /// The op's name, as its function is called.
  const char* name() const { return name_; }
  uint64_t seq() const { return seq_; }
  /// True for an Accumulate.
  bool is_leaf() const { return seq_ < kOps; }
  /// True if input i wants a gradient.
  bool wants(size_t i) const {
    return next[i] && (!wanted || wanted->count(next[i].node.get()) > 0);
  }
  /// The dtype in which the gradient of input i loses nothing: float32 if the input was cast to 16
  /// bits from a wider dtype, else the input's own.
  Dtype finest(size_t i) const {
    const Output& o = next[i].node->output(next[i].output);
    return o.wide ? kFloat32 : o.dtype;
  }
  /// For a scope: the only nodes that gradients have to reach; null for all.
  class [[nodiscard]] Wanted : ScopedValue<const std::unordered_set<Node*>*> {
   public:
    [[nodiscard]] explicit Wanted(const std::unordered_set<Node*>* nodes)
        : ScopedValue(wanted, nodes) {}
  };

  Edges next;  // one per input

  /// The layout of a forward output: gradients arrive in this shape and dtype. Where `wide`, a
  /// float32 gradient is not rounded to dtype: the cast below would only widen it again.
  struct Output {
    Shape shape;
    Dtype dtype = Dtype::Float32;
    Device device = kCPU;
    bool wide = false;
  };
  Output first;                // nearly every op has one output
  std::vector<Output> others;  // further outputs
  const Output& output(uint32_t i) const { return i == 0 ? first : others[i - 1]; }

  /// Hooks and the like, which most nodes do not have.
  struct Extras {
    struct Hook {
      unsigned number;
      uint32_t output;
      std::function<Tensor(const Tensor&)> call;  // null: taken back
    };
    std::vector<Hook> hooks;                                               // run first
    std::vector<std::pair<uint32_t, std::shared_ptr<GradSlot>>> retained;  // of retain_grad()
    std::string origin;  // what call_site() returned, in anomaly mode
    std::string place;   // of the module that called the op, while the tape is watched
  };
  Extras& extras();
  /// Where anomaly mode saw the op called; empty if it was off.
  std::string origin() const { return extras_ ? extras_->origin : ""; }
  /// The path of the module that called the op, "encoder.fc2"; empty outside of modules, and unless
  /// a ValueWatcher or anomaly mode was there.
  std::string_view place() const { return extras_ ? extras_->place : std::string_view(); }
  /// Runs the hooks on the gradients that have arrived, and stores the retained ones. Both get a
  /// gradient in the tensor's dtype. `g` changes only where a hook returns another gradient, or
  /// writes to the one that it gets, which nobody else has.
  void run_hooks(Grads& g) const;

  static int64_t live_count();

 protected:
  virtual void release() {}
  /// Makes this the youngest node. Before any edge leads to it.
  void renumber();
  uint64_t seq_;
  bool saves_;

 private:
  friend void dispose(Node* node) noexcept;
  void note_call();
  static constexpr uint64_t kOps = uint64_t{1} << 63;  // the first seq of operations
  friend class Accumulate;
  static constexpr int32_t kReleased = -1;
  std::atomic<int32_t> runs_{0};  // that are in progress, of a node that saves; or kReleased
  HALFTAPE_SHARED static inline thread_local const std::unordered_set<Node*>* wanted = nullptr;
  const char* name_;
  std::unique_ptr<Extras> extras_;
  Node* waiting_ = nullptr;  // the next node to be deleted
};

/// Releases nodes through a work list, so that a chain of a million does not recurse.
void dispose(Node* node) noexcept;

/// Where a leaf in flat storage keeps its gradient and its 16-bit copy, beside those of other
/// leaves. Implemented in optim/state/flat_storage.h; thread-safe.
class LeafSlots : public RefCounted {
 public:
  virtual ~LeafSlots() = default;
  /// Uninitialised bytes of the leaf's shape and dtype for its gradient. Undefined while another
  /// array has them.
  virtual Array gradient() = 0;
  /// The same for a 16-bit copy of the leaf.
  virtual Array low_copy(Dtype dtype) = 0;
};

/// The end of the tape at a leaf: adds incoming gradients to the leaf's grad().
class Accumulate final : public Node {
 public:
  explicit Accumulate(detail::TensorImpl* leaf);
  Grads vjp(Grads g) override;
  /// Called when the leaf dies or is to have no gradient: later gradients are dropped.
  void detach_leaf() { slot_.cut(); }
  /// The leaf takes gradients again; false if by now it has another shape, dtype or device.
  bool attach_leaf(detail::TensorImpl* leaf);
  /// Takes over hooks and place of the one that the leaf had before.
  void take_over(Accumulate& former);
  struct Hook {
    unsigned number;
    std::function<void(Tensor)> call;  // null: taken back
  };
  std::vector<Hook> after;  // they get the leaf once grad() is there
  Ref<LeafSlots> slots;     // of a leaf in flat storage, else null

 private:
  void add_to(Tensor& grad, const Tensor& g) const;
  GradSlot slot_;
};
/// grad ← grad + g, in bytes of its own. In place, unless a recorded graph may need the old bytes.
void accumulate(Tensor& grad, const Tensor& g);

/// While installed, stores the tensors that nodes save, and gives them back when a rule asks (as
/// PyTorch's saved_tensors_hooks). Leaves are not offered: they are kept anyway.
class SavedHooks : public RefCounted {
 public:
  virtual ~SavedHooks() = default;
  /// Stores the array; unpack() gets the key.
  virtual size_t pack(const Array& saved) = 0;
  /// An array, and the version that it had when it was saved.
  struct Packed {
    Array array;
    uint64_t version;
  };
  /// Valid while these hooks live. Thread-safe.
  virtual const Packed& unpack(size_t key) = 0;

  static SavedHooks* current();
  /// Installs hooks for a scope; null: none.
  class [[nodiscard]] Scope : ScopedValue<SavedHooks*> {
   public:
    [[nodiscard]] explicit Scope(SavedHooks* hooks);
  };
};

/// A tensor kept for the backward pass: its array, the version to check against, and its gradient
/// edge. It does not hold the Tensor itself, which after an in-place op would own the node that
/// owns this Saved.
class Saved {
 public:
  Saved() = default;
  /// An input of the op.
  explicit Saved(const Tensor& input);
  /// The op's own output number `number`: tensor() gives it the node as its history.
  explicit Saved(const Array& output, uint32_t number = 0);
  /// Saved if `wanted`, otherwise empty.
  static Saved if_wanted(bool wanted, const Tensor& input) {
    return wanted ? Saved(input) : Saved();
  }
  bool defined() const { return hooks_ || array_.defined(); }
  /// The array; throws if it was changed in place since it was saved.
  const Array& array(const Node& by) const;
  /// The tensor with its history.
  Tensor tensor(Node& by) const;

 private:
  void pack();

  Array array_;
  Edge edge_;  // of an own output: null node, and the output's number
  uint64_t version_ = 0;
  bool output_ = false;
  Ref<SavedHooks> hooks_;  // null, or has the array
  size_t key_ = 0;
};

/// In place of Saved where a rule needs no input, as that of a sum.
struct NeverSaved {
  static NeverSaved if_wanted(bool, const Tensor&) { return {}; }
  static bool defined() { return false; }
  static Tensor tensor(Node&) { return {}; }
};

}  // namespace halftape
