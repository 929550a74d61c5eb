// Factories: what they hold, in which dtype, and what they refuse.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "halftape/tests/support/message.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using testing::kInf, testing::kNaN;
using testing::message;

namespace {

bool says(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  MESSAGE("the error was: ", text);
  return false;
}

/// Another default dtype for a scope.
struct DefaultDtype {
  explicit DefaultDtype(Dtype d) : before(get_default_dtype()) { set_default_dtype(d); }
  ~DefaultDtype() { set_default_dtype(before); }
  Dtype before;
};

using Doubles = std::vector<double>;
using Longs = std::vector<int64_t>;

}  // namespace

TEST_CASE("constants have the shape, dtype and value asked for") {
  CHECK(zeros({2, 3}).sizes() == Shape{2, 3});
  CHECK(zeros(3).sizes() == Shape{3});
  CHECK(ones({2}, kFloat16).dtype() == kFloat16);
  CHECK(ones(2, kInt64).to_vector<int64_t>() == Longs{1, 1});
  CHECK(full({2}, 7).dtype() == kInt64);
  CHECK(full({2}, true).dtype() == kBool);
  CHECK(full({2}, 0.5).dtype() == kFloat32);
  CHECK(scalar_tensor(3).dtype() == kFloat32);
  CHECK(scalar_tensor(3).dim() == 0);
  CHECK(zeros(2, requires_grad()).requires_grad());
  CHECK(says(message([] { zeros({2, -3}); }), "negative"));
  CHECK(says(message([] { ones(2, dtype(kInt64).requires_grad(true)); }), "floating point"));
}

TEST_CASE("a value that the dtype cannot hold is refused, infinity is not") {
  CHECK(says(message([] { full(2, 1e39); }), "cannot be converted to type float32"));
  CHECK(says(message([] { full(2, 65520.0, kFloat16); }), "float16"));
  CHECK(says(message([] { full(2, 300, kUInt8); }), "uint8"));
  CHECK(says(message([] { full(2, 0x1p31, kInt32); }), "int32"));
  CHECK(says(message([] { full(2, kNaN, kInt64); }), "int64"));
  CHECK(says(message([] { full_like(ones(1, kInt32), kInf); }), "int32"));
  CHECK(full(1, 65519.0, kFloat16).item() == 65504);
  CHECK(full(1, -kInf, kFloat16).item() == -kInf);
  CHECK(full(1, 2.75, kInt32).item<int>() == 2);
  CHECK(full(1, -0x1p31, kInt32).item<int>() == std::numeric_limits<int32_t>::min());
}

TEST_CASE("zeros_like and its kin take dtype and device from the tensor, the rest from options") {
  const Tensor x = ones({2, 3}, kFloat16).requires_grad_();
  CHECK(zeros_like(x).dtype() == kFloat16);
  CHECK_FALSE(zeros_like(x).requires_grad());
  CHECK(ones_like(x, kInt64).dtype() == kInt64);
  CHECK(full_like(x, 3, requires_grad()).requires_grad());
  CHECK(rand_like(x, kFloat64).dtype() == kFloat64);
  CHECK(randn_like(x).sizes() == x.sizes());
  CHECK(empty_like(x, {}, MemoryFormat::Preserve).sizes() == x.sizes());
  CHECK(x.new_zeros(4).dtype() == kFloat16);
  CHECK(x.new_ones({2, 2}, kInt32).to_vector<int64_t>() == Longs{1, 1, 1, 1});
  CHECK(x.new_full({1}, 2.5).item() == 2.5);
  CHECK(x.new_empty({5, 0}).sizes() == Shape{5, 0});
}

TEST_CASE("eye has ones on the diagonal of any rectangle") {
  CHECK(eye(2).to_vector() == Doubles{1, 0, 0, 1});
  CHECK(eye(2, 3).to_vector() == Doubles{1, 0, 0, 0, 1, 0});
  CHECK(eye(3, 2, kInt64).to_vector<int64_t>() == Longs{1, 0, 0, 1, 0, 0});
  CHECK(eye(0, 4).sizes() == Shape{0, 4});
  CHECK(says(message([] { eye(2, -1); }), "negative"));
}

