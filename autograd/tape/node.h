// One recorded operation, what it saved, and where its gradients go.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "halftape/autograd/tape/leaf_slots.h"
#include "halftape/autograd/tensor.h"
#include "halftape/core/machine/free_list.h"

namespace halftape {

/// Gradients of a node's outputs or inputs. An undefined Tensor means zero.
using Grads = std::vector<Tensor>;

/// A way from a node to the tensor whose gradient it fills. The tensor owns the node, so the node
/// must not own the tensor: the way is cut when the tensor dies.
class GradSlot {
 public:
  explicit GradSlot(detail::TensorImpl* owner) : owner_(owner) {}
  void cut();
  /// f(the tensor's gradient), unless the tensor is gone. One thread at a time: two may run
  /// backward over graphs that share a leaf.
  void with(const std::function<void(Tensor& grad)>& f);
  /// The tensor itself, undefined when it is gone.
  Tensor owner();

 private:
  std::mutex mutex_;
  detail::TensorImpl* owner_;
};

/// The ways onward of a node. Two have room in it, as nearly every op has no more inputs.
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
  std::vector<Edge> many_;  // all of them, where there are more than two
  size_t size_ = 0;
};

/// A recorded operation. `seq` counts creations, and the ends of the tape at leaves come before all
/// of them, so that descending seq is a topological order of any graph. No two nodes have the same.
class Node : public RefCounted, public FreeListed {
 public:
  explicit Node(const char* name);
  virtual ~Node();
  /// Gradients of the inputs from those of the outputs, written in Tensor operations; one for each
  /// `next`.
  virtual Grads vjp(Grads g) = 0;
  /// Drops what was saved (backward without retain_graph). Using the node afterwards throws.
  virtual void release() = 0;

  /// The op, as its function is called.
  const char* name() const { return name_; }
  uint64_t seq() const { return seq_; }
  /// Does input i want a gradient?
  bool wants(size_t i) const {
    return next[i] && (!wanted || wanted->count(next[i].node.get()) > 0);
  }
  /// In which dtype the gradient of input i loses nothing: float32 for what was cast to 16 bits
  /// from more, else the input's own.
  Dtype finest(size_t i) const {
    const Output& o = next[i].node->output(next[i].output);
    return o.wide ? kFloat32 : o.dtype;
  }
  /// For a scope: the only nodes that gradients are to reach. Null: all.
  class [[nodiscard]] Wanted {
   public:
    explicit Wanted(const std::unordered_set<Node*>* nodes)
        : before_(std::exchange(wanted, nodes)) {}
    ~Wanted() { wanted = before_; }
    Wanted(const Wanted&) = delete;
    Wanted& operator=(const Wanted&) = delete;

   private:
    const std::unordered_set<Node*>* before_;
  };

  Edges next;  // one per input

  /// The layout of a forward output: gradients arrive in this shape and dtype. Where `wide`, those
  /// in float32 are not rounded to it: a cast would only widen them again.
  struct Output {
    Shape shape;
    Dtype dtype = Dtype::Float32;
    Device device = kCPU;
    bool wide = false;
  };
  Output first;                // nearly every op has one output
  std::vector<Output> others;  // those after it
  const Output& output(uint32_t i) const { return i == 0 ? first : others[i - 1]; }

  /// What users hang on the node; most nodes have none.
  struct Extras {
    using Hook = std::function<Tensor(const Tensor&)>;
    std::vector<std::pair<uint32_t, Hook>> hooks;  // see a gradient first …
    std::vector<std::pair<uint32_t, std::shared_ptr<GradSlot>>> retained;  // … then it is kept
    std::string origin;  // where the op was called, in anomaly mode
  };
  Extras& extras();
  const Extras* has_extras() const { return extras_.get(); }
  /// Runs the hooks on arrived gradients, and keeps those that a tensor retains. Both see them in
  /// the tensor's dtype; what no hook changes goes on as it came.
  void announce(Grads& g) const;

  static int64_t live_count();

 protected:
  uint64_t seq_;

 private:
  friend void dispose(Node* node) noexcept;
  static inline thread_local const std::unordered_set<Node*>* wanted = nullptr;
  const char* name_;
  std::unique_ptr<Extras> extras_;
  Node* waiting_ = nullptr;  // the next node to be deleted
};

/// Nodes are released through a work list, so that a chain of a million does not recurse.
void dispose(Node* node) noexcept;

/// The end of the tape at a leaf: adds what arrives to the leaf's grad().
class Accumulate final : public Node {
 public:
  explicit Accumulate(detail::TensorImpl* leaf);
  Grads vjp(Grads g) override;
  void release() override {}
  /// The leaf is gone: later gradients have nowhere to go.
  void detach_leaf() { slot_.cut(); }
  std::vector<std::function<void(Tensor)>> after;  // hooks that see the leaf once it has its sum
  Ref<LeafSlots> slots;                            // of a leaf in flat storage, else null

 private:
  void add_to(Tensor& grad, const Tensor& g) const;
  GradSlot slot_;
};
/// grad ← grad + g, with bytes of its own, in place where nobody can notice.
void accumulate(Tensor& grad, const Tensor& g);

/// Takes over what nodes save while it is installed, to give it back when a rule asks (PyTorch's
/// saved_tensors_hooks). Bytes of leaves and of inputs that are kept anyway are not offered.
class SavedHooks : public RefCounted {
 public:
  virtual ~SavedHooks() = default;
  /// A key for the bytes.
  virtual size_t pack(const Array& saved) = 0;
  virtual Array unpack(size_t key) = 0;

  static SavedHooks* current();
  /// Installs hooks for a scope; null: none.
  class [[nodiscard]] Scope {
   public:
    explicit Scope(SavedHooks* hooks);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    SavedHooks* before_;
  };
};

/// A tensor kept for the backward pass: its bytes as they were (checked by version) and where its
/// gradient goes. It does not hold the Tensor itself, which after an in-place op would own the node
/// that owns this.
class Saved {
 public:
  Saved() = default;
  /// An input of the op.
  explicit Saved(const Tensor& input);
  /// The op's own output: its history is the node itself and is hung back on when the rule runs.
  explicit Saved(const Array& output, uint32_t number = 0);
  /// Saved when `wanted`, otherwise empty.
  static Saved if_wanted(bool wanted, const Tensor& input) {
    return wanted ? Saved(input) : Saved();
  }
  bool defined() const { return hooks_ || array_.defined(); }
  /// The bytes; throws when they were changed in place since they were saved.
  const Array& array(const Node& by) const;
  /// The tensor with its history.
  Tensor tensor(Node& by) const;

 private:
  void pack();

  mutable Array array_;
  Edge edge_;  // without node: the number of the node's own output
  mutable uint64_t version_ = 0;
  bool output_ = false;
  mutable Ref<SavedHooks> hooks_;  // who has the bytes, until they are asked for
  size_t key_ = 0;
};

/// Stands where other ops have a Saved: a sum's derivatives need neither input.
struct NeverSaved {
  static NeverSaved if_wanted(bool, const Tensor&) { return {}; }
  static bool defined() { return false; }
  static Tensor tensor(Node&) { return {}; }
};

}  // namespace halftape
