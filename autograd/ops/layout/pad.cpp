#include "halftape/autograd/ops/layout/shape.h"

#include <algorithm>
#include <limits>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/creation/listed.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"

namespace halftape {
namespace {

/// The source of each element along a padded dimension of n.
Array sources(PadMode mode, int64_t n, int64_t left, int64_t right) {
  return detail::listed<int64_t>(checked_add(checked_add(n, left), right), kInt64, [=](int64_t at) {
    const int64_t i = at - left;
    if (mode == PadMode::Reflect) return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
    if (mode == PadMode::Replicate) return std::clamp<int64_t>(i, 0, n - 1);
    return i < 0 ? i + n : i >= n ? i - n : i;
  });
}

const char* name_of(PadMode mode) {
  return mode == PadMode::Constant    ? "constant"
         : mode == PadMode::Reflect   ? "reflect"
         : mode == PadMode::Replicate ? "replicate"
                                      : "circular";
}

/// What is added to a dimension on both sides; negative numbers are cut off.
struct Frame {
  int dim;
  int64_t left, right;
};

/// The frames of the last dimensions, checked.
std::vector<Frame> frames_of(const Tensor& x, const std::vector<int64_t>& pad) {
  HALFTAPE_CHECK(pad.size() % 2 == 0 && static_cast<int64_t>(pad.size()) <= 2 * x.dim(),
                 "pad: ", pad.size(), " numbers for ", x.sizes(),
                 "; expected two for each of at most ", x.dim(), " dimensions");
  std::vector<Frame> frames;
  for (size_t i = 0; i < pad.size(); i += 2) {
    const int d = static_cast<int>(x.dim()) - 1 - static_cast<int>(i / 2);
    const int64_t n = x.size(d), left = pad[i], right = pad[i + 1],
                  kept = checked_add(checked_add(n, std::min<int64_t>(left, 0)),
                                     std::min<int64_t>(right, 0));
    HALFTAPE_CHECK(kept >= 0, "pad: ", left, " and ", right, " cut more than the ", n,
                   " elements of dimension ", d, " of ", x.sizes());
    frames.push_back({d, left, right});
  }
  return frames;
}

}  // namespace

Tensor constant_pad_nd(const Tensor& x, const std::vector<int64_t>& pad, Scalar value) {
  check_defined("constant_pad_nd", x);
  detail::check_fits("constant_pad_nd", value, x.dtype());
  const std::vector<Frame> frames = frames_of(x, pad);
  Shape shape = x.sizes();
  for (const auto& [d, left, right] : frames)
    shape[d] = checked_add(checked_add(shape[d], left), right);
  const Array y = full(shape, value, x.dtype(), x.device());
  Array inside = x.array(), room = y;
  for (const auto& [d, left, right] : frames) {
    inside = inside.slice(d, std::max<int64_t>(-left, 0), x.size(d) - std::max<int64_t>(-right, 0));
    room = room.slice(d, std::max<int64_t>(left, 0), shape[d] - std::max<int64_t>(right, 0));
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
  Tensor y = x;
  for (auto [d, left, right] : frames_of(x, pad)) {
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
      y = index_select(y, d, Tensor(sources(mode, n, left, right).to(x.device())));
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
