// Datasets and transforms: the way of examples into a batch.
#include "halftape/io/data/transforms.h"

#include <doctest/doctest.h>

#include <numeric>
#include <string>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/io/data/dataset.h"
#include "halftape/tests/support/lists.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using namespace halftape::data;
using halftape::testing::has;
using halftape::testing::message;
using testing::values;

namespace {

struct OneToHundred : datasets::Dataset<OneToHundred, int> {
  int get(size_t index) override { return 1 + static_cast<int>(index); }
  std::optional<size_t> size() const override { return 100; }
};

// Data (2,) and a target of the given type.
template <class Target>
struct Pairs : datasets::Dataset<Pairs<Target>, Example<Tensor, Target>> {
  Example<Tensor, Target> get(size_t index) override {
    const auto i = static_cast<float>(index);
    return {tensor({i, i + 0.5f}), static_cast<Target>(index)};
  }
  std::optional<size_t> size() const override { return 100; }
};

}  // namespace

TEST_CASE("a dataset's batch is one example for each index") {
  CHECK(OneToHundred().get_batch({0, 4, 2}) == std::vector<int>{1, 5, 3});
  const std::vector<size_t> indices{7, 7};
  CHECK(OneToHundred().get_batch(indices) == std::vector<int>{8, 8});
}

TEST_CASE("functions of examples and of batches are put one after the other") {
  auto words =
      OneToHundred()
          .map(transforms::Lambda<int>([](int i) { return 2 * i; }))
          .map(transforms::Lambda<int, std::string>([](int i) { return std::to_string(i); }));
  CHECK(words.get_batch({0, 9}) == std::vector<std::string>{"2", "20"});
  CHECK(words.size() == 100);
  const auto sum = [](std::vector<int> batch) {
    return std::accumulate(batch.begin(), batch.end(), 0);
  };
  OneToHundred numbers;
  CHECK(numbers.map(transforms::Collate<int>(sum)).get_batch({0, 1, 2}) == 6);
  CHECK(numbers.map(transforms::BatchLambda<std::vector<int>, int>(sum)).get_batch({3}) == 4);
  struct Summer : transforms::Collation<int> {
    int apply_batch(std::vector<int> batch) override { return static_cast<int>(batch.size()); }
  };
  CHECK(numbers.map(Summer()).get_batch({3, 4}) == 2);
}

TEST_CASE("map moves a dataset that it may, and shares one that is shared") {
  struct Single : datasets::Dataset<Single, int> {
    Single() = default;
    Single(Single&&) = default;
    Single(const Single&) = delete;
    int get(size_t) override { return ++calls; }
    std::optional<size_t> size() const override { return 1; }
    int calls = 0;
  };
  const auto same = transforms::Lambda<int>([](int i) { return i; });
  CHECK(Single().map(same).map(same).get_batch({0, 0}) == std::vector<int>{1, 2});
  auto shared = datasets::make_shared_dataset<Single>();
  shared.map(same).get_batch({0, 0, 0});
  CHECK(shared->calls == 3);
  CHECK((*shared).calls == 3);
}

TEST_CASE("Stack puts the tensors of a batch along a new dimension") {
  auto rows = datasets::TensorDataset(eye(4)).map(transforms::Stack<TensorExample>());
  const TensorExample batch = rows.get_batch({1, 3});
  CHECK(values(batch) == std::vector<double>{0, 1, 0, 0, 0, 0, 0, 1});
  CHECK(batch.data.sizes() == Shape{2, 4});

  auto labelled =
      datasets::LabelledTensors(arange(6).view({3, 2}), arange(3) * 10).map(transforms::Stack<>());
  const Example<> pair = labelled.get_batch({2, 0});
  CHECK(values(pair.data) == std::vector<double>{4, 5, 0, 1});
  CHECK(values(pair.target) == std::vector<double>{20, 0});
  CHECK(labelled.size() == 3);

  const Tensor stacked = datasets::TensorDataset(eye(3).unbind()).tensor;
  CHECK(values(stacked) == values(eye(3)));
}

TEST_CASE("Stack makes a tensor of targets that are numbers") {
  auto whole = Pairs<int64_t>().map(transforms::Stack<Example<Tensor, int64_t>>());
  const Example<> batch = whole.get_batch({3, 5});
  CHECK(batch.data.sizes() == Shape{2, 2});
  CHECK(batch.target.dtype() == kInt64);
  CHECK(values(batch.target) == std::vector<double>{3, 5});
  auto real = Pairs<float>().map(transforms::Stack<Example<Tensor, float>>());
  CHECK(real.get_batch({3}).target.dtype() == kFloat32);
}

TEST_CASE("Stack says which tensor has another shape") {
  struct Ragged : datasets::Dataset<Ragged> {
    Example<> get(size_t i) override {
      return {ones({static_cast<int64_t>(i) + 1}), tensor(int64_t{0})};
    }
    std::optional<size_t> size() const override { return 3; }
  };
  auto batches = Ragged().map(transforms::Stack<>());
  CHECK(has(message([&] { batches.get_batch({0, 1}); }), "stack: tensor 1 is [2]"));
}

TEST_CASE("functions of tensors leave targets of any type alone") {
  auto doubled = Pairs<int>().map(transforms::TensorLambda<int>([](Tensor x) { return x * 2; }));
  const auto batch = doubled.get_batch({1});
  CHECK(values(batch[0].data) == std::vector<double>{2, 3});
  CHECK(batch[0].target == 1);
}

TEST_CASE("Normalize takes one mean for all channels or one for each") {
  transforms::Normalize<> one(0.5, 0.25), three({0.5, 1.5, -1.5}, {0.1, 0.2, 0.5});
  CHECK(values(one(ones({2, 2}))) == std::vector<double>{2, 2, 2, 2});
  CHECK(one(ones({2, 2})).sizes() == Shape{1, 2, 2});
  CHECK(values(one(ones({3, 1, 1}))) == std::vector<double>{2, 2, 2});
  const std::vector<double> each = values(three(ones({3, 1, 1})));
  CHECK(each[0] == doctest::Approx(5));
  CHECK(each[1] == doctest::Approx(-2.5));
  CHECK(each[2] == doctest::Approx(5));
  CHECK_FALSE(message([&] { three(ones({2, 4, 4})); }).empty());
}

TEST_CASE("data and targets of different number are refused") {
  CHECK(has(message([] {
              datasets::LabelledTensors(ones({3, 2}), ones({4}));
            }),
            "data [3, 2] and targets [4] must have the same first dimension"));
  CHECK(has(message([] { datasets::LabelledTensors(ones({}), ones({})); }), "data [] and"));
}

TEST_CASE("targets of any type of number are stacked with their values") {
  const auto check = [](auto zero, Dtype expected) {
    using T = decltype(zero);
    const auto batch = Pairs<T>().map(transforms::Stack<Example<Tensor, T>>()).get_batch({0, 1, 3});
    CHECK(batch.target.dtype() == expected);
    CHECK(values(batch.target.to(kFloat64)) ==
          std::vector<double>{0, 1, expected == kBool ? 1. : 3.});
  };
  check(size_t{}, kInt64), check(uint16_t{}, kInt64), check(0LL, kInt64), check(0U, kInt64);
  check(char{}, kInt64), check(int64_t{}, kInt64), check(int32_t{}, kInt32), check(0.f, kFloat32);
  check(0.0, kFloat64), check(0.0L, kFloat64), check(uint8_t{}, kUInt8), check(false, kBool);
}
