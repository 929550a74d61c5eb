// Indexing: Tensor::index against a plain reference on random expressions; dtypes, corner cases,
// and in-place forms.
#include <doctest/doctest.h>

#include <limits>
#include <string>

#include <halftape/halftape.h>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/counted.h"
#include "halftape/tests/support/dtypes.h"
#include "halftape/tests/support/index_expression.h"
#include "halftape/tests/support/lists.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/warnings.h"

using namespace halftape;
using indexing::Ellipsis;
using indexing::None;
using indexing::Slice;
using indexing::TensorIndex;
using testing::counted;
using testing::ints;
using testing::kAllDtypes;
using testing::message;
using testing::same_bits;

namespace {

using Values = std::vector<double>;

/// The same values, stored with the dimensions in reverse order.
Tensor turned(const Tensor& x) {
  Dims back;
  for (int64_t d = x.dim() - 1; d >= 0; --d) back.push_back(d);
  return x.permute(back).clone().permute(back);
}

}  // namespace

TEST_CASE("index, its gradient and index_put equal a plain reference in 3000 random cases") {
  testing::IndexDice dice(20240229);
  for (int round = 0; round < 3000; ++round) {
    const Dtype dtype = kAllDtypes[static_cast<size_t>(round) % std::size(kAllDtypes)];
    const Tensor plain = counted(dice.draw_shape(4), dtype);
    const testing::IndexExpression e = dice.draw(plain.sizes());
    CAPTURE(round);
    CAPTURE(plain.sizes());
    CAPTURE(e.text);
    const Values before = plain.to_vector();
    Values picked, after = before, sums(before.size()), written;
    for (size_t i = 0; i < e.position.size(); ++i) {
      const auto at = static_cast<size_t>(e.position[i]);
      picked.push_back(before[at]);
      written.push_back(dtype == kBool ? static_cast<double>(i % 3 == 0)
                                       : static_cast<double>(i % 50 + 1));
      after[at] = written.back();
      sums[at] += written.back();
    }
    for (const Tensor& x : {plain, turned(plain)}) {
      const Tensor y = x.index(e.items);
      REQUIRE(y.sizes() == e.shape);
      CHECK(y.dtype() == dtype);
      CHECK(y.to_vector() == picked);
      const Tensor v = tensor(written).reshape(e.shape).to(dtype);
      const Tensor put = index_put(x, e.items, v);
      CHECK(put.sizes() == x.sizes());
      // Which of several values for one element stays is not specified across dimensions.
      std::vector<int64_t> sorted = e.position;
      std::sort(sorted.begin(), sorted.end());
      const bool once = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
      if (once) CHECK(put.to_vector() == after);
      Tensor in_place = x.clone();
      in_place.index_put_(e.items, v);
      CHECK(same_bits(in_place, put));
      Tensor assigned = x.clone();
      assigned.index(e.items) = v;
      CHECK(same_bits(assigned, put));
      if (dtype == kBool) continue;
      Values added = before;
      for (size_t i = 0; i < sums.size(); ++i) added[i] += sums[i];
      if (dtype != kUInt8 && dtype != kInt8 && dtype != kBFloat16)  // which may not hold the sums
        CHECK(index_put(x, e.items, v, true).to_vector() == added);
      if (once && dtype != kUInt8 && dtype != kInt8 && dtype != kBFloat16) {
        Tensor increased = x.clone();
        increased.index(e.items) += v;
        CHECK(increased.to_vector() == added);
      }
      if (!y.is_floating_point()) continue;
      const Tensor leaf = x.detach().requires_grad_();
      leaf.index(e.items).backward(v);
      CHECK(testing::differ(leaf.grad(), sums, {.ulps = 1}) == "");
      // Overwritten elements have gradient 0; each value has the gradient of its place.
      const Tensor base = x.detach().requires_grad_(), value = v.detach().requires_grad_();
      if (!once) continue;
      index_put(base, e.items, value).backward(x);
      Values kept = before, of_value = picked;
      for (int64_t at : e.position) kept[static_cast<size_t>(at)] = 0;
      CHECK(base.grad().to_vector() == kept);
      CHECK(value.grad().to_vector() == of_value);
    }
    CHECK(plain.to_vector() == before);  // only the in-place form writes
  }
}

