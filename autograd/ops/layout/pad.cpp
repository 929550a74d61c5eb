#include "halftape/autograd/ops/layout/shape.h"

#include <algorithm>

#include <limits>
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"

namespace halftape {
namespace {

/// The source of each element along a padded dimension of n.
std::vector<int64_t> sources(PadMode mode, int64_t n, int64_t left, int64_t right) {
  std::vector<int64_t> from;
  for (int64_t i = -left; i < n + right; ++i) {
    if (mode == PadMode::Reflect)
      from.push_back(i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i);
    else if (mode == PadMode::Replicate)
      from.push_back(std::clamp<int64_t>(i, 0, n - 1));
    else
      from.push_back(i < 0 ? i + n : i >= n ? i - n : i);
  }
  return from;
}

const char* name_of(PadMode mode) {
  return mode == PadMode::Constant    ? "constant"
         : mode == PadMode::Reflect   ? "reflect"
         : mode == PadMode::Replicate ? "replicate"
                                      : "circular";
}

/// The number of dimensions to pad; throws if `pad` has a wrong number of entries.
int padded_dims(const Tensor& x, const std::vector<int64_t>& pad) {
  HALFTAPE_CHECK(pad.size() % 2 == 0 && static_cast<int64_t>(pad.size()) <= 2 * x.dim(),
                 "pad: ", pad.size(), " numbers for ", x.sizes(),
                 "; expected two for each of at most ", x.dim(), " dimensions");
  return static_cast<int>(pad.size() / 2);
}

void check_room(const Tensor& x, int64_t d, int64_t left, int64_t right) {
  const int64_t n = x.size(d), kept = n + std::min<int64_t>(left, 0) + std::min<int64_t>(right, 0);
  HALFTAPE_CHECK(kept >= 0, "pad: ", left, " and ", right, " cut more than the ", n,
                 " elements of dimension ", d, " of ", x.sizes());
}

}  // namespace

Tensor constant_pad_nd(const Tensor& x, const std::vector<int64_t>& pad, Scalar value) {
  check_defined("constant_pad_nd", x);
  const int count = padded_dims(x, pad);
  Shape shape = x.sizes();
  Array inside = x.array();
  for (int i = 0; i < count; ++i) {
    const int d = static_cast<int>(x.dim()) - 1 - i;
    const int64_t left = pad[2 * static_cast<size_t>(i)],
                  right = pad[2 * static_cast<size_t>(i) + 1];
    check_room(x, d, left, right);
    shape[d] = checked_add(checked_add(shape[d], left), right);
    inside = inside.slice(d, std::max<int64_t>(-left, 0), x.size(d) - std::max<int64_t>(-right, 0));
  }
  const Array y = full(shape, value, x.dtype(), x.device());
  Array room = y;
  for (int i = 0; i < count; ++i) {
    const int d = static_cast<int>(x.dim()) - 1 - i;
    const int64_t left = std::max<int64_t>(pad[2 * static_cast<size_t>(i)], 0);
    room = room.slice(d, left, left + inside.size(d));
  }
  backend(x.device()).copy(room, inside);
  return record("constant_pad_nd", y, {&x}, [pad](Node&, const Tensor& g) -> Grads {
    std::vector<int64_t> back;
    back.reserve(pad.size());
    for (int64_t n : pad) back.push_back(-n);
    return {constant_pad_nd(g, back)};
  });
}

Tensor pad(const Tensor& x, const std::vector<int64_t>& pad, PadMode mode, double value) {
  const ErrorScope scope("pad", x);
  if (mode == PadMode::Constant) return constant_pad_nd(x, pad, value);
  HALFTAPE_CHECK(value == 0, "pad: value ", value, " means nothing to mode ", name_of(mode));
  const int count = padded_dims(x, pad);
  Tensor y = x;
  for (int i = 0; i < count; ++i) {
    const int d = static_cast<int>(x.dim()) - 1 - i;
    int64_t left = pad[2 * static_cast<size_t>(i)], right = pad[2 * static_cast<size_t>(i) + 1];
    check_room(x, d, left, right);
    if (mode == PadMode::Circular) {  // what is cut off does not come round
      y = slice(y, d, std::max<int64_t>(-left, 0), x.size(d) - std::max<int64_t>(-right, 0));
      left = std::max<int64_t>(left, 0), right = std::max<int64_t>(right, 0);
    }
    const int64_t n = y.size(d), most = mode == PadMode::Reflect    ? n - 1
                                        : mode == PadMode::Circular ? n
                                        : n > 0 ? std::numeric_limits<int64_t>::max()
                                                : 0;
    HALFTAPE_CHECK(left <= most && right <= most, "pad: mode ", name_of(mode), " makes at most ",
                   std::max<int64_t>(most, 0), " elements of the ", n, " in dimension ", d, " of ",
                   x.sizes(), ", not ", std::max(left, right));
    if (left != 0 || right != 0)
      y = index_select(y, d, tensor(sources(mode, n, left, right), x.device()));
  }
  return y.is_same(x) ? clone(x) : y;
}

Tensor pad(const Tensor& x, const std::vector<int64_t>& sizes, const std::string& mode,
           double value) {
  const ErrorScope scope("pad", x);
  for (const PadMode m :
       {PadMode::Constant, PadMode::Reflect, PadMode::Replicate, PadMode::Circular})
    if (mode == name_of(m)) return pad(x, sizes, m, value);
  detail::fail("pad: mode \"", mode,
               "\"; expected \"constant\", \"reflect\", \"replicate\" or \"circular\"");
}

}  // namespace halftape
