#include "halftape/amp/tools/precision_policy.h"

#include <algorithm>
#include <array>

#include "halftape/autograd/ops/layout/view.h"

namespace halftape::amp {
namespace {

Dtype parse_dtype(std::string_view word, std::string_view text) {
  if (word == "float32" || word == "f32" || word == "full") return kFloat32;
  if (word == "float16" || word == "f16" || word == "half") return kFloat16;
  if (word == "bfloat16" || word == "bf16") return kBFloat16;
  halftape::detail::fail("PrecisionPolicy: \"", word, "\" in \"", text,
                         "\" is none of float32, float16, bfloat16");
}

void check_dtype(const char* role, Dtype dtype) {
  HALFTAPE_CHECK(dtype == kFloat32 || is_16bit(dtype), "PrecisionPolicy: ", role, " is ", dtype,
                 ", expected float32, float16 or bfloat16");
}

}  // namespace

PrecisionPolicy::PrecisionPolicy(Dtype params, Dtype compute, Dtype output)
    : params_(params), compute_(compute), output_(output) {
  check_dtype("params", params);
  check_dtype("compute", compute);
  check_dtype("output", output);
}

PrecisionPolicy::PrecisionPolicy(std::string_view text) {
  if (text.find('=') == std::string_view::npos) {
    params_ = compute_ = output_ = parse_dtype(text, text);
    return;
  }
  constexpr std::array<std::string_view, 3> kRoles{"params", "compute", "output"};
  std::array<std::optional<Dtype>, 3> found;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    const size_t equals = part.find('=');
    HALFTAPE_CHECK(equals != std::string_view::npos, "PrecisionPolicy: \"", part, "\" in \"", text,
                   "\" is not role=dtype");
    const std::string_view role = part.substr(0, equals);
    size_t i = 0;
    while (i < 3 && role != kRoles[i] && role != kRoles[i].substr(0, 1)) ++i;
    HALFTAPE_CHECK(i < 3, "PrecisionPolicy: \"", role, "\" in \"", text,
                   "\" is none of params, compute, output");
    HALFTAPE_CHECK(!found[i], "PrecisionPolicy: \"", text, "\" states ", kRoles[i], " twice");
    found[i] = parse_dtype(part.substr(equals + 1), text);
  }
  HALFTAPE_CHECK(found[1], "PrecisionPolicy: \"", text, "\" does not say compute=…");
  *this = PrecisionPolicy(found[0].value_or(*found[1]), *found[1], found[2].value_or(*found[1]));
}

Tensor PrecisionPolicy::convert(const Tensor& x, Dtype dtype) {
  const bool eligible = x.defined() && x.is_floating_point() && x.dtype() != kFloat64;
  return eligible ? halftape::cast(x, dtype) : x;
}

AutocastState PrecisionPolicy::state() const {
  const auto make = [](Cast cast) {  // never to be destroyed: statics may ask in their destructors
    return new auto(std::make_shared<const Policy>(Policy().set_all(cast)));  // NOLINT
  };
  static const auto* lower = make(Cast::Lower);
  static const auto* full = make(Cast::Float32);
  AutocastState state = capture();
  for (AutocastState::PerDevice& d : state.devices) {
    d.enabled = true;
    if (is_16bit(compute_)) d.dtype = compute_;
    d.policy = is_16bit(compute_) ? *lower : *full;
  }
  return state;
}

std::ostream& operator<<(std::ostream& out, const PrecisionPolicy& policy) {
  return out << "params=" << policy.params() << ",compute=" << policy.compute()
             << ",output=" << policy.output();
}

}  // namespace halftape::amp
