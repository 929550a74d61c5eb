// Stop after any batch, resume, and get the batches of the run that never stopped.
#include <doctest/doctest.h>

#include <chrono>
#include <iterator>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/loss/loss.h"
#include "halftape/autograd/ops/product/matmul.h"
#include "halftape/core/random/random.h"
#include "halftape/io/data/loader.h"
#include "halftape/io/data/sets/image_sets.h"
#include "halftape/io/data/transforms.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using namespace halftape::data;
using halftape::testing::has;
using halftape::testing::message;

namespace {

using IndexBatches = std::vector<std::vector<size_t>>;
constexpr size_t kSize = 10, kBatch = 3, kEpochs = 3;
constexpr uint64_t kSeed = 0xfedcba9876543210;  // does not fit a double

struct SlowIndices : datasets::Dataset<SlowIndices, size_t> {
  size_t get(size_t index) override {
    if (index % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    return index;
  }
  std::optional<size_t> size() const override { return kSize; }
};

template <class Sampler>
auto loader_of(const Sampler& sampler, size_t workers, bool drop_last) {
  return make_data_loader(SlowIndices(), sampler,
                          DataLoaderOptions(kBatch).workers(workers).drop_last(drop_last));
}

// Goes on to the end of the last epoch. With `stop`, saves the state into `saved` in the loop's
// body after that many batches, and returns the batches and ends of epochs up to there.
template <class Loader>
IndexBatches run(Loader& loader, size_t stop, std::map<std::string, double>& saved) {
  IndexBatches seen;
  while (loader.epoch() < kEpochs) {
    for (auto& batch : loader) {
      seen.push_back(batch);
      if (seen.size() == stop) {
        saved = loader.state_dict();
        return seen;
      }
    }
    seen.emplace_back();  // the end of an epoch
    if (seen.size() == stop) {
      saved = loader.state_dict();
      return seen;
    }
  }
  return seen;
}

template <class Sampler>
void check_resumes(const Sampler& sampler, const Sampler& other, bool drop_last) {
  constexpr size_t kNever = std::numeric_limits<size_t>::max();
  std::map<std::string, double> saved;
  const IndexBatches whole = run(*loader_of(sampler, 0, drop_last), kNever, saved);
  REQUIRE(whole.size() >= kEpochs * 3);
  for (const size_t before : {0, 1, 4})
    for (const size_t after : {0, 1, 4})
      for (size_t stop = 1; stop <= whole.size(); ++stop) {
        CAPTURE(before);
        CAPTURE(after);
        CAPTURE(stop);
        IndexBatches seen = run(*loader_of(sampler, before, drop_last), stop, saved);
        auto resumed = loader_of(other, after, drop_last);
        resumed->load_state_dict(saved);
        const IndexBatches rest = run(*resumed, kNever, saved);
        seen.insert(seen.end(), rest.begin(), rest.end());
        CHECK(seen == whole);
      }
}

}  // namespace

TEST_CASE("a loader resumes after any batch with the next, for any number of workers") {
  for (const bool drop_last : {false, true}) {
    check_resumes(samplers::RandomSampler(kSize, kSeed), samplers::RandomSampler(kSize), drop_last);
    check_resumes(samplers::SequentialSampler(kSize), samplers::SequentialSampler(kSize),
                  drop_last);
    check_resumes(samplers::DistributedRandomSampler(2 * kSize - 1, 2, 0, true, kSeed),
                  samplers::DistributedRandomSampler(2 * kSize - 1, 2, 0), drop_last);
  }
}

TEST_CASE("so does a loader whose sampler draws LibTorch's orders") {
  constexpr size_t kNever = std::numeric_limits<size_t>::max();
  const RandomState before = get_random_state();
  set_cpu_random_engine(RandomEngine::Mt19937);
  std::map<std::string, double> saved;
  const auto loader = [](size_t workers) {
    return loader_of(samplers::RandomSampler(kSize), workers, false);
  };
  manual_seed(5);
  const IndexBatches whole = run(*loader(0), kNever, saved);
  CHECK(IndexBatches(whole.begin(), whole.begin() + 5) !=
        IndexBatches(whole.begin() + 5, whole.begin() + 10));
  for (const size_t workers : {0, 1, 4})
    for (size_t stop = 1; stop <= whole.size(); ++stop) {
      CAPTURE(workers);
      CAPTURE(stop);
      manual_seed(5);
      IndexBatches seen = run(*loader(workers), stop, saved);
      const RandomState state = get_random_state();
      manual_seed(99);
      auto resumed = loader(4 - workers);
      resumed->load_state_dict(saved);
      set_random_state(state);
      const IndexBatches rest = run(*resumed, kNever, saved);
      seen.insert(seen.end(), rest.begin(), rest.end());
      CHECK(seen == whole);
    }
  set_random_state(before);
}

TEST_CASE("whether a sampler has a seed of its own comes from the state") {
  const RandomState before = get_random_state();
  set_cpu_random_engine(RandomEngine::Mt19937);
  const auto epochs = [](samplers::RandomSampler& sampler) {
    std::vector<size_t> all;
    for (int epoch = 0; epoch < 3; ++epoch, sampler.reset())
      while (const auto batch = sampler.next(kBatch))
        all.insert(all.end(), batch->begin(), batch->end());
    return all;
  };
  for (const bool seeded : {true, false}) {
    const auto made = [](bool with_seed) {
      return with_seed ? samplers::RandomSampler(kSize, kSeed) : samplers::RandomSampler(kSize);
    };
    manual_seed(5);
    samplers::RandomSampler saved = made(seeded), other = made(!seeded);
    serialize::OutputArchive out;
    saved.save(out);
    const RandomState state = get_random_state();
    const std::vector<size_t> expected = epochs(saved);
    std::ostringstream file;
    out.save_to(file);
    std::istringstream again(file.str());
    serialize::InputArchive in;
    in.load_from(again);
    set_random_state(state);
    other.load(in);
    CHECK(epochs(other) == expected);
  }
  set_random_state(before);
}

TEST_CASE("what a sampler throws comes after the batches before it, and no batch is lost") {
  /// Throws once, at its third call.
  struct Throwing : samplers::SequentialSampler {
    using SequentialSampler::SequentialSampler;
    std::optional<std::vector<size_t>> next(size_t batch_size) override {
      if (++calls == 3) throw std::runtime_error("not now");
      return SequentialSampler::next(batch_size);
    }
    int calls = 0;
  };
  using Indices = std::vector<size_t>;
  for (const size_t workers : {0, 1, 4}) {
    CAPTURE(workers);
    auto loader = loader_of(Throwing(kSize), workers, false);
    auto i = loader->begin();
    CHECK(*i == Indices{0, 1, 2});
    CHECK(*++i == Indices{3, 4, 5});
    CHECK(message<std::runtime_error>([&] { ++i; }) == "not now");
    const auto saved = loader->state_dict();
    CHECK(*i == Indices{6, 7, 8});
    CHECK(std::distance(i, loader->end()) == 2);
    auto resumed = loader_of(samplers::SequentialSampler(kSize), workers, false);
    resumed->load_state_dict(saved);
    CHECK(*resumed->begin() == Indices{6, 7, 8});
  }
}

TEST_CASE("what was loaded ahead is not part of a loader's state") {
  for (const size_t workers : {0, 1, 4}) {
    auto loader = loader_of(samplers::RandomSampler(kSize, kSeed), workers, false);
    const auto untouched = loader->state_dict();
    CHECK(untouched.at("in_epoch") == 0);
    auto i = loader->begin();
    CHECK(loader->state_dict() == untouched);
    *i;
    CHECK(loader->state_dict().at("sampler.index") == kBatch);
    CHECK(loader->state_dict().at("in_epoch") == 1);
    ++i;
    CHECK(loader->state_dict().at("sampler.index") == 2 * kBatch);
  }
}

TEST_CASE("a sampler's names cannot be taken for the halves of a large number") {
  struct Named : samplers::SequentialSampler {
    using SequentialSampler::SequentialSampler;
    void save(serialize::OutputArchive& archive) const override { archive.write("low.high", 3); }
  };
  CHECK(has(message<Error>([] { loader_of(Named(kSize), 0, false)->state_dict(); }),
            "the sampler saves 'low.high'"));
}

TEST_CASE("a state that was saved before the first batch begins at the beginning") {
  std::map<std::string, double> saved =
      loader_of(samplers::RandomSampler(kSize, kSeed), 4, false)->state_dict();
  auto loader = loader_of(samplers::RandomSampler(kSize), 1, false);
  loader->load_state_dict(saved);
  CHECK(loader->sampler().seed() == kSeed);
  const auto order = samplers::permutation(kSize, kSeed, 0);
  CHECK(*loader->begin() == std::vector<size_t>(order.begin(), order.begin() + kBatch));
}

TEST_CASE("loading a state in the middle of an epoch drops what was loaded ahead") {
  for (const size_t workers : {0, 4}) {
    auto loader = loader_of(samplers::RandomSampler(kSize, kSeed), workers, false);
    auto i = loader->begin();
    const auto first = *i;
    const auto saved = loader->state_dict();
    const auto second = *++i;
    ++i;
    loader->load_state_dict(saved);
    CHECK(++i == loader->end());  // an iterator of before
    CHECK(*loader->begin() == second);
  }
}

TEST_CASE("a batch that could not be loaded is not counted as seen") {
  struct Flaky : datasets::Dataset<Flaky, size_t> {
    size_t get(size_t index) override {
      if (index == 4) throw std::runtime_error("gone");
      return index;
    }
    std::optional<size_t> size() const override { return kSize; }
  };
  for (const size_t workers : {0, 1, 4}) {
    auto loader = make_data_loader(Flaky(), samplers::SequentialSampler(kSize),
                                   DataLoaderOptions(kBatch).workers(workers));
    auto i = loader->begin();
    *i;
    CHECK_THROWS_AS(++i, std::runtime_error);
    auto resumed = loader_of(samplers::SequentialSampler(kSize), workers, false);
    resumed->load_state_dict(loader->state_dict());
    CHECK(*resumed->begin() == std::vector<size_t>{3, 4, 5});
  }
}

TEST_CASE("batches out of order have no state within an epoch") {
  auto loader = make_data_loader(SlowIndices(), samplers::RandomSampler(kSize, kSeed),
                                 DataLoaderOptions(2).workers(2).enforce_ordering(false));
  auto i = loader->begin();
  *i;
  CHECK(has(message([&] { loader->state_dict(); }), "save between epochs, or enforce the order"));
  while (i != loader->end()) ++i;
  CHECK(loader->state_dict().at("epoch") == 1);
}

TEST_CASE("states of other loaders are refused and change nothing") {
  auto loader = loader_of(samplers::RandomSampler(kSize, kSeed), 2, false);
  const auto mine = loader->state_dict();
  auto state = mine;
  state["sampler.size"] = 11;
  CHECK(has(message([&] { loader->load_state_dict(state); }), "size = 11, this one has 10"));
  state = mine;
  state["epoch"] = 0.5;
  CHECK(has(message([&] { loader->load_state_dict(state); }), "'epoch' is 0.5"));
  state = mine;
  state.erase("sampler.index");
  CHECK(has(message([&] { loader->load_state_dict(state); }), "no 'index'; it has epoch, seed"));
  CHECK(has(message([&] { loader->load_state_dict({}); }), "no 'epoch'; it has nothing"));
  CHECK(loader->state_dict() == mine);
}

TEST_CASE("training on the digits resumes with the same bits") {
  const auto make = [](size_t workers) {
    return make_data_loader(datasets::Digits().map(transforms::Stack<>()),
                            samplers::RandomSampler(1442, uint64_t{1}),
                            DataLoaderOptions(128).workers(workers));
  };
  const auto step = [](Tensor& w, const Example<>& batch) {
    w.requires_grad_();
    cross_entropy(batch.data.flatten(1).matmul(w), batch.target).backward();
    w = (w.detach() - w.grad() * 0.1).detach();
  };
  Tensor whole = zeros({64, 10});
  auto loader = make(0);
  for (int e = 0; e < 2; ++e)
    for (auto& batch : *loader) step(whole, batch);

  for (const size_t workers : {0, 1, 4}) {
    Tensor w = zeros({64, 10});
    std::map<std::string, double> saved;
    size_t steps = 0;
    auto before = make(workers);
    for (auto& batch : *before) {
      step(w, batch);
      if (++steps == 5) {
        saved = before->state_dict();
        break;
      }
    }
    auto after = make(4 - workers);
    after->load_state_dict(saved);
    while (after->epoch() < 2)
      for (auto& batch : *after) step(w, batch);
    CHECK(w.to_vector() == whole.to_vector());
  }
}

TEST_CASE("a loader that refuses a state loses no batch that was loaded ahead") {
  for (const size_t workers : {0, 2}) {
    auto loader = make_data_loader(
        datasets::TensorDataset(arange(100)).map(transforms::Stack<TensorExample>()),
        samplers::SequentialSampler(100), DataLoaderOptions(1).workers(workers).max_jobs(8));
    auto i = loader->begin();
    CHECK(i->data.item<int64_t>() == 0);
    auto bad = loader->state_dict();
    bad["sampler.index"] = 1000;
    CHECK_THROWS_AS(loader->load_state_dict(bad), Error);
    ++i;
    CHECK(i->data.item<int64_t>() == 1);
  }
}

TEST_CASE("an epoch that is chosen before begin() is part of a loader's state") {
  for (const size_t workers : {0, 2}) {
    const auto make = [workers] {
      return loader_of(samplers::DistributedRandomSampler(kSize, 1, 0), workers, false);
    };
    auto loader = make(), resumed = make();
    CHECK(std::distance(loader->begin(), loader->end()) == 4);
    loader->sampler().set_epoch(5);
    const auto saved = loader->state_dict();
    CHECK(saved.at("sampler.epoch") == 5);
    resumed->load_state_dict(saved);
    auto i = loader->begin();
    CHECK(*resumed->begin() == *i);
    // Also after a state from the middle of an epoch.
    resumed->load_state_dict(loader->state_dict());
    resumed->sampler().set_epoch(7);
    CHECK(resumed->state_dict().at("sampler.epoch") == 7);
    auto j = resumed->begin();
    CHECK(resumed->state_dict().at("sampler.epoch") == 7);
    CHECK(*j != *i);
  }
}

TEST_CASE("a begin that fetches nothing leaves a loaded epoch to the next one") {
  for (const size_t workers : {0, 4}) {
    CAPTURE(workers);
    auto loader = loader_of(samplers::RandomSampler(kSize, kSeed), workers, false);
    auto i = loader->begin();
    *i;
    const auto saved = loader->state_dict();
    const auto second = *++i;
    auto resumed = loader_of(samplers::RandomSampler(kSize), workers, false);
    resumed->load_state_dict(saved);
    resumed->begin();
    CHECK(resumed->state_dict() == saved);
    auto j = resumed->begin();
    CHECK(*j == second);
    CHECK(std::distance(j, resumed->end()) == 3);
    CHECK(resumed->epoch() == 1);
  }
}

TEST_CASE("an iterator from before a loaded state takes no batch of the loop after it") {
  for (const size_t workers : {0, 4}) {
    auto loader = loader_of(samplers::SequentialSampler(kSize), workers, false);
    auto old = loader->begin();
    CHECK(old->front() == 0);
    loader->load_state_dict(loader->state_dict());
    auto i = loader->begin();  // while the old one still holds a batch
    CHECK(i->front() == kBatch);
    CHECK(++old == loader->end());
    CHECK((++i)->front() == 2 * kBatch);
    CHECK(loader->epoch() == 0);
  }
}
