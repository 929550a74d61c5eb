#include "halftape/autograd/ops/cast_list.h"

#include <algorithm>
#include <string_view>

#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"

namespace halftape {

std::span<const CastOp> cast_ops() {
  static const auto& all = *new std::vector([] {  // NOLINT: for policies of dying statics
    std::vector<CastOp> ops{
#define HALFTAPE_LISTED(op, category) cast_list::op,
        HALFTAPE_CAST_LIST(HALFTAPE_LISTED)
#undef HALFTAPE_LISTED
    };
    auto add = [&](const char* name, Cast cast) {
      const bool known = std::any_of(ops.begin(), ops.end(), [&](const CastOp& op) {
        return std::string_view(op.name) == name;
      });
      if (!known) ops.push_back({name, cast});
    };
    for (const UnaryEntry& op : unary_ops()) add(op.called, op.cast);
    for (const BinaryEntry& op : binary_ops()) add(op.called, op.cast);
    return ops;
  }());
  return all;
}

}  // namespace halftape
