// Joining, splitting, repeating, rotating, padding: dtypes, corner cases, shared bytes, errors.
#include <doctest/doctest.h>

#include <string>

#include <halftape/halftape.h>

#include "halftape/tests/support/counted.h"
#include "halftape/tests/support/dtypes.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/tracing_backend.h"

using namespace halftape;
using indexing::None;
using indexing::Slice;
using testing::counted;
using testing::kAllDtypes;
using testing::message;

namespace {

using Values = std::vector<double>;
/// The first byte of the first element.
const void* address(const Tensor& x) { return x.array().raw(); }

std::vector<Shape> shapes(const TensorList& list) {
  std::vector<Shape> out;
  for (const Tensor& t : list) out.push_back(t.sizes());
  return out;
}

}  // namespace

TEST_CASE("ops of shape move elements of every dtype unchanged") {
  for (const Dtype d : kAllDtypes) {
    CAPTURE(d);
    const Tensor x = counted({2, 3}, d);
    const Values v = x.to_vector();
    CHECK(cat({x, x}, 1).to_vector() ==
          Values{v[0], v[1], v[2], v[0], v[1], v[2], v[3], v[4], v[5], v[3], v[4], v[5]});
    CHECK(stack({x, x}).index({1}).to_vector() == v);
    CHECK(flip(x, {0}).to_vector() == Values{v[3], v[4], v[5], v[0], v[1], v[2]});
    CHECK(roll(x, 1, 1).to_vector() == Values{v[2], v[0], v[1], v[5], v[3], v[4]});
    CHECK(repeat(x, {1, 2}).index({Slice(), Slice(3, None)}).to_vector() == v);
    CHECK(repeat_interleave(x, 2, 0).index({Slice(None, None, 2)}).to_vector() == v);
    CHECK(constant_pad_nd(x, {1, 0}, 1).to_vector() ==
          Values{1, v[0], v[1], v[2], 1, v[3], v[4], v[5]});
    CHECK(pad(x, {1, 0}, kReflect).to_vector() ==
          Values{v[1], v[0], v[1], v[2], v[4], v[3], v[4], v[5]});
    CHECK(tril(x).to_vector() == Values{v[0], 0, 0, v[3], v[4], 0});
    CHECK(triu(x).to_vector() == Values{v[0], v[1], v[2], 0, v[4], v[5]});
    CHECK(diag(x).to_vector() == Values{v[0], v[4]});
    CHECK(diag_embed(x).sizes() == Shape{2, 3, 3});
    for (const Tensor& y : {cat({x, x}), stack({x}), flip(x, {0}), roll(x, 1), repeat(x, {2, 1}),
                            constant_pad_nd(x, {1, 1}), pad(x, {1, 1}, kCircular), tril(x), triu(x),
                            diag(x), diag_embed(x), unfold(x, 1, 2, 1)})
      CHECK(y.dtype() == d);
  }
}

TEST_CASE("cat promotes, and gives each tensor a gradient in its own dtype") {
  const Tensor h = ones({2}, kFloat16).requires_grad_(), f = ones({1}, kFloat32).requires_grad_();
  const Tensor y = cat({h, f, tensor({7}, kInt64)});
  CHECK(y.dtype() == kFloat32);
  CHECK(y.to_vector() == Values{1, 1, 1, 7});
  y.backward(tensor({1.0, 2.0, 3.0, 4.0}, kFloat32));
  CHECK(h.grad().dtype() == kFloat16);
  CHECK(h.grad().to_vector() == Values{1, 2});
  CHECK(f.grad().to_vector() == Values{3});
  CHECK(cat({ones({2}, kInt32), ones({2}, kFloat16)}).dtype() == kFloat16);
  CHECK(cat({ones({1}, kFloat16), ones({1}, kBFloat16)}).dtype() == kFloat32);
  // An empty vector is skipped, but its dtype counts.
  CHECK(cat({zeros({0}, kFloat64), ones({2, 2})}, 1).dtype() == kFloat64);
  CHECK(cat({zeros({0}), zeros({0})}, 1).sizes() == Shape{0});
  CHECK(stack({tensor(1.0, kFloat64), tensor(2, kInt64)}).dtype() == kFloat64);
  // Under autocast the result is float32 if one of the tensors is.
  const amp::autocast region(get_default_device().type(), kFloat16);
  CHECK(cat({h.detach(), h.detach()}).dtype() == kFloat16);
  CHECK(cat({h.detach(), f.detach()}).dtype() == kFloat32);
  CHECK(roll(ones({2}, kBFloat16), 1).dtype() == kBFloat16);
}