TEST_CASE("index with numbers and slices is a view, with lists or masks a copy") {
  const Tensor x = counted({3, 4});
  CHECK(x.index({1, Slice(1, None, 2)}).array().raw() == x[1][1].array().raw());
  CHECK(x.index({None, "..."}).array().buffer() == x.array().buffer());
  CHECK(x.index({ints({0, 1, 2})}).array().buffer() != x.array().buffer());
  CHECK(x.index({tensor(1, kInt64)}).array().buffer() == x.array().buffer());
  CHECK(x.index({true}).array().buffer() != x.array().buffer());
}

TEST_CASE("brackets index, too, and index() takes one tensor without braces") {
  const Tensor x = counted({3, 4});
  CHECK(x[2][-1].item() == 11);
  CHECK(x[tensor(-1, kInt64)].to_vector() == Values{8, 9, 10, 11});
  CHECK(x[ints({2, 0})].to_vector() == Values{8, 9, 10, 11, 0, 1, 2, 3});
  CHECK(x.index(x > 9).to_vector() == Values{10, 11});
  CHECK(x.index({x > 9}).to_vector() == Values{10, 11});
  const Tensor mask = tensor({1, 0, 1}, kUInt8);  // uint8 is a mask, as in PyTorch
  {
    const testing::Warnings warnings;
    CHECK(x.index({mask}).to_vector() == Values{0, 1, 2, 3, 8, 9, 10, 11});
    CHECK(x.index({mask, tensor({1, 0, 0, 1}, kUInt8)}).to_vector() == Values{0, 11});
    CHECK(warnings.seen.size() == 3);
  }
  CHECK(x.index({tensor(1, kInt16)}).data_ptr() == x[1].data_ptr());  // 0-dim: a number
  CHECK_FALSE(x.index({"..."}).is_same(x));                           // a view, not x itself
  CHECK(x.index({Slice()}).data_ptr() == x.data_ptr());
  Tensor y = x.clone();
  CHECK(index_put_(y, {0}, zeros({4})).is_same(y));
  CHECK(tensor(5.0).index({true}).sizes() == Shape{1});
  CHECK(tensor(5.0).index({false}).sizes() == Shape{0});
  CHECK(tensor(5.0).index({tensor(true)}).to_vector() == Values{5});
  CHECK(tensor(5.0).index({}).item() == 5);
  CHECK(tensor(5.0).index({Ellipsis, None}).sizes() == Shape{1});
  CHECK(x.index({Slice(), TensorIndex(0)}).sizes() == Shape{3});
}

TEST_CASE("an index is of one kind, and a slice is full that names all elements in order") {
  const auto kinds = [](const TensorIndex& index) {
    std::string all;
    if (index.is_none()) all += "none ";
    if (index.is_ellipsis()) all += "ellipsis ";
    if (index.is_integer()) all += "integer ";
    if (index.is_boolean()) all += "boolean ";
    if (index.is_slice()) all += "slice ";
    if (index.is_tensor()) all += "tensor ";
    return all;
  };
  CHECK(kinds(None) == "none ");
  CHECK(kinds(Ellipsis) == "ellipsis ");
  CHECK(kinds("...") == "ellipsis ");
  CHECK(kinds(3) == "integer ");
  CHECK(kinds(false) == "boolean ");
  CHECK(kinds(Slice()) == "slice ");
  CHECK(kinds(ints({1})) == "tensor ");
  CHECK(TensorIndex(true).boolean());
  CHECK_FALSE(TensorIndex(false).boolean());
  CHECK_THROWS_AS(TensorIndex(1).boolean(), std::bad_variant_access);
  for (const Slice& whole : {Slice(), Slice(0), Slice(None, indexing::INDEX_MAX, 1)})
    CHECK(whole.is_full());
  for (const Slice& part : {Slice(1), Slice(None, 3), Slice(None, None, 2), Slice(None, None, -1)})
    CHECK_FALSE(part.is_full());
}

