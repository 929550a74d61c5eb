// Which op runs in which dtype under autocast, as data.
#pragma once
#include <ostream>
#include <string>
#include <string_view>
#include <unordered_map>

#include "halftape/core/formula/ops.h"

namespace halftape {
struct CastOp;
}

namespace halftape::amp {

/// A row for every op: Cast::Lower runs in the region's dtype, Float32 in float32, Widest in the
/// widest dtype among its inputs, Keep in what it is given, Refuse throws. Copy one, change a row,
/// and give it to a region:
///
///     amp::Policy mine = amp::Policy::standard();
///     mine.set("softmax", Cast::Lower).set("gelu", Cast::Float32);
///     amp::autocast region(kCPU, kFloat16, mine);
///
/// Ops are named as their functions are; x + 2 and x * 2 are "affine", a form with underscore is
/// never cast. float64 and integers are left alone whatever the row says.
class Policy {
 public:
  /// What the ops declare: torch's CUDA list, on every device.
  static const Policy& standard();
  /// The lists of torch.amp for either device, for comparison and for porting.
  static const Policy& torch_cuda();
  static const Policy& torch_cpu();

  /// Throws for an unknown op and names similar ones.
  Policy& set(std::string_view op, Cast cast);
  /// Every op of the library in one category.
  Policy& set_all(Cast cast);
  Cast get(std::string_view op) const;
  /// The same for an op that is running.
  Cast get(const CastOp& op) const;
  /// Does it differ from what the ops declare?
  bool overrides() const { return !changed_.empty(); }

  friend bool operator==(const Policy&, const Policy&) = default;

 private:
  std::unordered_map<std::string_view, Cast> changed_;  // rows that are not as declared
};

/// "Lower", "Float32", …
const char* name_of(Cast cast);

/// The policy as a table in Markdown, a line for each category. docs/mixed_precision.md shows the
/// standard one.
std::ostream& operator<<(std::ostream& out, const Policy& policy);

}  // namespace halftape::amp