TEST_CASE("arange counts up, down and in fractions") {
  CHECK(arange(3).to_vector<int64_t>() == Longs{0, 1, 2});
  CHECK(arange(3).dtype() == kInt64);
  CHECK(arange(3.0).dtype() == kFloat32);
  CHECK(arange(1, 4, kFloat64).to_vector() == Doubles{1, 2, 3});
  CHECK(arange(5, 0, -2).to_vector<int64_t>() == Longs{5, 3, 1});
  CHECK(arange(0, 1, 0.25).to_vector() == Doubles{0, 0.25, 0.5, 0.75});
  CHECK(arange(2, 2).numel() == 0);
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  CHECK(arange(most - 3, most, 2).to_vector<int64_t>() == Longs{most - 3, most - 1});
  CHECK(arange(-most, most, most).to_vector<int64_t>() == Longs{-most, 0});
}

TEST_CASE("arange refuses sequences that do not end") {
  CHECK(says(message([] { arange(0, 5, 0); }), "step is zero"));
  CHECK(says(message([] { arange(0, 5, -1); }), "does not lead"));
  CHECK(says(message([] { arange(5, 0); }), "does not lead"));
  CHECK(says(message([] { arange(0, kInf); }), "finite"));
  CHECK(says(message([] { arange(0, 5, kNaN); }), "finite"));
  CHECK(says(message([] { arange(0, 1e300, 1e-9); }), "too many"));
}

TEST_CASE("linspace and logspace meet both ends") {
  CHECK(linspace(0, 1, 5).to_vector() == Doubles{0, 0.25, 0.5, 0.75, 1});
  CHECK(linspace(3, 3, 1).to_vector() == Doubles{3});
  CHECK(linspace(0, 1, 0).numel() == 0);
  CHECK(linspace(0, 0.1, 7, kFloat64)[6].item() == 0.1);
  CHECK(linspace(0, 9, 4, kInt64).to_vector<int64_t>() == Longs{0, 3, 6, 9});
  CHECK(linspace(0.9, 2.1, 4, kInt64).to_vector<int64_t>() == Longs{0, 0, 1, 2});
  CHECK(logspace(0, 3, 4).to_vector() == Doubles{1, 10, 100, 1000});
  CHECK(logspace(-1, 1, 3, 2, kFloat64).to_vector() == Doubles{0.5, 1, 2});
  CHECK(says(message([] { linspace(0, 1, -1); }), "non-negative"));
  CHECK(says(message([] { logspace(0, 1, -1); }), "non-negative"));
}