TEST_CASE("index_put broadcasts its values and converts numbers") {
  Tensor x = zeros({2, 3});
  x.index_put_({0}, 1.5);
  x.index_put_({Slice(), 2}, tensor({3, 4}, kInt64));  // a view: values are converted
  CHECK(x.to_vector() == Values{1.5, 1.5, 3, 0, 0, 4});
  x.index_put_({1}, ones({1, 1, 3}));  // leading sizes of 1 are dropped
  CHECK(x.to_vector() == Values{1.5, 1.5, 3, 1, 1, 1});
  x.index_put_({x > 2}, -1);
  CHECK(x.to_vector() == Values{1.5, 1.5, -1, 1, 1, 1});
  x.index_put_({ints({0, 0, 0})}, ones({}), true);
  CHECK(x.to_vector() == Values{4.5, 4.5, 2, 1, 1, 1});
  x.index_put_({Slice(), ints({1, 1})}, tensor({7.0, 8.0}, kFloat32));  // the last value stays
  CHECK(x.to_vector() == Values{4.5, 8, 2, 1, 8, 1});
  Tensor n = zeros({3}, kInt32);
  n.index_put_({ints({-1})}, 2.9);
  CHECK(n.to_vector() == Values{0, 0, 2});
  x.index_put_({false}, 9);
  x.index_put_({x > 100}, 9);
  CHECK(x.to_vector() == Values{4.5, 8, 2, 1, 8, 1});
  x.index_put_({}, 3);
  CHECK(x.to_vector() == Values(6, 3));
}

TEST_CASE("scatter and index_copy keep the last of equal positions") {
  const Tensor x = zeros({3});
  CHECK(scatter(x, 0, ints({1, 1, 0}), tensor({5.0, 6.0, 7.0}, kFloat32)).to_vector() ==
        Values{7, 6, 0});
  CHECK(index_copy(zeros({2, 2}), 0, ints({1, 1}), counted({2, 2})).to_vector() ==
        Values{0, 0, 2, 3});
  // Both values get the gradient, as in PyTorch.
  const Tensor src = ones({2}).requires_grad_();
  scatter(x, 0, ints({1, 1}), src).backward(tensor({2.0, 3.0, 4.0}, kFloat32));
  CHECK(src.grad().to_vector() == Values{3, 3});
}

TEST_CASE("index_fill gives its value the gradient of each slice once") {
  const Tensor v = tensor(2.0).requires_grad_();
  index_fill(zeros({3}), 0, ints({0, -3, 0}), v).sum().backward();
  CHECK(v.grad().item() == 1);
}

TEST_CASE("gather, scatter and the like work in every dtype") {
  for (const Dtype d : kAllDtypes) {
    CAPTURE(d);
    const Tensor x = counted({2, 3}, d), one = ones({2, 1}, d);
    const Values v = x.to_vector();
    CHECK(take(x, ints({-1, 0})).to_vector() == Values{v[5], v[0]});
    CHECK(index_select(x, 1, ints({2})).to_vector() == Values{v[2], v[5]});
    CHECK(scatter(x, 1, ints({0, 2}).unsqueeze(1), one).to_vector() ==
          Values{1, v[1], v[2], v[3], v[4], 1});
    CHECK(scatter(x, 0, ints({1, 1, 1}).unsqueeze(0), 0).to_vector() ==
          Values{v[0], v[1], v[2], 0, 0, 0});
    CHECK(index_fill(x, 1, ints({-1}), 1).to_vector() == Values{v[0], v[1], 1, v[3], v[4], 1});
    CHECK(index_copy(x, 1, ints({1}), one).to_vector() == Values{v[0], 1, v[2], v[3], 1, v[5]});
    CHECK(masked_fill(x, x > 3, 1).to_vector() == (d == kBool ? v : Values{0, 1, 2, 3, 1, 1}));
    CHECK(masked_select(x, x.eq(x.index({0, 1}))).dtype() == d);
    CHECK(masked_scatter(x, tensor({true, false, false}), ones({2}, d)).to_vector() ==
          Values{1, v[1], v[2], 1, v[4], v[5]});
    CHECK(nonzero(x).to_vector() == Values{0, 1, 0, 2, 1, 0, 1, 1, 1, 2});
    if (d != kBool)
      CHECK(index_add(x, 1, ints({1, 1}), ones({2, 2}, d)).to_vector() == Values{0, 3, 2, 3, 6, 5});
    for (const Tensor& y : {take(x, ints({0})), scatter(x, 1, ints({0}).unsqueeze(0), 1),
                            index_fill(x, 0, ints({0}), 1), masked_fill(x, x.eq(x), 1),
                            index_put(x, {0}, 1), index_put(x, {ints({0})}, 1)})
      CHECK(y.dtype() == d);
  }
}