TEST_CASE("cat gives a tensor the gradients of all its uses, and none if it wants none") {
  const Tensor a = ones({1}).requires_grad_(), b = ones({1});
  const Tensor y = cat({b, a, b, a});
  CHECK(y.requires_grad());
  y.backward(tensor({1.0, 2.0, 4.0, 8.0}, kFloat32));
  CHECK(a.grad().to_vector() == Values{10});
  CHECK_FALSE(b.grad().defined());
  CHECK_FALSE(cat({b, b}).requires_grad());
  const NoGradGuard guard;
  CHECK_FALSE(cat({a, a}).requires_grad());
}

TEST_CASE("splitting gives views; rotating, repeating and padding give copies") {
  const Tensor x = counted({4, 6});
  CHECK(address(split(x, 2)[1]) == address(x.select(0, 2)));
  CHECK(address(chunk(x, 3, 1)[0]) == address(x));
  CHECK(address(unbind(x)[3]) == address(x.select(0, 3)));
  CHECK(address(unfold(x, 1, 2, 2)) == address(x));
  CHECK(address(diagonal(x, 1)) == address(x.select(1, 1)));
  CHECK(address(movedim(x, 0, 1)) == address(x));
  CHECK(address(unflatten(x, 1, {2, 3})) == address(x));
  for (const Tensor& y : {flip(x, Dims{}), roll(x, 0), roll(x, 4, 0), repeat(x, {1, 1}),
                          tile(x, {1}), repeat_interleave(x, 1, 0), rot90(x, 4),
                          constant_pad_nd(x, {0, 0}), pad(x, {0, 0}, kReflect), cat({x}), diag(x)})
    CHECK(address(y) != address(x));
}

TEST_CASE("a write to a part changes the whole and its history") {
  const Tensor leaf = ones({3, 3}).requires_grad_();
  Tensor y = leaf * 1;
  y.diagonal().mul_(2);
  split(y, {1, 2}, 1)[1].fill_(7);
  y.unfold(1, 1, 2).select(1, 0).mul_(3);
  CHECK(y.to_vector() == Values{6, 7, 7, 3, 7, 7, 3, 7, 7});
  y.backward(ones({3, 3}));
  CHECK(leaf.grad().to_vector() == Values{6, 0, 0, 3, 0, 0, 3, 0, 0});
}

TEST_CASE("one node joins the gradients of all parts") {
  const Tensor x = counted({5, 2}).requires_grad_();
  const TensorList rows = unbind(x), pairs = split(x, 2);
  CHECK(rows[0].grad_fn().get() == rows[4].grad_fn().get());
  const Tensor y = (rows[1] * rows[4]).sum() + pairs[2].sum();
  const testing::TracingBackend trace;
  y.backward();
  CHECK(x.grad().to_vector() == Values{0, 0, 8, 9, 0, 0, 0, 0, 3, 4});
  CHECK(trace.count("fill") < 9);  // zeros only for unused parts
  // One part in two passes, the first of which keeps the graph.
  const Tensor z = counted({4}).requires_grad_();
  const Tensor part = chunk(z, 2)[1];
  (part * part).sum().backward({}, true);
  (part * 2).sum().backward();
  CHECK(z.grad().to_vector() == Values{0, 0, 6, 8});
  CHECK_FALSE(split(counted({4}, kInt64), 2)[0].requires_grad());
  const NoGradGuard guard;
  CHECK_FALSE(split(z, 2)[0].grad_fn());
}

