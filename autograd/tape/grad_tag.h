// Marks on gradients. A rule marks the backward pass that it runs in, and every gradient that the
// pass adds to a leaf keeps the mark until its bytes change. amp marks the gradients of a scaled
// loss; autograd carries and adds marks without knowing their meaning. backward() never throws
// because of a mark: the call that uses the gradient does.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "halftape/autograd/tensor.h"

namespace halftape {

class GradTag : public RefCounted {
 public:
  virtual ~GradTag() = default;
  /// What a call needs: true gradients, or gradients whose terms may all have been scaled alike.
  enum class Use : uint8_t { Unscaled, Scaled };
  /// Why `call` must not use a gradient with this mark, and the way out. Empty if it may.
  virtual std::string objection(std::string_view call, Use use) const = 0;
  /// The mark of the sum of a gradient with this mark and one with `other` (null: no mark): one
  /// of the two if they agree, else one that objects to every use. Symmetric in meaning.
  virtual Ref<GradTag> plus(const Ref<GradTag>& other) = 0;

  /// Keeps marks from now on, in all threads. Before that they cost a branch.
  static void enable();
  /// The mark of `grad` plus a gradient of the pass in progress. Empty while no marks are kept.
  static std::optional<Ref<GradTag>> of_sum(const Tensor& grad);
  /// Marks the pass in progress, or adds to the mark that it has.
  static void mark_pass(Ref<GradTag> tag);
  /// For the scope of one pass, at whose end its mark is gone. A pass within a pass, as in a
  /// checkpoint, inherits the outer mark.
  class [[nodiscard]] Pass {
   public:
    [[nodiscard]] Pass();
    [[nodiscard]] explicit Pass(Ref<GradTag> inherited);
    ~Pass();
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    static Ref<GradTag> current();

   private:
    Ref<GradTag> before_;
  };
};

/// What is known of a gradient.
struct GradMark {
  bool known = false;  // false if the user has assigned or changed the gradient
  Ref<GradTag> tag;    // null if its passes had no mark
};
GradMark mark_of(const Tensor& grad);
/// True if the gradient is known to have this mark.
bool has_mark(const Tensor& grad, const Ref<GradTag>& tag);
/// Marks the gradient as it is now.
void set_mark(const Tensor& grad, Ref<GradTag> tag);
/// Throws the objection of the gradient's mark, if there is one.
void check_mark(const Tensor& grad, const char* call, GradTag::Use use = GradTag::Use::Unscaled);

}  // namespace halftape