TEST_CASE("masked_fill keeps the dtype, whatever the value") {
  const Tensor n = ones({2}, kInt64), mask = tensor({true, false});
  CHECK(masked_fill(n, mask, 0.5).to_vector() == Values{0, 1});
  CHECK(masked_fill(n, mask, tensor(2.5)).to_vector() == Values{2, 1});
  CHECK(masked_fill(ones({2}, kFloat16), mask, tensor(2.5)).dtype() == kFloat16);
  CHECK(masked_fill(tensor(1.0, kFloat32), tensor(true), tensor(2.0, kFloat64)).dtype() ==
        kFloat32);
  // NaN under the mask reaches neither the value nor the gradient.
  const Tensor x = full({2}, std::nan("")).requires_grad_();
  const Tensor y = masked_fill(x, mask, 0);
  CHECK(y[0].item() == 0);
  y.backward(ones({2}));
  CHECK(x.grad().to_vector() == Values{0, 1});
}

TEST_CASE("nonzero lists positions, also those of NaN") {
  const Tensor x = tensor({{0.0, 2.0}, {std::nan(""), -0.0}});
  CHECK(nonzero(x).sizes() == Shape{2, 2});
  CHECK(nonzero(x).to_vector() == Values{0, 1, 1, 0});
  CHECK(nonzero(x.t()).to_vector() == Values{0, 1, 1, 0});
  CHECK(same_bits(argwhere(x), nonzero(x)));
  const TensorList at = where(x != 0);
  REQUIRE(at.size() == 2);
  CHECK(at[0].to_vector() == Values{0, 1});
  CHECK(at[1].to_vector() == Values{1, 0});
  CHECK(nonzero(tensor(3.0)).sizes() == Shape{1, 0});
  CHECK(nonzero(tensor(0.0)).sizes() == Shape{0, 0});
  CHECK(where(tensor(true)).at(0).to_vector() == Values{0});
  CHECK(nonzero(zeros({2, 0, 3})).sizes() == Shape{0, 3});
  CHECK(nonzero(zeros({4})).sizes() == Shape{0, 1});
  CHECK(nonzero(x).dtype() == kInt64);
}

TEST_CASE("tril_indices and triu_indices are in row-major order") {
  CHECK(tril_indices(3, 2).to_vector() == Values{0, 1, 1, 2, 2, 0, 0, 1, 0, 1});
  CHECK(triu_indices(2, 3, 1).to_vector() == Values{0, 0, 1, 1, 2, 2});
  CHECK(triu_indices(2, 2, 5).sizes() == Shape{2, 0});
  CHECK(tril_indices(2, 2, 0, kInt32).dtype() == kInt32);
  CHECK_THROWS_AS(tril_indices(-1, 2), Error);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = -kMost - 1;
  const Tensor square = ones({2, 2});
  for (const int64_t far : {int64_t{2}, int64_t{3}, kMost - 1, kMost}) {
    CHECK(tril(square, far).to_vector() == Values(4, 1));
    CHECK(triu(square, far).to_vector() == Values(4, 0));
    CHECK(tril_indices(2, 2, far).size(1) == 4);
  }
  for (const int64_t far : {int64_t{-2}, int64_t{-3}, kLeast + 1, kLeast}) {
    CHECK(tril(square, far).to_vector() == Values(4, 0));
    CHECK(triu(square, far).to_vector() == Values(4, 1));
    CHECK(triu_indices(2, 2, far).size(1) == 4);
  }
}

TEST_CASE("one_hot has a one in the column of the class") {
  const Tensor y = one_hot(tensor({{0.0, 2.0}, {1.0, 0.0}}).to(kInt64));
  CHECK(y.sizes() == Shape{2, 2, 3});
  CHECK(y.dtype() == kInt64);
  CHECK(y.to_vector() == Values{1, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0});
  CHECK(nn::functional::one_hot(tensor(2, kInt64), 4).to_vector() == Values{0, 0, 1, 0});
  CHECK(one_hot(zeros({0}, kInt64), 3).sizes() == Shape{0, 3});
  CHECK(message([&] {
          one_hot(ints({0, 1, 5}), 5);
        }) == "one_hot: class 5 at position 2 is out of range [0, 5)");
  CHECK(message([&] {
          one_hot(ints({0, -1}));
        }) == "one_hot: class -1 at position 1 is out of range [0, 1)");
  CHECK_THROWS_AS((one_hot(ints({-1})), testing::settle()), Error);
  CHECK_THROWS_AS(one_hot(zeros({0}, kInt64)), Error);
  CHECK_THROWS_AS(one_hot(ints({0}), 0), Error);
  CHECK_THROWS_AS(one_hot(tensor({1.0})), Error);
}

