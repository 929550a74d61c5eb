// Writes in place to the 16-bit cast of a weight: they reach neither the weight nor a later op.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <functional>

#include "halftape/tests/support/message.h"

using namespace halftape;
using amp::autocast;
using testing::has;
using testing::message;

namespace {

DeviceType device_of_casts() { return get_default_device().type(); }

struct DoublesInput : amp::Function<DoublesInput> {
  static constexpr Dtype cast_inputs = kBFloat16;
  static Tensor forward(autograd::AutogradContext*, const Tensor& x) { return x.mul_(2).clone(); }
  static autograd::variable_list backward(autograd::AutogradContext*, autograd::variable_list g) {
    return {g[0] * 2};
  }
};

Tensor cast_of(const Tensor& w) { return amp::cast_if_eligible(w, kBFloat16); }

using Write = std::function<void(const Tensor& w)>;
const std::vector<Write>& writes_to_casts() {
  static const std::vector<Write> all = {
      [](const Tensor& w) { einsum("ij->ji", {w}).mul_(2); },
      [](const Tensor& w) { relu_(einsum("ij->ji", {w}).sub_(2)); },
      [](const Tensor& w) { cast_of(w).zero_(); },
      [](const Tensor& w) { cast_of(w).detach()[0].fill_(7); },
      [](const Tensor& w) { DoublesInput::apply(w); },
      [](const Tensor& w) {
        const autocast all_in_bfloat16(amp::PrecisionPolicy("bfloat16").state());
        dropout(w, 0.5, false).mul_(3);
      },
      [](const Tensor& w) {
        if (const Tensor low = cast_of(w); low.is_cpu())
          low.data_ptr<BFloat16>()[0] = BFloat16(9.0);
      },
      [](const Tensor& w) {
        const Tensor low = cast_of(w);
        if (low.is_cpu()) static_cast<BFloat16*>(low.storage().data_ptr().get())[0] = BFloat16(9.0);
      }};
  return all;
}

}  // namespace

TEST_CASE("a write to the cast of a weight changes no later op of the region or of another one") {
  for (size_t i = 0; i < writes_to_casts().size(); ++i) {
    CAPTURE(i);
    const Tensor w = ones({2, 2}, requires_grad()), x = ones({1, 2}, requires_grad());
    const Tensor twice = full({1, 2}, 2.0, kBFloat16);
    Tensor y;
    {
      const autocast region(device_of_casts(), kBFloat16);
      writes_to_casts()[i](w);
      y = linear(x, w);
      CHECK(y.equal(twice));
      writes_to_casts()[i](w);  // of what the region has used by now
      CHECK(linear(x, w).equal(twice));
    }
    {
      const autocast region(device_of_casts(), kBFloat16);
      CHECK(linear(x, w).equal(twice));
    }
    CHECK(w.equal(ones({2, 2})));
  }
}

TEST_CASE("a gradient that needs a cast weight is right if its cast was written before the op") {
  const Tensor w = ones({2, 2}, requires_grad()), x = ones({1, 2}, requires_grad());
  Tensor y;
  {
    const autocast region(device_of_casts(), kBFloat16);
    cast_of(w).mul_(2);
    y = linear(x, w);
  }
  y.sum().backward();
  CHECK(x.grad().equal(full({1, 2}, 2.0)));
}

TEST_CASE("a gradient that needs a cast weight is refused if its cast was written after the op") {
  const Tensor w = ones({2, 2}, requires_grad()), x = ones({1, 2}, requires_grad());
  const autocast region(device_of_casts(), kBFloat16);
  const Tensor y = linear(x, w);
  cast_of(w).mul_(2);
  const Tensor z = linear(x, w);  // has a cast of its own
  CHECK(has(message([&] { y.sum().backward(); }), "was changed in place after it was saved"));
  z.sum().backward();
  CHECK(x.grad().equal(full({1, 2}, 2.0)));
}
