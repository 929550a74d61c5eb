#include "halftape/autograd/ops/random.h"

#include "halftape/autograd/ops/binary.h"
#include "halftape/autograd/ops/create.h"
#include "halftape/autograd/policy.h"
#include "halftape/core/backend.h"

namespace halftape {

Tensor dropout(const Tensor& in, double p, bool training) {
  HALFTAPE_CHECK(p >= 0 && p <= 1, "dropout: probability ", p, " is not between 0 and 1");
  const auto [x] = cast_inputs(Cast::Keep, "dropout", in);
  if (!training || p == 0) return x;
  if (p == 1) return x * zeros_like(x);
  const Array kept(x.sizes(), x.dtype(), x.device());
  backend(x.device())
      .random(kept, Distribution::Bernoulli, 1 - p, 0, random_reserve(x.device(), x.numel()));
  return x * Tensor(kept) / (1 - p);
}

}  // namespace halftape