TEST_CASE("0-dim tensors are indexed as tensors of one element") {
  const Tensor five = tensor(5.0);
  CHECK(gather(five, 0, tensor(0, kInt64)).sizes() == Shape{});
  CHECK(gather(five, 0, ints({0, 0})).to_vector() == Values{5, 5});
  CHECK(index_select(five, 0, ints({0})).sizes() == Shape{});
  CHECK(index_select(counted({3}), 0, tensor(1, kInt64)).to_vector() == Values{1});
  CHECK(scatter(five, 0, tensor(0, kInt64), tensor(7.0)).sizes() == Shape{});
  CHECK(scatter_add(five, 0, tensor(0, kInt64), tensor(7.0)).item() == 12);
  CHECK(index_add(five, 0, ints({0}), tensor(7.0)).item() == 12);
  CHECK(index_copy(five, 0, ints({0}), tensor(7.0)).item() == 7);
  CHECK(index_fill(five, 0, ints({-1}), 7).sizes() == Shape{});
  CHECK(take(five, ints({0, -1})).to_vector() == Values{5, 5});
  CHECK(masked_fill(five, tensor(true), 7).sizes() == Shape{});
  CHECK(masked_select(five, tensor(true)).to_vector() == Values{5});
  CHECK(take_along_dim(five, tensor(0, kInt64), 0).item() == 5);
}

TEST_CASE("sums of halves in index_add and index_put are rounded once") {
  const Tensor x = full({1}, 2048, kFloat16), two = ones({4}, kFloat16);
  CHECK(index_add(x, 0, ints({0, 0, 0, 0}), two).item() == 2052);
  CHECK(index_add(x, 0, ints({0, 0, 0, 0}), two, 0.5).item() == 2050);
  CHECK(index_put(x, {ints({0, 0, 0, 0})}, two, true).item() == 2052);
  // So is the gradient of an element that was picked four times.
  const Tensor leaf = ones({1}, kFloat16).requires_grad_();
  leaf.index({ints({0, 0, 0, 0})}).backward(tensor({2048.0, 1.0, 1.0, 2.0}, kFloat16));
  CHECK(leaf.grad().item() == 2052);
}

TEST_CASE("under autocast index_put and scatter_add take the widest dtype") {
  const Tensor h = ones({2}, kFloat16), f = ones({2}, kFloat32);
  CHECK_THROWS_AS(index_put(f, {ints({0, 1})}, h), Error);
  CHECK_THROWS_AS(scatter_add(f, 0, ints({0, 1}), h), Error);
  {
    const amp::autocast region(get_default_device().type(), kFloat16);
    CHECK(index_put(f, {ints({0, 1})}, h).dtype() == kFloat32);
    CHECK(index_put(h, {ints({0, 1})}, f).dtype() == kFloat32);
    CHECK(scatter_add(h, 0, ints({0, 1}), f).dtype() == kFloat32);
    CHECK(index_put(h, {ints({0, 1})}, h).dtype() == kFloat16);
    const Tensor b = h.to(kBFloat16);  // index_add is not in autocast's list
    CHECK(index_add(b, 0, ints({0, 1}), b).dtype() == kBFloat16);
    Tensor y = h.clone();
    CHECK_THROWS_AS(y.index_put_({ints({0, 1})}, f), Error);  // in place nothing is cast
  }
}

TEST_CASE("in-place forms write, raise the version, and continue the history") {
  const Tensor leaf = ones({2, 2}).requires_grad_();
  Tensor y = leaf * 3;
  const uint64_t version = y.version();
  CHECK(y.masked_fill_(tensor({true, false}), 0).is_same(y));
  CHECK(y.version() == version + 1);
  y.index_put_({0}, 5);
  y.scatter_(1, ints({1, 1}).unsqueeze(1), 2.5);
  CHECK(y.to_vector() == Values{5, 2.5, 0, 2.5});
  y.index_add_(0, ints({1}), leaf.index({Slice(0, 1)}));
  CHECK(y.to_vector() == Values{5, 2.5, 1, 3.5});
  y.backward(ones({2, 2}));
  CHECK(leaf.grad().to_vector() == Values{1, 1, 0, 0});
  Tensor p = ones({2}).requires_grad_();
  CHECK_THROWS_AS(p.index_put_({0}, 1), Error);
  CHECK_THROWS_AS(p.masked_fill_(tensor({true, false}), 1), Error);
  CHECK(p.to_vector() == Values{1, 1});
  const NoGradGuard guard;
  p.index_put_({0}, 7);
  CHECK(p.to_vector() == Values{7, 1});
}