TEST_CASE("splits have PyTorch's sizes") {
  const Tensor x = counted({7, 2});
  CHECK(shapes(split(x, 3)) == std::vector<Shape>{{3, 2}, {3, 2}, {1, 2}});
  CHECK(shapes(chunk(x, 4)) == std::vector<Shape>{{2, 2}, {2, 2}, {2, 2}, {1, 2}});
  CHECK(shapes(chunk(x, 5)) == std::vector<Shape>{{2, 2}, {2, 2}, {2, 2}, {1, 2}});
  CHECK(shapes(tensor_split(x, 3)) == std::vector<Shape>{{3, 2}, {2, 2}, {2, 2}});
  CHECK(shapes(x.tensor_split({1, 3, 9})) == std::vector<Shape>{{1, 2}, {2, 2}, {4, 2}, {0, 2}});
  CHECK(shapes(x.tensor_split({-3, 2})) == std::vector<Shape>{{4, 2}, {0, 2}, {5, 2}});
  CHECK(shapes(x.split({7, 0})) == std::vector<Shape>{{7, 2}, {0, 2}});
  const Tensor none = zeros({0, 2});
  CHECK(shapes(split(none, 3)) == std::vector<Shape>{{0, 2}});
  CHECK(shapes(split(none, 0)) == std::vector<Shape>{{0, 2}});
  CHECK(shapes(chunk(none, 3)) == std::vector<Shape>{{0, 2}, {0, 2}, {0, 2}});
  CHECK(unbind(none).empty());
  // More parts than a shape has dimensions.
  CHECK(split(zeros({10}), std::vector<int64_t>(10, 1)).size() == 10);
}

TEST_CASE("repeats may be a list of one number for all slices") {
  const Tensor x = counted({2, 2});
  CHECK(x.repeat_interleave(tensor({2}, kInt64), 0).to_vector() == Values{0, 1, 0, 1, 2, 3, 2, 3});
  CHECK(x.repeat_interleave(tensor({0, 1, 0, 2}, kInt32)).to_vector() == Values{1, 3, 3});
  CHECK(x.repeat_interleave(tensor(1, kInt64)).to_vector() == Values{0, 1, 2, 3});
  CHECK(repeat_interleave(tensor({1, 0, 2}, kInt64)).to_vector() == Values{0, 2, 2});
  CHECK(tensor(4.0).repeat_interleave(2).to_vector() == Values{4, 4});
}

TEST_CASE("circular padding repeats what cropping left; reflection also mirrors what it cropped") {
  // As torch.nn.functional.pad on a row of five.
  const Tensor x = counted({1, 5});
  CHECK(pad(x, {-1, 2}, kReflect).to_vector() == Values{1, 2, 3, 4, 3, 2});
  CHECK(pad(x, {-3, 3}, kReflect).to_vector() == Values{3, 4, 3, 2, 1});
  CHECK(pad(x, {-1, 2}, kCircular).to_vector() == Values{1, 2, 3, 4, 1, 2});
  CHECK(pad(x, {-1, 2}, kReplicate).to_vector() == Values{1, 2, 3, 4, 4, 4});
  CHECK(pad(x, {-3, -2}).sizes() == Shape{1, 0});
  CHECK(pad(tensor(3.0), {}).item() == 3);
  namespace F = nn::functional;
  CHECK(F::pad(x, F::PadFuncOptions({1, 1}).value(9)).to_vector() == Values{9, 0, 1, 2, 3, 4, 9});
  CHECK(F::pad(x, F::PadFuncOptions({1, 1}).mode(kReflect)).to_vector() ==
        Values{1, 0, 1, 2, 3, 4, 3});
  // Padding with NaN does not affect the gradient.
  const Tensor one = ones({1}).requires_grad_();
  pad(one, {1, 1}, kConstant, std::nan("")).backward(tensor({1.0, 2.0, 3.0}, kFloat32));
  CHECK(one.grad().to_vector() == Values{2});
}

TEST_CASE("meshgrid's indexing sets the shape") {
  const Tensor x = counted({2}), y = counted({3});
  CHECK(shapes(meshgrid({x, y})) == std::vector<Shape>{{2, 3}, {2, 3}});
  CHECK(shapes(meshgrid({x, y, x}, "xy")) == std::vector<Shape>{{3, 2, 2}, {3, 2, 2}, {3, 2, 2}});
  CHECK(meshgrid({x, y}, "xy")[0].to_vector() == Values{0, 1, 0, 1, 0, 1});
  CHECK(meshgrid({x, y}, "xy")[1].to_vector() == Values{0, 0, 1, 1, 2, 2});
  CHECK(shapes(meshgrid({tensor(1.0), y})) == std::vector<Shape>{{1, 3}, {1, 3}});
}