TEST_CASE("tensor() takes numbers, lists to any depth, and vectors") {
  CHECK(tensor(3).dim() == 0);
  CHECK(tensor({3}).sizes() == Shape{1});
  CHECK(tensor({{1, 2}, {3, 4}, {5, 6}}).sizes() == Shape{3, 2});
  CHECK(tensor({{{1, 2}, {3, 4}}}).sizes() == Shape{1, 2, 2});
  CHECK(tensor({{{{{{{1.5}}}}}}}).sizes() == Shape{1, 1, 1, 1, 1, 1, 1});
  CHECK(tensor({{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}}).to_vector<int64_t>() ==
        Longs{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(tensor(std::vector<float>{1.5f, 2.5f}).to_vector() == Doubles{1.5, 2.5});
  CHECK(tensor(std::vector<std::vector<int>>{{1, 2}, {3, 4}}).sizes() == Shape{2, 2});
  CHECK(tensor(std::vector<std::vector<int>>{}).sizes() == Shape{0});
  CHECK(tensor({std::vector<double>{1, 2}, std::vector<double>{3, 4}}).sizes() == Shape{2, 2});
  const Doubles v{1, 2, 3};
  CHECK(tensor(std::span(v).subspan(1)).to_vector() == Doubles{2, 3});
  CHECK(tensor(std::vector<bool>{true, false, true}).to_vector<int64_t>() == Longs{1, 0, 1});
  CHECK(tensor({}).sizes() == Shape{0});
  CHECK(tensor({{}, {}}).sizes() == Shape{2, 0});
  CHECK(tensor({{{}}}).sizes() == Shape{1, 1, 0});
  CHECK(tensor({1.5, 2.5}, requires_grad()).requires_grad());
}

TEST_CASE("the dtype of tensor() is that of its elements, floats in the default dtype") {
  CHECK(tensor({1, 2}).dtype() == kInt64);
  CHECK(tensor(true).dtype() == kBool);
  CHECK(tensor({{true}, {false}}).dtype() == kBool);
  CHECK(tensor({1.f, 2.f}).dtype() == kFloat32);
  CHECK(tensor(std::vector<uint8_t>{1}).dtype() == kUInt8);
  CHECK(tensor(std::vector<int32_t>{1}).dtype() == kInt64);
  CHECK(tensor(std::vector<int16_t>{-1}).to_vector<int64_t>() == Longs{-1});
  CHECK(tensor(std::vector<Half>{Half(1.5f)}).dtype() == kFloat16);
  CHECK(tensor(BFloat16(1.5f)).dtype() == kBFloat16);
  CHECK(tensor({1.9, -1.9}, kInt64).to_vector<int64_t>() == Longs{1, -1});
  // 2^53 + 1 does not pass through a double.
  CHECK(tensor({int64_t{9007199254740993}}).item<int64_t>() == 9007199254740993);
  {
    const DefaultDtype as(kFloat64);
    CHECK(tensor({1.1})[0].item() == 1.1);
    CHECK(tensor({}).dtype() == kFloat64);
    for (const Tensor& t : {zeros(1), ones(1), empty(1), eye(1), rand(1), randn(1), full(1, 0.5),
                            arange(1.0), linspace(0, 1, 2), logspace(0, 1, 2), scalar_tensor(1),
                            normal(0, 1, 1), tensor(1.5f), tensor(std::vector<float>{1})})
      CHECK(t.dtype() == kFloat64);
    CHECK(arange(1).dtype() == kInt64);
  }
  CHECK(tensor({1.1}).dtype() == kFloat32);
  CHECK_THROWS_AS(set_default_dtype(kInt64), Error);
}

TEST_CASE("ragged and mixed lists throw and say where") {
  const auto ragged = message([] { tensor({{{2, 3, 4}, {5, 6}}}); });
  CHECK(says(ragged,
             "Expected all sub-lists to have sizes: 3 (e.g. {2, 3, 4}), but got sub-list "
             "{5, 6} with sizes: 2, as element 1"));
  CHECK(says(message([] { tensor({{1, 2}, {{3}, {4}}}); }), "with sizes: 2, 1"));
  CHECK(says(message([] {
               tensor({1, 2.5});
             }),
             "same scalar type: Int, but got element of scalar type: Double, in element 1"));
  CHECK(says(message([] {
               tensor({{true}, {2}});
             }),
             "same scalar type: Bool, but got element of scalar type: Int"));
  CHECK(message([] { tensor({1, int64_t{2}}); }) == "");
  CHECK(says(message([] { tensor(300, kUInt8); }), "uint8"));
  using Rows = std::vector<std::vector<double>>;
  CHECK(says(message([] { tensor(Rows{{1, 2}, {3}}); }), "with sizes: 1"));
}

TEST_CASE("from_blob reads and writes the caller's memory with any strides") {
  std::vector<int32_t> v(9);
  std::iota(v.begin(), v.end(), 1);
  const auto on_host = [](Dtype d) { return TensorOptions(d).device(kCPU); };
  const Tensor columns = from_blob(v.data(), {3, 3}, {1, 3}, on_host(kInt32));
  CHECK(columns[0].to_vector<int32_t>() == std::vector<int32_t>{1, 4, 7});
  CHECK(columns.strides() == Strides{1, 3});
  from_blob(v.data(), v.size(), on_host(kInt32)).fill_(5);
  CHECK(v[8] == 5);
  float one = 2.5f;
  CHECK(from_blob(&one, {}, kCPU).item() == 2.5);
  CHECK(from_blob(&one, 1, requires_grad().device(kCPU)).requires_grad());
  CHECK(from_blob(nullptr, {0, 3}, kCPU).numel() == 0);
  CHECK(says(message([&] { from_blob(&one, {}, kCUDA); }), "only CPU memory"));
}

TEST_CASE("from_blob's deleter is called once, when the last view of the memory goes") {
  int called = 0;
  auto count = [&called](void*) { ++called; };
  std::vector<float> v(6, 1.f);
  Tensor part;
  {
    const Tensor t = from_blob(v.data(), {2, 3}, count, kCPU);
    part = t[1];
  }
  CHECK(called == 0);
  part = {};
  CHECK(called == 1);
  from_blob(v.data(), {2, 3}, {1, 2}, count, kCPU);
  CHECK(called == 2);
  CHECK_THROWS_AS(from_blob(v.data(), {2, -3}, count, kCPU), Error);
  CHECK_THROWS_AS(from_blob(v.data(), {2, 3}, {1}, count, kCPU), Error);
  CHECK_THROWS_AS(from_blob(v.data(), {2, 3}, {-1, 1}, count, kCPU), Error);
  CHECK_THROWS_AS(from_blob(nullptr, {2, 3}, count, kCPU), Error);
  CHECK_THROWS_AS(from_blob(v.data(), {int64_t{1} << 62, 2}, {4, 1}, count, kCPU), Error);
  CHECK_THROWS_AS(from_blob(v.data(), {3}, {int64_t{1} << 62}, count, kCPU), Error);
  char* const bytes = reinterpret_cast<char*>(v.data());
  CHECK(says(message([&] { from_blob(bytes + 1, {2}, count, kCPU); }),
             "is no multiple of 4, the size of a float32 element"));
  CHECK_THROWS_AS(from_blob(bytes + 4, {1}, count, TensorOptions(kCPU).dtype(kInt64)), Error);
  from_blob(bytes + 1, {2}, TensorOptions(kCPU).dtype(kUInt8));
  CHECK_THROWS_AS(from_blob(v.data(), {2}, count, dtype(kInt32).device(kCPU).requires_grad(true)),
                  Error);
  CHECK(called == 2);
}

TEST_CASE("empty_strided lays its elements out as told") {
  const Tensor t = empty_strided({2, 3}, {1, 2});
  CHECK(t.strides() == Strides{1, 2});
  CHECK_FALSE(t.is_contiguous());
  CHECK(empty_strided({2, 3}, {0, 1}).numel() == 6);
  CHECK(empty_strided({0, 3}, {3, 1}).numel() == 0);
  CHECK(says(message([] { empty_strided({2, 3}, {1}); }), "strides"));
  CHECK(says(message([] { empty_strided({2, 3}, {-1, 1}); }), "negative"));
}

TEST_CASE("options remember what was set, compare, and refuse what does not exist") {
  const TensorOptions none;
  CHECK_FALSE(none.has_dtype());
  CHECK(none.dtype() == kFloat32);
  const TensorOptions o = dtype(kFloat16).device(kCPU).requires_grad(true);
  CHECK(o.dtype_opt() == kFloat16);
  CHECK(o.device_opt() == Device(kCPU));
  CHECK(o.requires_grad_opt() == true);
  CHECK_FALSE(o.layout_opt());
  const TensorOptions told =
      none.layout(kStrided).pinned_memory(false).memory_format(MemoryFormat::Preserve);
  CHECK(told.layout_opt() == kStrided);
  CHECK(told.pinned_memory_opt() == false);
  CHECK(told.memory_format_opt() == MemoryFormat::Preserve);
  CHECK_FALSE(told.dtype_opt());
  CHECK_FALSE(told.device_opt());
  CHECK_FALSE(told.requires_grad_opt().has_value());
  const TensorOptions open = told.layout({}).pinned_memory({}).memory_format({});
  CHECK_FALSE(open.layout_opt());
  CHECK_FALSE(open.pinned_memory_opt().has_value());
  CHECK_FALSE(open.memory_format_opt());
  CHECK(open == none);
  CHECK(o == dtype(kFloat16).requires_grad(true).device(Device("cpu")));
  CHECK_FALSE(o == dtype(kFloat16));
  CHECK(o.merge_in(kInt64).dtype() == kInt64);
  CHECK(o.merge_in(kInt64).requires_grad());
  CHECK(o.layout(kStrided).pinned_memory(false).layout() == kStrided);
  CHECK(device({kCUDA, 1}).device_index() == 1);
  CHECK(TensorOptions("cuda:2").device() == Device(kCUDA, 2));
  CHECK(Device(kCUDA, -1) == Device("cuda"));
  CHECK(says(message([] { layout(kSparse); }), "sparse"));
  CHECK(says(message([] { TensorOptions().pinned_memory(true); }), "pinned"));
  CHECK(says(message([] { memory_format(MemoryFormat::ChannelsLast); }), "ChannelsLast"));
  if (!cuda::is_available())
    CHECK(says(message([] { zeros(1, Device(kCUDA)); }), "cuda:0 is not available: "));
}

TEST_CASE("random factories stay in range and repeat with the seed") {
  manual_seed(3);
  const Tensor a = rand({1000});
  manual_seed(3);
  CHECK(a.equal(rand(1000)));
  CHECK(a.amin().item() >= 0);
  CHECK(a.amax().item() < 1);
  const Tensor d = randint(6, {1000});
  CHECK(d.dtype() == kInt64);
  CHECK(d.amin().item() == 0);
  CHECK(d.amax().item() == 5);
  const Tensor e = randint(-3, 3, {1000}, kFloat32);
  CHECK(e.amin().item() == -3);
  CHECK(e.amax().item() == 2);
  CHECK(randint_like(a, 2, 3).equal(full_like(a, 2)));
  manual_seed(4);
  const Tensor below = randint_like(d, 6);
  manual_seed(4);
  CHECK(below.equal(randint_like(d, 0, 6)));
  auto order = randperm(100).to_vector<int64_t>();
  std::sort(order.begin(), order.end());
  CHECK(tensor(order).equal(arange(100)));
  CHECK(says(message([] { randint(3, 3, {1}); }), "empty"));
  CHECK(says(message([] { randint(0, 257, {1}, kUInt8); }), "uint8"));
  CHECK(says(message([] { randint(0, 4096, {1}, kFloat16); }), "float16"));
  CHECK(randint(255, 256, {1}, kUInt8).item<int>() == 255);
  CHECK(says(message([] { randperm(-1); }), "negative"));
  CHECK(says(message([] { randperm(129, kInt8); }), "the range [0, 129) is not within"));
  CHECK(says(message([] { randperm(2050, kFloat16); }), "the range [0, 2050) is not within"));
  CHECK(randperm(128, kInt8).sum().item() == 127 * 64);
  CHECK(randperm(0, kBool).numel() == 0);
  CHECK(says(message([] { rand({1}, kInt64); }), "randint"));
  CHECK(says(message([] { randn_like(ones(1, kInt64)); }), "floating-point"));
}

TEST_CASE("bernoulli follows its probabilities element by element") {
  manual_seed(4);
  CHECK(bernoulli(zeros(1000)).sum().item() == 0);
  CHECK(bernoulli(ones(1000, kFloat16)).sum().item() == 1000);
  const Tensor p = linspace(0, 1, 11).expand({4000, 11});
  const Tensor rate = bernoulli(p).mean(0);
  CHECK(rate.allclose(p[0], 0, 0.04));  // 5 standard deviations of √(p(1−p)/4000)
  CHECK(bernoulli(ones(4000), 0.25).mean().item() == doctest::Approx(0.25).epsilon(0.15));
  CHECK_FALSE(bernoulli(full(2, 0.5, requires_grad())).requires_grad());
  CHECK(says(message([] { bernoulli(full(2, 1.5)); }), "between 0 and 1"));
  CHECK(says(message([] { bernoulli(full(2, kNaN)); }), "between 0 and 1"));
  CHECK(says(message([] { bernoulli(ones(2), -0.1); }), "between 0 and 1"));
  CHECK(says(message([] { bernoulli(ones(2, kInt64)); }), "floating-point"));
}

TEST_CASE("normal takes mean and deviation from numbers and tensors") {
  manual_seed(5);
  const Tensor mean = tensor({-100.0, 0.0, 100.0}), std = tensor({{1.0}, {2.0}});
  const Tensor x = normal(mean.expand({5000, 2, 3}), std);
  CHECK(x.sizes() == Shape{5000, 2, 3});
  CHECK(x.mean(0).allclose(mean.expand({2, 3}), 0, 0.15));  // 5 deviations of 2/√5000
  const Tensor spread = ((x - mean) / std).square().mean(0);
  CHECK(spread.allclose(ones({2, 3}), 0, 0.1));
  CHECK(normal(mean, 0).equal(mean));
  CHECK(normal(7, zeros(3)).equal(full(3, 7.0)));
  CHECK(normal(2, 0, {2}, kFloat64).to_vector() == Doubles{2, 2});
  CHECK(says(message([] { normal(0, -1, {1}); }), "negative"));
  CHECK(says(message([] { normal(zeros(2), -ones(2)); }), "negative"));
  CHECK(says(message([] { normal(zeros(2), ones(3)); }), "broadcast"));
}

TEST_CASE("multinomial draws in proportion, and without replacement nothing twice") {
  manual_seed(6);
  const Tensor p = tensor({1.0, 0.0, 3.0});
  const auto draws = multinomial(p, 4000, true).to_vector<int64_t>();
  const auto twos = std::count(draws.begin(), draws.end(), 2);
  CHECK(std::count(draws.begin(), draws.end(), 1) == 0);
  CHECK(twos == doctest::Approx(3000).epsilon(0.05));
  const Tensor rows = multinomial(p.expand({2000, 3}), 2);
  CHECK(rows.sizes() == Shape{2000, 2});
  CHECK((rows.sum(1) == 2).to(kInt64).sum().item() == 2000);  // 0 and 2 in some order
  // The first index is 2 in 3 of 4 rows.
  CHECK(rows.to(kFloat32).mean(0)[0].item() == doctest::Approx(1.5).epsilon(0.07));
  const auto least = multinomial(tensor({5e-324}, kFloat64), 50, true).to_vector<int64_t>();
  CHECK(least == std::vector<int64_t>(50, 0));
  CHECK(says(message([&] { multinomial(p, 3); }), "2 non-zero probabilities"));
  CHECK(says(message([&] { multinomial(p, 0); }), "at least one"));
  CHECK(says(message([&] { multinomial(-p, 1); }), "negative"));
  CHECK(says(message([&] { multinomial(p * kInf, 1); }), "not finite"));
  CHECK(says(message([] { multinomial(zeros({2, 3}), 1); }), "row 0 are 0"));
  CHECK(says(message([] { multinomial(ones({1, 1, 1}), 1); }), "(C) or (R, C)"));
  CHECK(says(message([] { multinomial(ones(3, kInt64), 1); }), "floating-point"));
}