TEST_CASE("a write to a view made by index changes the base and its history") {
  const Tensor leaf = ones({3, 3}).requires_grad_();
  Tensor y = leaf * 1;
  y.index({Slice(), 0}).mul_(2);
  y.index({Slice(1, None), "..."}).index_put_({ints({-1}), 1}, 5);
  y.index({0, Slice(1, None)}).masked_fill_(tensor({true, false}), 7);
  CHECK(y.to_vector() == Values{2, 7, 1, 2, 1, 1, 2, 5, 1});
  y.backward(ones({3, 3}));
  CHECK(leaf.grad().to_vector() == Values{2, 0, 1, 2, 1, 1, 2, 0, 1});
}

TEST_CASE("what is assigned to x[mask] goes into x, and what has a name is a tensor") {
  Tensor x = counted({6});
  x[x > 3] = -1;
  x[ints({0, 2})] = tensor({7.f, 8.f});
  x[tensor(1)] = 9;
  CHECK(x.to_vector() == Values{7, 9, 8, 3, -1, -1});
  x[ints({0, 1})] = x[ints({1, 0})];
  x[ints({4, 5})] += 3;
  x[x == 8] -= ones({1});
  x.index({Slice(2, None), "..."}) *= 10;
  x[tensor(3)] /= 2;
  x.index({ints({-1})}) /= tensor({5.f});
  CHECK(x.to_vector() == Values{9, 7, 70, 15, 20, 4});
  x[ints({0})] = x.index({0}) = x[x == 7] = 9;
  CHECK((x[ints({1})] -= 2).item() == 7);
  CHECK(x.to_vector() == Values{9, 7, 70, 15, 20, 4});
  Tensor bits = tensor({1, 2, 4}), rows = zeros({2, 2});
  bits[ints({0, 2})] |= tensor({2, 2});
  bits[bits > 2] &= tensor({4, 6});
  bits[tensor({false, true, false})] ^= tensor({3});
  CHECK(bits.to_vector() == Values{0, 1, 6});
  rows.index({Slice(), ints({1})}) = ones({2, 1});
  rows[tensor({false, true})][0] = 5;  // of the copy, as in Python
  CHECK(rows.to_vector() == Values{0, 1, 0, 1});

  auto named = x[x > 10];
  named += 1;
  CHECK(named.to_vector() == Values{71, 16, 21});
  named = x[ints({0})];
  named *= 2;
  named = rows;
  named += 1;
  Tensor other = x[ints({1})];
  other.fill_(0);
  other = x[ints({2})];
  CHECK(other.item() == 70);
  CHECK(x.to_vector() == Values{9, 7, 70, 15, 20, 4});
  CHECK(rows.to_vector() == Values{1, 2, 1, 2});
  CHECK(testing::message([&] { x[ints({0, 1})] = ones({3}); }).find("index_put") == 0);
  CHECK(testing::message([&] { x[ints({9})] = 1; }).find("index") == 0);
  CHECK(x.to_vector() == Values{9, 7, 70, 15, 20, 4});
}

TEST_CASE("what is assigned to x[mask] takes part in the history of x") {
  const Tensor leaf = ones({3}).requires_grad_(), w = tensor({2.f}).requires_grad_();
  Tensor y = leaf * 1;
  y[ints({0})] = w;
  y[tensor({false, true, true})] *= w;
  y.sum().backward();
  CHECK(leaf.grad().to_vector() == Values{0, 2, 2});
  CHECK(w.grad().to_vector() == Values{3});
  CHECK_THROWS_AS(leaf[ints({0})] = 5, Error);
  CHECK_THROWS_AS(leaf[ints({0})] += 5, Error);
  CHECK(leaf.to_vector() == Values{1, 1, 1});
  const NoGradGuard guard;
  leaf[ints({0})] = 5;
  leaf[leaf < 2] -= 1;
  CHECK(leaf.to_vector() == Values{5, 0, 0});
}