TEST_CASE("tril and triu drop even NaN outside of the triangle") {
  const double nan = std::nan("");
  const Tensor x = full({2, 2}, nan).requires_grad_();
  const Tensor y = tril(x, -1);
  CHECK(y.index({0, 0}).item() == 0);
  CHECK(std::isnan(y.index({1, 0}).item()));
  y.backward(full({2, 2}, nan));
  CHECK(x.grad().index({0, 1}).item() == 0);
  CHECK(triu(ones({2, 3}), 9).sum().item() == 0);
  CHECK(triu(ones({2, 3}), -9).sum().item() == 6);
  CHECK(tril(zeros({0, 3, 3})).sizes() == Shape{0, 3, 3});
}

TEST_CASE("movedim and squeeze take lists") {
  const Tensor x = zeros({2, 1, 3, 1});
  CHECK(movedim(x, {0, -1}, {-1, 0}).sizes() == Shape{1, 1, 3, 2});
  CHECK(x.movedim(0, 2).sizes() == Shape{1, 3, 2, 1});
  CHECK(x.squeeze({0, 1}).sizes() == Shape{2, 3, 1});
  CHECK(x.squeeze(Dims{}).sizes() == x.sizes());
  CHECK(tensor(1.0).movedim(0, 0).sizes() == Shape{});
  CHECK(x.unflatten(0, {1, -1, 2}).sizes() == Shape{1, 1, 2, 1, 3, 1});
  CHECK(x.ravel().sizes() == Shape{6});
  CHECK(moveaxis(x, 0, 2).sizes() == Shape{1, 3, 2, 1});
  CHECK(counted({5}).slice().numel() == 5);
  CHECK(counted({5}).slice(0, -2).to_vector() == Values{3, 4});
  CHECK(counted({5}).slice(0, {}, -1, 2).to_vector() == Values{0, 2});
  CHECK(zeros({2, 3}).reshape_as(zeros({6})).sizes() == Shape{6});
}

