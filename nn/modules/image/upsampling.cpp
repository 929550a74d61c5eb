#include "halftape/nn/modules/image/upsampling.h"

namespace halftape::nn {
namespace {

const char* name_of(Interpolation mode) {
  constexpr const char* names[] = {"kNearest",   "kNearestExact", "kLinear", "kBilinear",
                                   "kTrilinear", "kBicubic",      "kArea"};
  return names[static_cast<size_t>(mode)];
}

/// Repeats a single number for all dimensions behind the channels.
template <class T>
std::optional<std::vector<T>> for_all(const std::optional<std::vector<T>>& given, const Tensor& x) {
  if (!given || given->size() != 1 || x.dim() < 3) return given;
  return std::vector<T>(static_cast<size_t>(x.dim() - 2), (*given)[0]);
}

}  // namespace

Tensor UpsampleImpl::forward(const Tensor& x) const {
  const PlaceScope scope(*this);
  functional::InterpolateFuncOptions o;
  o.size(for_all(options.size(), x)).scale_factor(for_all(options.scale_factor(), x));
  return scope.result(
      functional::interpolate(x, o.mode(options.mode()).align_corners(options.align_corners())));
}
void UpsampleImpl::pretty_print(std::ostream& out) const {
  const auto& o = options;
  if (o.scale_factor())
    detail::print(out, "Upsample", "scale_factor", *o.scale_factor(), "mode", name_of(o.mode()));
  else
    detail::print(out, "Upsample", "size", o.size().value_or(std::vector<int64_t>()), "mode",
                  name_of(o.mode()));
}

HALFTAPE_UNARY_FORWARD(PixelShuffle, functional::pixel_shuffle(x, options), "upscale_factor",
                       options.upscale_factor())
HALFTAPE_UNARY_FORWARD(PixelUnshuffle, functional::pixel_unshuffle(x, options), "downscale_factor",
                       options.downscale_factor())

}  // namespace halftape::nn
