// One recorded operation, what it saved, and where its gradients go.
#pragma once
#include <mutex>
#include <optional>
#include <vector>

#include "halftape/autograd/tensor.h"

namespace halftape {

/// Gradients of a node's outputs or inputs. An undefined Tensor means zero.
using Grads = std::vector<Tensor>;

/// A recorded operation. `seq` counts creations, so that descending seq is a topological order of
/// any graph.
class Node : public RefCounted {
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
  bool wants(size_t i) const { return static_cast<bool>(next[i]); }

  std::vector<Edge> next;  // one per input
  // The forward output's layout: gradients arrive in this shape and dtype.
  Shape shape;
  Dtype dtype = Dtype::Float32;

  static int64_t live_count();

 protected:
  uint64_t seq_;

 private:
  friend void dispose(Node* node) noexcept;
  const char* name_;
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
  void detach_leaf();

 private:
  std::mutex mutex_;          // two threads may run backward over graphs that share this leaf
  detail::TensorImpl* leaf_;  // not owned: the leaf owns this node
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
  explicit Saved(const Array& output);
  /// Saved when `wanted`, otherwise empty.
  static Saved if_wanted(bool wanted, const Tensor& input) {
    return wanted ? Saved(input) : Saved();
  }

  bool defined() const { return array_.defined(); }
  /// The bytes; throws when they were changed in place since they were saved.
  const Array& array(const Node& by) const;
  /// The tensor with its history.
  Tensor tensor(Node& by) const;

 private:
  Array array_;
  Edge edge_;
  uint64_t version_ = 0;
  bool output_ = false;
};

}  // namespace halftape
