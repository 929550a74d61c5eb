// Every op of the table under autocast: as if its inputs had been cast by hand, in value and
// gradient, and in all dtypes.
#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/ops.h"

using namespace halftape;
using testing::draw_all;
using testing::OpRow;
using testing::same_bits;

namespace {

TensorList leaves(const TensorList& inputs) {
  TensorList out;
  for (const Tensor& x : inputs) out.push_back(x.detach().requires_grad_());
  return out;
}

/// The dtype that a category means for inputs of these dtypes; nothing: as given.
std::optional<Dtype> category_dtype(Cast cast, Dtype lower, const TensorList& inputs) {
  if (cast == Cast::Lower) return lower;
  if (cast == Cast::Float32) return kFloat32;
  if (cast == Cast::Keep) return {};
  const bool equal = std::all_of(inputs.begin(), inputs.end(),
                                 [&](const Tensor& x) { return x.dtype() == lower; });
  return equal ? lower : kFloat32;
}

TensorList by_hand(const OpRow& row, Dtype lower, const TensorList& inputs) {
  const std::optional<Dtype> dtype = category_dtype(row.cast, lower, inputs);
  TensorList out;
  for (const Tensor& x : inputs) out.push_back(dtype ? x.to(*dtype) : x);
  return out;
}

TensorList gradients(const Tensor& y, const TensorList& x) {
  return autograd::grad({y}, x, {ones_like(y)}, {}, false, true);
}

void check_row(const OpRow& row, Dtype lower, Dtype given) {
  const TensorList x = leaves(draw_all(row, given));
  Tensor y;
  {
    const amp::autocast region(get_default_device().type(), lower);
    y = row.call(x);
  }
  const Tensor manual = row.call(by_hand(row, lower, x));
  CHECK(y.dtype() == manual.dtype());
  CHECK(same_bits(y, manual));
  if (!row.differentiable) return;
  const TensorList g = gradients(y, x), expected = gradients(manual, x);
  for (size_t i = 0; i < g.size(); ++i) {
    REQUIRE(g[i].defined() == expected[i].defined());
    if (!g[i].defined()) continue;
    CHECK(g[i].dtype() == given);
    // Made of products that each cast anew, so that its gradients meet in `given`.
    if (row.name.rfind("matrix_power", 0) == 0) continue;
    CHECK(same_bits(g[i], expected[i]));
  }
}

}  // namespace

TEST_CASE("under autocast every op has the dtypes, bits and gradients of casting by hand") {
  for (const OpRow& row : testing::op_table()) {
    if (row.cast == Cast::Refuse) continue;
    for (const Dtype lower : {kFloat16, kBFloat16}) {
      for (const Dtype given : {kFloat32, kFloat16, kBFloat16, kFloat64}) {
        std::ostringstream shapes;
        for (const Shape& s : row.shapes) shapes << ' ' << s;
        INFO(row.name << shapes.str() << ", " << std::string(name(given)) << " under "
                      << std::string(name(lower)));
        if (given != kFloat64) {
          check_row(row, lower, given);
          continue;
        }
        // float64 is nobody's to cast.
        const TensorList x = draw_all(row, given);
        const Tensor plain = row.call(x);
        const amp::autocast region(get_default_device().type(), lower);
        CHECK(same_bits(row.call(x), plain));
      }
    }
  }
}

TEST_CASE("the table's categories are those that the ops declare") {
  const auto& standard = amp::Policy::standard();
  for (const CastOp& op : cast_ops())
    for (const OpRow& row : testing::op_table())
      if (row.name == op.name) {
        INFO(row.name);
        CHECK(std::string(amp::name_of(row.cast)) == amp::name_of(standard.get(op.name)));
      }
}
