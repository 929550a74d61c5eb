// Marks on gradients: a node's rule says something of the backward pass that it is part of, and
// every gradient which that pass leaves in a leaf remembers it until its bytes change. amp marks
// the gradients of a scaled loss; autograd carries and adds marks, and knows nothing of what they
// mean. backward() never throws because of them: what makes no sense is refused where it is used.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "halftape/autograd/tensor.h"

namespace halftape {

class GradTag : public RefCounted {
 public:
  virtual ~GradTag() = default;
  /// How a call uses gradients: takes the numbers for true ones, or knows of what was done to them
  /// and relies only on its having been the same for every term of their sums.
  enum class Use : uint8_t { AsTrue, AsTheyAre };
  /// Why `call` must not use a gradient with this mark, and the way out. Empty: it may.
  virtual std::string objection(std::string_view call, Use use) const = 0;
  /// The mark of a gradient with this mark and one with `other` (null: without a mark), added: one
  /// of the two where they agree, else one that objects to every use. Symmetrical in what it means.
  virtual Ref<GradTag> plus(const Ref<GradTag>& other) = 0;

  /// Marks are kept from now on, in all threads. Until somebody asks, they cost a branch.
  static void enable();
  /// The mark of `grad` plus a gradient of the pass in progress. Empty while no marks are kept.
  static std::optional<Ref<GradTag>> of_sum(const Tensor& grad);
  /// Marks the pass in progress; one that has a mark already gets the sum of both.
  static void mark_pass(Ref<GradTag> tag);
  /// The extent of one pass: a mark set within ends with it. A pass within a pass, as of a
  /// checkpoint, inherits the outer one's.
  class [[nodiscard]] Pass {
   public:
    Pass();
    explicit Pass(Ref<GradTag> inherited);
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
  bool known = false;  // false: assigned or changed by the user since, and the user's to answer for
  Ref<GradTag> tag;    // null: left by a pass without a mark
};
GradMark mark_of(const Tensor& grad);
/// Is this what is known of it?
bool has_mark(const Tensor& grad, const Ref<GradTag>& tag);
/// Vouches for the gradient as it is now.
void set_mark(const Tensor& grad, Ref<GradTag> tag);
/// Throws the objection of the gradient's mark, if there is one.
void check_mark(const Tensor& grad, const char* call, GradTag::Use use = GradTag::Use::AsTrue);

}  // namespace halftape
