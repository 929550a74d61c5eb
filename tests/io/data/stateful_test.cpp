// Datasets that choose their examples themselves, and loaders of them with workers.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <optional>
#include <thread>
#include <vector>

#include "halftape/tests/support/message.h"

using namespace halftape;
using namespace halftape::data;

TEST_CASE("the workers of a stateful dataset have one dataset, whether it can be copied or not") {
  struct Countdown : datasets::StatefulDataset<Countdown, int> {
    Countdown() = default;
    Countdown(Countdown&&) = default;
    std::optional<int> get_batch(size_t) override {
      if (left == 0) return {};
      const int now = left;
      std::this_thread::yield();
      left = now - 1;  // two at once would give a number twice
      return now;
    }
    std::optional<size_t> size() const override { return 100; }
    void reset() override { left = 100; }
    void save(serialize::OutputArchive&) const override {}
    void load(serialize::InputArchive&) override {}
    int left = 100;
  };
  struct Copied : Countdown {
    Copied() = default;
    Copied(const Copied& other) : Countdown() { left = other.left; }
    Copied(Copied&&) = default;
  };
  const auto numbers = [](auto loader) {
    std::vector<int> all;
    for (int epoch = 0; epoch < 3; ++epoch)
      for (const int batch : *loader) all.push_back(batch);
    return all;
  };
  std::vector<int> expected;  // in this order, whichever worker is first
  for (int epoch = 0; epoch < 3; ++epoch)
    for (int i = 100; i > 0; --i) expected.push_back(i);
  for (const size_t workers : {0, 1, 3}) {
    CHECK(numbers(make_data_loader(Countdown(), DataLoaderOptions(4).workers(workers))) ==
          expected);
    CHECK(numbers(make_data_loader(Copied(), DataLoaderOptions(4).workers(workers))) == expected);
  }
}

TEST_CASE("a loader that was joined gives nothing more, and waits for nothing") {
  for (const size_t workers : {0, 1, 3}) {
    auto loader = make_data_loader(datasets::Digits(), DataLoaderOptions(100).workers(workers));
    {
      auto i = loader->begin();
      ++i;
    }
    const auto saved = loader->state_dict();
    loader->join();
    for (int epoch = 0; epoch < 2; ++epoch) {
      int batches = 0;
      for (const auto& batch : *loader) batches += static_cast<int>(batch.size() > 0);
      CHECK(batches == 0);
      loader->load_state_dict(saved);
    }
  }
}

TEST_CASE("a dataset computes in the same dtypes in the caller's thread and in a worker") {
  struct Products : datasets::Dataset<Products, Dtype> {
    Dtype get(size_t) override { return matmul(ones({2, 2}), ones({2, 2})).dtype(); }
    std::optional<size_t> size() const override { return 3; }
  };
  const amp::autocast region(kCPU, kBFloat16);
  for (const size_t workers : {0, 2}) {
    const auto loader = make_data_loader(Products(), DataLoaderOptions(3).workers(workers));
    for (const auto& batch : *loader) CHECK(batch == std::vector<Dtype>(3, kFloat32));
  }
  CHECK(matmul(ones({2, 2}), ones({2, 2})).dtype() == kBFloat16);
}

TEST_CASE("a dataset records operations where the caller does, also in a worker") {
  struct Products : datasets::Dataset<Products, Tensor> {
    Tensor get(size_t) override { return weight * 2; }
    std::optional<size_t> size() const override { return 2; }
    Tensor weight = ones({2}).requires_grad_();
  };
  for (const size_t workers : {0, 2}) {
    CAPTURE(workers);
    const auto loader = make_data_loader(Products(), DataLoaderOptions(1).workers(workers));
    const auto check = [&](bool recorded, bool inference) {
      for (const auto& batch : *loader) {
        CHECK(batch[0].requires_grad() == recorded);
        CHECK(batch[0].is_inference() == inference);
      }
    };
    check(true, false);
    {
      const NoGradGuard no_grad;
      check(false, false);
    }
    {
      const InferenceMode mode;
      check(false, true);
      const AutoGradMode grad(true);
      check((ones({1}).requires_grad_() * 2).requires_grad(), true);
    }
    check(true, false);
  }
}

TEST_CASE("the loader of a stream has a state between epochs alone") {
  struct Stream : datasets::StreamDataset<Stream, int> {
    int get_batch(size_t n) override { return at += static_cast<int>(n); }
    std::optional<size_t> size() const override { return {}; }
    int at = 0;
  };
  for (const size_t workers : {0, 2}) {
    const auto loader = make_data_loader(Stream(), samplers::StreamSampler(6),
                                         DataLoaderOptions(2).workers(workers));
    auto i = loader->begin();
    CHECK(loader->state_dict().at("in_epoch") == 0);
    *i;
    CHECK_REFUSED(loader->state_dict(), "save between epochs, or have a sampler of indices");
    while (i != loader->end()) ++i;
    CHECK(loader->state_dict().at("epoch") == 1);
  }
}

TEST_CASE("a stateful dataset's loader refuses drop_last, which it could not keep") {
  struct Endless : datasets::StatefulDataset<Endless, int> {
    std::optional<int> get_batch(size_t) override { return 1; }
    std::optional<size_t> size() const override { return {}; }
    void reset() override {}
    void save(serialize::OutputArchive&) const override {}
    void load(serialize::InputArchive&) override {}
  };
  CHECK_REFUSED(make_data_loader(Endless(), DataLoaderOptions(4).drop_last(true)),
                "drop_last is for datasets with a sampler");
}
