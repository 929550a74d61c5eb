// The dtype policy of autocast: a table from op to cast.
#pragma once
#include <ostream>
#include <string_view>
#include <unordered_map>

#include "halftape/core/formula/ops.h"

namespace halftape {
struct CastOp;
}

namespace halftape::amp {

/// A row for every op: Cast::Lower runs in the region's dtype, Float32 in float32, Widest in
/// the region's dtype, or in float32 if an input has another, Keep in the dtypes of its inputs;
/// Refuse throws. Copy a policy, change rows, and pass it to a region:
///
///     amp::Policy mine = amp::Policy::standard();
///     mine.set("softmax", Cast::Lower).set("gelu", Cast::Float32);
///     amp::autocast region(kCPU, kFloat16, mine);
///
/// Ops have the names of their functions; x + 2 and x * 2 are "affine". In-place ops, float64 and
/// integers are never cast.
class Policy {
 public:
  /// The casts that the ops declare: torch's CUDA list, on every device.
  static const Policy& standard();
  /// The lists of torch.amp, for comparison and for porting.
  static const Policy& torch_cuda();
  /// The lists of torch.amp for the CPU, for comparison and for porting.
  static const Policy& torch_cpu();

  /// Throws for an unknown op, naming similar ones.
  Policy& set(std::string_view op, Cast cast);
  /// Sets all ops.
  Policy& set_all(Cast cast);
  Cast get(std::string_view op) const;
  /// The same without a search by name.
  Cast get(const CastOp& op) const;
  /// True if it differs from standard().
  bool overrides() const { return !changed_.empty(); }

  friend bool operator==(const Policy&, const Policy&) = default;

 private:
  std::unordered_map<std::string_view, Cast>
      changed_;  // rows that differ from the ops' declarations
};

/// "Lower", "Float32", …
const char* name_of(Cast cast);

/// A table in Markdown, a row for each category, as in docs/mixed_precision.md.
std::ostream& operator<<(std::ostream& out, const Policy& policy);

}  // namespace halftape::amp
