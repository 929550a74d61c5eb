// Joins neighbouring calls of a captured step, so that a device can do them at once.
#pragma once
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "halftape/core/contract/forwarding_backend.h"

namespace halftape {

/// Passes calls on, but holds some back until the next call shows whether the two belong together;
/// then both go on in one Backend::run(). The neighbours, in the order in which they come:
///
///     CrossEntropy with a mean, CheckedScale of the mean
///     MlpLoss with a loss, CheckedScale of the loss, GradientCheck of the MLP's gradients
///     GradientCheck that divides, ListNorm of the same gradients
///     GradientCheck that only divides, ListUpdate of these gradients: a clip of the update
///     ListUpdate, Transition by what stopped the update
///
/// Call settle() at the end: a call that is still held back would be lost.
///
/// No one can see that a call was held back. Versions are raised when the call comes, and its
/// results are as unique as if they were computed. Their memory is kept until then, though nobody
/// else may want them any more: what is allocated meanwhile must not lie there.
class FusedCalls final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  /// Passes on the call that is held back.
  void settle();

  void cross_entropy(const CrossEntropy& c) override;
  void check(const GradientCheck& c) override;
  void list_norm(const ListNorm& n) override;
  void update(std::span<const UpdateSlot> slots, const UpdateRule& rule,
              const StepControl& control) override;
  void transition(const Transition& t) override;
  bool try_fused(std::span<const Call> calls) override;

 private:
  /// Keeps memory that a held call writes, without being seen by Buffer::unique().
  class Kept {
   public:
    Kept() = default;
    Kept(Kept&& other) noexcept : all_(std::exchange(other.all_, {})) {}
    Kept& operator=(Kept&& other) noexcept {
      std::swap(all_, other.all_);
      return *this;
    }
    ~Kept();
    void add(const Array& a);

   private:
    struct Memory {
      BufferPtr buffer;
      bool uncounted;  // by unique(), unless another call holds it, too
    };
    std::vector<Memory> all_;
  };
  struct Mlp {
    MlpLoss task;
    std::optional<CheckedScale> scaling;
  };
  struct Check {
    std::vector<Array> grads;
    Array inv_scale = {}, found_inf = {}, first = {};
    bool clips() const { return !found_inf.defined() && !first.defined(); }
    void pass_on(Backend& to) const;
  };
  struct Update {
    std::vector<UpdateSlot> slots;
    UpdateRule rule;
    StepControl control;
    Check clip = {};  // of gradients that no update has taken yet
  };
  void before(const std::string&, const Touched&) override { settle(); }
  template <class... A>
  void make_stand_ins(A&... arrays);
  void make_stand_ins(std::vector<Array>& list);
  bool hold(const MlpLoss& m);
  bool scale(const CheckedScale& s);
  bool check_mlp(const GradientCheck& c);
  void take_clip(Update& update);

  std::variant<std::monostate, CrossEntropy, Mlp, Check, Update> held_;
  Kept kept_;  // what held_ writes
};

}  // namespace halftape
