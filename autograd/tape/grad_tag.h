// Marks on gradients. A rule marks the gradients that it returns. The marks travel with them
// through the backward pass, are added where gradients are, and stay on a leaf's gradient until its
// bytes change. amp marks the gradients of a scaled loss; autograd does not know what a mark means.
// backward() never throws because of a mark: the call that uses the gradient does.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "halftape/autograd/tensor.h"

namespace halftape {

/// A mark on gradients that says by what they are multiplied, and what they may be used for. A
/// GradScaler makes them; the engine carries them from a gradient to those that it leads to.
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
  /// () float32, non-zero if the gradients with this mark are not all finite; undefined if nobody
  /// has looked.
  virtual Array verdict() const { return {}; }

  /// Keeps marks from now on, in all threads. Before that they cost a branch.
  static void enable();
  /// Whether marks are kept.
  static bool enabled();
  /// The mark of the gradient that the running rule was given; null if it has none.
  static GradTag* current();
  /// Marks the gradients that the running rule returns, in place of current().
  static void mark(Ref<GradTag> tag);
  /// The mark of `grad` plus a gradient with the current mark. Empty while no marks are kept.
  static std::optional<Ref<GradTag>> of_sum(const Tensor& grad);

  /// A backward pass; its nodes refer to marks by plain pointers, valid until it ends. The
  /// gradients that a pass within a rule is given have the mark that this rule was given. Where it
  /// is given none it begins with no mark: it is the pass of another loss.
  class [[nodiscard]] Pass {
   public:
    [[nodiscard]] explicit Pass(GradTag* mark = nullptr);
    ~Pass();
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    /// Called before a rule runs on a gradient with that mark.
    void begin_rule(GradTag* mark);
    /// The mark of a sum.
    GradTag* sum(GradTag* held, GradTag* arriving);

   private:
    friend class GradTag;
    Pass* outer_;
    GradTag* before_;
    std::vector<Ref<GradTag>> kept_;
  };
};

/// What is known of a gradient.
struct GradMark {
  bool known = false;  // false if the user has assigned or changed the gradient
  Ref<GradTag> tag;    // null if its passes had no mark
};
/// The mark of a gradient, as backward() left it.
GradMark mark_of(const Tensor& grad);
/// True if the gradient is known to have this mark.
bool has_mark(const Tensor& grad, const Ref<GradTag>& tag);
/// Marks the gradient as it is now.
void set_mark(const Tensor& grad, Ref<GradTag> tag);
/// The verdict() of the gradient's mark, undefined if it has none.
Array verdict_on(const Tensor& grad);

/// Whether the gradient is true in this process's part of it alone, as training in several
/// processes may leave it. Unlike a mark this stays when the bytes or the mark change, and when a
/// gradient is added, until the gradient is made whole, set to zero or replaced.
bool is_partial(const Tensor& grad);
void set_partial(const Tensor& grad, bool partial);
/// Throws for a partial gradient.
void check_whole(const Tensor& grad, const char* call);

/// Whether a call can use partial gradients.
enum class GradParts : uint8_t { Refused, Taken };
/// Throws the objection of the gradient's mark, if there is one, and for a partial gradient.
void check_mark(const Tensor& grad, const char* call, GradTag::Use use = GradTag::Use::Unscaled,
                GradParts parts = GradParts::Refused);

}  // namespace halftape
