// Rows of the op table: ops that draw random numbers, the same ones at every call. Their values are
// tested in tests/nn/modules/dropout_test.cpp and activation_test.cpp.
#include "halftape/tests/support/ops.h"

namespace halftape::testing {

void random_rows(std::vector<OpRow>& rows) {
  auto row = [&](const char* name, Shape shape, std::function<Tensor(const Tensor&)> call,
                 std::vector<double> kinks = {}, Cast cast = Cast::Keep) {
    rows.push_back({.name = name,
                    .call =
                        [call](const TensorList& x) {
                          manual_seed(7);
                          return call(x[0]);
                        },
                    .shapes = {std::move(shape)},
                    .kinks = std::move(kinks),
                    .cast = cast,
                    .one_kernel = false});
  };
  row("dropout", {5, 4}, [](const Tensor& x) { return dropout(x, 0.4); });
  row("feature_dropout", {3, 2, 4}, [](const Tensor& x) { return feature_dropout(x, 0.4); });
  row("alpha_dropout", {5, 4}, [](const Tensor& x) { return alpha_dropout(x, 0.4); });
  row("feature_alpha_dropout", {3, 2, 4},
      [](const Tensor& x) { return feature_alpha_dropout(x, 0.4); });
  row("rrelu", {5, 4}, [](const Tensor& x) { return rrelu(x, 0.1, 0.4, true); }, {0});
  row("rrelu in evaluation", {5, 4}, [](const Tensor& x) { return rrelu(x); }, {0});
  row(
      "gumbel_softmax", {3, 5}, [](const Tensor& x) { return gumbel_softmax(x, 0.7); }, {},
      Cast::Float32);
}

}  // namespace halftape::testing