TEST_CASE("ops of shape name what is wrong") {
  const Tensor x = counted({2, 3}), number = tensor(1.0);
  CHECK(message([&] { cat({}); }) == "cat: of no tensors");
  CHECK(message([&] {
          cat({x, zeros({2, 4})});
        }) == "cat: tensor 1 [2, 4] does not continue [2, 3] along dimension 0");
  CHECK(message([&] {
          cat({x, zeros({2})});
        }) == "cat: tensor 1 [2] does not continue [2, 3] along dimension 0");
  CHECK(message([&] { cat({number, number}); }) == "cat: a 0-dim tensor has no dimensions");
  CHECK(message([&] { cat({x, x}, 2); }).find("cat: dimension 2 is out of range") == 0);
  CHECK_THROWS_AS(cat({x, Tensor()}), Error);
  CHECK(message([&] {
          stack({x, zeros({3, 2})});
        }) == "stack: tensor 1 is [3, 2], the first [2, 3]");
  CHECK(message([&] { stack({}); }) == "stack: of no tensors");
  CHECK(message([&] { hstack({}); }) == "hstack: of no tensors");
  CHECK(message([&] { split(x, 0); }) ==
        "split: size 0 for dimension 0 of [2, 3] must be positive");
  CHECK_THROWS_AS(split(x, -1), Error);
  CHECK(message([&] {
          x.split({1, 1}, 1);
        }) == "split: the sizes add up to 2, dimension 1 of [2, 3] has 3");
  CHECK(message([&] {
          split_with_sizes(x, {4, -1}, 1);
        }) == "split_with_sizes: size -1 is negative");
  CHECK(message([&] { chunk(x, 0); }) == "chunk: into 0 chunks; expected at least one");
  CHECK(message([&] { tensor_split(x, 0); }) ==
        "tensor_split: into 0 sections; expected at least one");
  CHECK(message([&] { unbind(number); }) == "unbind: a 0-dim tensor has no dimensions");
  CHECK(message([&] { repeat(x, {2}); }) == "repeat: [2] names 1 of 2 dimensions");
  CHECK(message([&] { repeat(x, {-1, 2}); }) == "repeat: -1 times in [-1, 2]");
  CHECK(message([&] { repeat_interleave(x, -1); }) == "repeat_interleave: -1 times");
  CHECK(message([&] {
          repeat_interleave(x, tensor({1, 2, 3}, kInt64), 0);
        }) == "repeat_interleave: repeats [3] for the 2 slices of dimension 0 of [2, 3]");
  CHECK(message([&] {
          repeat_interleave(x, tensor({1, -2}, kInt64), 0);
        }) == "repeat_interleave: repeats -2 at position 1 is negative");
  CHECK_THROWS_AS(repeat_interleave(x, tensor({1.0, 2.0}), 0), Error);
  CHECK_THROWS_AS(number.repeat_interleave(2, 1), Error);
  CHECK(message([&] { flip(x, {0, -2}); }).find("flip: dimension 0 appears twice") == 0);
  CHECK_THROWS_AS(flip(x, {2}), Error);
  CHECK(message([&] { roll(x, {1, 2}); }) == "roll: shifts [1, 2] for dimensions []");
  CHECK_THROWS_AS(roll(number, 1, 0), Error);
  CHECK_THROWS_AS(rot90(x, 1, {0, 0}), Error);
  CHECK_THROWS_AS(rot90(x, 1, {0}), Error);
  CHECK(message([&] { pad(x, {1}); }) ==
        "pad: 1 numbers for [2, 3]; expected two for each of at most 2 dimensions");
  CHECK_THROWS_AS(pad(x, {1, 1, 1, 1, 1, 1}), Error);
  CHECK(message([&] {
          pad(x, {-2, -2});
        }) == "pad: -2 and -2 cut more than the 3 elements of dimension 1 of [2, 3]");
  CHECK(message([&] {
          pad(x, {3, 0}, kReflect);
        }) ==
        "pad: mode reflect makes at most 2 elements of the 3 in dimension 1 of [2, 3], not 3");
  CHECK(message([&] {
          pad(x, {4, 0}, kCircular);
        }) ==
        "pad: mode circular makes at most 3 elements of the 3 in dimension 1 of [2, 3], not 4");
  CHECK_THROWS_AS(pad(zeros({2, 0}), {1, 0}, kReplicate), Error);
  CHECK_THROWS_AS(pad(zeros({2, 0}), {1, 0}, kReflect), Error);
  CHECK(message([&] {
          pad(x, {1, 1}, kReflect, 2);
        }) == "pad: value 2 means nothing to mode reflect");
  CHECK(message([&] { pad(x, {1, 1}, "mirror"); }).find("pad: mode \"mirror\"") == 0);
  CHECK_THROWS_AS(meshgrid({x}), Error);
  CHECK_THROWS_AS(meshgrid({counted({2}), counted({2}, kInt64)}), Error);
  CHECK_THROWS_AS(meshgrid({counted({2})}, "yx"), Error);
  CHECK_THROWS_AS(broadcast_tensors({x, zeros({2})}), Error);
  CHECK(message([&] { unfold(x, 1, 4, 1); }) ==
        "unfold: windows of 4 in the 3 elements of dimension 1 of [2, 3]");
  CHECK(message([&] { unfold(x, 1, 2, 0); }) == "unfold: step 0 must be positive");
  CHECK_THROWS_AS(diagonal(counted({3})), Error);
  CHECK_THROWS_AS(diagonal(x, 0, 1, -1), Error);
  CHECK_THROWS_AS(diag_embed(x, 0, 1, 1), Error);
  CHECK_THROWS_AS(diag_embed(number), Error);
  CHECK_THROWS_AS(diag(zeros({2, 2, 2})), Error);
  CHECK(message([&] { tril(counted({3})); }) ==
        "tril: of a tensor [3]; expected two dimensions or more");
  CHECK_THROWS_AS(triu(number), Error);
  CHECK_THROWS_AS(unflatten(x, 1, {2, 2}), Error);
  CHECK_THROWS_AS(unflatten(number, 0, {1}), Error);
  CHECK_THROWS_AS(movedim(x, {0, 0}, {0, 1}), Error);
  CHECK_THROWS_AS(movedim(x, {0}, {0, 1}), Error);
  CHECK(message([&] { narrow(x, 1, 2, 2); }) ==
        "narrow: start 2 and length 2 do not lie in dimension 1 of [2, 3]");
}
