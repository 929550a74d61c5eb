#include "halftape/nn/utils/weight_norm.h"

#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/reduction/statistics.h"

namespace halftape::nn::utils {

Tensor weight_length(const Tensor& v, std::optional<int64_t> dim) {
  HALFTAPE_CHECK(v.dim() > 0, "weight_norm: a 0-dim weight has no directions");
  std::vector<int64_t> others;
  const int64_t given = dim.value_or(-1), kept = given < -1 ? given + v.dim() : given;
  HALFTAPE_CHECK(given == -1 || (0 <= kept && kept < v.dim()), "weight_norm: dim ", given,
                 " of the weight ", v.sizes());
  for (int64_t d = 0; d < v.dim(); ++d)
    if (d != kept) others.push_back(d);
  if (others.empty()) return abs(v);
  return norm(v, 2, Dims(std::span<const int64_t>(others)), true);
}

Tensor normalized_weight(const Tensor& v, const Tensor& g, std::optional<int64_t> dim) {
  const Dtype wide = compute_dtype(v.dtype());
  const Tensor w = v.to(wide);
  return (w * (g.to(wide) / weight_length(w, dim))).to(v.dtype());
}

}  // namespace halftape::nn::utils
