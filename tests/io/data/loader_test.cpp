// The DataLoader: the same batches for any number of workers, exceptions of workers, and loops that
// are left anywhere.
#include "halftape/io/data/loader.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <iterator>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/io/data/transforms.h"
#include "halftape/tests/io/data/thread_count.h"
#include "halftape/tests/support/limited_memory.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using namespace halftape::data;
using namespace std::chrono_literals;
using halftape::testing::has;
using halftape::testing::message;

namespace {

using Batches = std::vector<std::vector<int>>;

// Gives 10 · index; odd indices take longer, so that workers overtake each other.
struct Tens : datasets::Dataset<Tens, int> {
  explicit Tens(size_t n = 23) : n_(n) {}
  int get(size_t index) override {
    if (index % 2) std::this_thread::sleep_for(300us);
    return 10 * static_cast<int>(index);
  }
  std::optional<size_t> size() const override { return n_; }
  size_t n_;
};

template <class Loader>
Batches epoch(Loader& loader) {
  Batches all;
  for (auto& batch : loader) all.push_back(batch);
  return all;
}

DataLoaderOptions with_workers(size_t workers, size_t batch_size = 4) {
  return DataLoaderOptions(batch_size).workers(workers);
}

auto random_loader(const DataLoaderOptions& options, uint64_t seed = 11) {
  return make_data_loader(Tens(), samplers::RandomSampler(23, seed), options);
}

}  // namespace

TEST_CASE("a loader gives the same batches in the same order for any number of workers") {
  auto alone = random_loader(with_workers(0));
  std::vector<Batches> expected;
  for (int e = 0; e < 3; ++e) expected.push_back(epoch(*alone));
  CHECK(expected[0].size() == 6);
  CHECK(expected[0].back().size() == 3);
  CHECK(expected[0] != expected[1]);
  for (const size_t workers : {1, 4})
    for (const size_t max_jobs : {1, 3, 50}) {
      CAPTURE(workers);
      CAPTURE(max_jobs);
      auto loader = random_loader(with_workers(workers).max_jobs(max_jobs));
      for (int e = 0; e < 3; ++e) {
        CHECK(loader->epoch() == static_cast<size_t>(e));
        CHECK(epoch(*loader) == expected[static_cast<size_t>(e)]);
      }
    }
}

TEST_CASE("without enforced order every batch comes once all the same") {
  auto loader = make_data_loader<samplers::SequentialSampler>(
      Tens(), with_workers(4, 1).enforce_ordering(false));
  for (int e = 0; e < 3; ++e) {
    std::set<int> seen;
    for (auto& batch : *loader) seen.insert(batch.at(0));
    CHECK(seen.size() == 23);
  }
}

TEST_CASE("drop_last leaves out a short last batch and no full one") {
  for (const size_t workers : {0, 2}) {
    auto loader = random_loader(with_workers(workers).drop_last(true));
    const Batches short_one = epoch(*loader);
    CHECK(short_one.size() == 5);
    CHECK(epoch(*loader).size() == 5);
    auto even = make_data_loader(Tens(8), with_workers(workers).drop_last(true));
    CHECK(epoch(*even).size() == 2);
    auto none = make_data_loader(Tens(3), with_workers(workers).drop_last(true));
    CHECK(epoch(*none).empty());
    CHECK(epoch(*none).empty());
  }
}

TEST_CASE("drop_last drops what is no whole batch of all ranks, whatever their number") {
  using samplers::SequentialSampler;
  for (const size_t examples : {9, 15, 16, 17})
    for (const size_t replicas : {1, 2, 4, 8}) {
      auto loader = make_data_loader(Tens(examples),
                                     samplers::DistributedBatchSampler<SequentialSampler>(
                                         SequentialSampler(examples), replicas, 0),
                                     DataLoaderOptions(8 / replicas).drop_last(true));
      for (int round = 0; round < 2; ++round) CHECK(epoch(*loader).size() == examples / 8);
    }
  for (const size_t examples : {15, 16, 17}) {
    samplers::DistributedBatchSampler<SequentialSampler> half(SequentialSampler(examples), 2, 0);
    auto loader = make_data_loader(Tens(examples),
                                   samplers::DistributedBatchSampler<decltype(half)>(half, 2, 0),
                                   DataLoaderOptions(2).drop_last(true));
    CHECK(epoch(*loader).size() == examples / 8);
  }
}

TEST_CASE("a loader without a sampler shuffles, and takes the dataset's size") {
  auto loader = make_data_loader(Tens(), 23);
  std::vector<int> all = *loader->begin();
  CHECK_FALSE(std::is_sorted(all.begin(), all.end()));
  std::sort(all.begin(), all.end());
  for (size_t i = 0; i < all.size(); ++i) CHECK(all[i] == 10 * static_cast<int>(i));
  CHECK(make_data_loader(Tens())->options().batch_size == 1);

  struct Unsized : datasets::Dataset<Unsized, int> {
    int get(size_t) override { return 0; }
    std::optional<size_t> size() const override { return {}; }
  };
  CHECK(has(message([] { make_data_loader(Unsized()); }), "Expected the dataset to be sized"));
}

TEST_CASE("options that cannot be are refused") {
  CHECK(has(message([] { make_data_loader(Tens(), 0); }), "batch_size is 0"));
  CHECK(has(message([] { make_data_loader(Tens(), with_workers(2).max_jobs(0)); }),
            "max_jobs is 0 with 2 workers"));
  const FullDataLoaderOptions full(DataLoaderOptions(32).workers(10));
  CHECK(full.max_jobs == 20);
  CHECK(full.enforce_ordering);
  CHECK_FALSE(full.drop_last);
  CHECK_FALSE(full.pin_memory);
  CHECK_FALSE(full.timeout);
}

// --- Iterators

TEST_CASE("iterators compare as LibTorch's, share their place, and guard their end") {
  auto loader = make_data_loader<samplers::SequentialSampler>(Tens(), 12);
  auto i = loader->begin(), j = i, end = loader->end();
  CHECK(i == j);
  CHECK(i != end);
  CHECK(end == loader->end());
  CHECK(*i == *j);
  CHECK(i->at(0) == 0);
  ++i;
  CHECK(j->at(0) == 120);
  ++j;
  CHECK(i == end);
  CHECK(has(message([&] { ++i; }), "increment iterator past the end"));
  CHECK(has(message([&] { *i; }), "dereference iterator that was past the end"));
  CHECK(has(message([&] { ++end; }), "past-the-end iterator is not allowed"));
  CHECK(has(message([&] { *end; }), "past-the-end iterator is not allowed"));
  CHECK(std::distance(loader->begin(), loader->end()) == 2);
}

TEST_CASE("a second iterator beside one in use is refused with workers") {
  auto loader = random_loader(with_workers(2));
  auto first = loader->begin();
  CHECK(has(message([&] { loader->begin(); }), "while another iterator is not yet exhausted"));
  CHECK(std::distance(first, loader->end()) == 6);
  CHECK_NOTHROW(loader->begin());
}

TEST_CASE("an iterator that outlives its loader throws") {
  auto loader = random_loader(with_workers(2));
  auto i = loader->begin();
  CHECK(i->size() == 4);
  loader.reset();
  CHECK(has(message([&] { ++i; }), "the iterator's loader is no more"));
}

// --- Leaving early

TEST_CASE("a loop that is left early is followed by the next epoch, as without workers") {
  auto alone = random_loader(with_workers(0));
  epoch(*alone);
  const Batches second = epoch(*alone), third = epoch(*alone);
  for (const size_t workers : {0, 1, 4})
    for (const size_t left_after : {1, 3, 6}) {
      CAPTURE(workers);
      auto loader = random_loader(with_workers(workers));
      size_t n = 0;
      for (auto& batch : *loader) {
        (void)batch;
        if (++n == left_after) break;
      }
      CHECK(loader->sampler().index() >= std::min<size_t>(4 * left_after, 23));
      CHECK(epoch(*loader) == second);
      CHECK(epoch(*loader) == third);
      CHECK(loader->epoch() == 3);
    }
}

TEST_CASE("an iterator that gave no batch does not count as an epoch") {
  auto alone = random_loader(with_workers(0));
  const Batches first = epoch(*alone);
  for (const size_t workers : {0, 3}) {
    auto loader = random_loader(with_workers(workers));
    loader->begin();
    loader->begin();
    CHECK(epoch(*loader) == first);
  }
}

TEST_CASE("loaders end whenever they are destroyed, and with them their threads") {
  epoch(*random_loader(with_workers(2)));  // what a process makes once is made
  const int before = halftape::testing::thread_count();
#if defined(__linux__)
  REQUIRE(before > 0);
#endif
  for (const size_t workers : {0, 1, 4}) {
    random_loader(with_workers(workers));
    random_loader(with_workers(workers))->begin();
    {
      auto loader = random_loader(with_workers(workers).max_jobs(20));
      auto i = loader->begin();
      ++i;
    }
    auto joined = random_loader(with_workers(workers));
    auto i = joined->begin();
    CHECK(i->size() == 4);
    joined->join();
    CHECK(halftape::testing::threads_fall_to(before));
    joined->join();
    CHECK(++i == joined->end());
  }
  CHECK(halftape::testing::threads_fall_to(before));
}

// --- Exceptions

namespace {

// Throws for index 5 of a sequence.
struct Bad : datasets::Dataset<Bad, int> {
  int get(size_t index) override {
    if (index == 5) throw std::invalid_argument("badness at 5");
    return static_cast<int>(index);
  }
  std::optional<size_t> size() const override { return 12; }
};

auto bad_loader(size_t workers) {
  return make_data_loader<samplers::SequentialSampler>(Bad(), with_workers(workers, 2));
}

}  // namespace

TEST_CASE("what a worker throws arrives in its place with its message and type") {
  for (const size_t workers : {1, 4}) {
    auto loader = bad_loader(workers);
    auto i = loader->begin();
    CHECK(*i == std::vector<int>{0, 1});
    CHECK(*++i == std::vector<int>{2, 3});
    try {
      ++i;
      FAIL("nothing was thrown");
    } catch (const WorkerException& e) {
      CHECK(std::string(e.what()) ==
            "Caught exception in DataLoader worker thread. Original message: badness at 5");
      CHECK_THROWS_AS(std::rethrow_exception(e.original_exception), std::invalid_argument);
    }
    CHECK(*i == std::vector<int>{6, 7});  // the loop may go on behind it
    CHECK(std::distance(i, loader->end()) == 3);
  }
}

TEST_CASE("without workers the dataset's exception comes as it is, and the loop may go on") {
  auto loader = bad_loader(0);
  auto i = ++loader->begin();
  CHECK(message<std::invalid_argument>([&] { ++i; }) == "badness at 5");
  CHECK(std::distance(i, loader->end()) == 3);
}

TEST_CASE("something thrown that is no exception arrives as well") {
  struct Thrower : datasets::Dataset<Thrower, int> {
    int get(size_t) override { throw 7; }
    std::optional<size_t> size() const override { return 2; }
  };
  auto loader = make_data_loader(Thrower(), with_workers(1));
  CHECK(has(message<WorkerException>([&] { *loader->begin(); }), "it is no std::exception"));
}

TEST_CASE("an exception in each of many batches leaves a loader that ends") {
  struct Thrower : datasets::Dataset<Thrower, int> {
    int get(size_t) override { throw std::runtime_error("never"); }
    std::optional<size_t> size() const override { return 40; }
  };
  auto loader = make_data_loader(Thrower(), with_workers(3));
  int caught = 0;
  for (auto i = loader->begin();;) try {
      if (i == loader->end()) break;
    } catch (const WorkerException&) {
      ++caught;
    }
  CHECK(caught == 10);
}

TEST_CASE("a worker that takes too long is told, and its batch still comes") {
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false;
  };
  struct Waiting : datasets::Dataset<Waiting, int> {
    explicit Waiting(Gate& g) : gate(&g) {}
    int get(size_t index) override {
      std::unique_lock lock(gate->mutex);
      gate->changed.wait(lock, [&] { return gate->open; });
      return static_cast<int>(index);
    }
    std::optional<size_t> size() const override { return 2; }
    Gate* gate;
  };
  Gate gate;
  auto loader = make_data_loader<samplers::SequentialSampler>(Waiting(gate),
                                                              with_workers(1, 1).timeout(10ms));
  auto i = loader->begin();
  CHECK(has(message([&] { *i; }), "waiting for next batch (timeout was 10 ms)"));
  CHECK(has(message([&] { *i; }), "timeout was 10 ms"));
  {
    const std::lock_guard lock(gate.mutex);
    gate.open = true;
  }
  gate.changed.notify_all();
  const auto patient = [&]() -> std::vector<int>& {
    for (;;) try {
        return *i;
      } catch (const Error&) {
      }
  };
  CHECK(patient() == std::vector<int>{0});
}

TEST_CASE("options at the ends of their range work or are refused at once") {
  const size_t most = std::numeric_limits<size_t>::max();
  CHECK(has(message([&] { make_data_loader(Tens(), with_workers(most)); }),
            "DataLoader: workers is 18446744073709551615; expected at most 4096 threads"));
  CHECK(epoch(*make_data_loader(Tens(), with_workers(2).max_jobs(most))).size() == 6);
  CHECK(epoch(*make_data_loader(Tens(), with_workers(2, most))).size() == 1);
  CHECK(epoch(*make_data_loader(Tens(), with_workers(0, most))).size() == 1);
  const auto for_ever = with_workers(1).timeout(std::chrono::milliseconds::max());
  CHECK(epoch(*make_data_loader(Tens(), for_ever)).size() == 6);
}

#if defined(HALFTAPE_LIMITED_MEMORY)
TEST_CASE("workers whose threads do not start are an error, and the others end") {
  const uint64_t some_stacks = uint64_t{100} << 20;
  const int result = testing::with_memory_limit(some_stacks, [] {
    const std::string said = message([] { make_data_loader(Tens(), with_workers(1000)); });
    const bool goes_on = epoch(*make_data_loader(Tens(), with_workers(2))).size() == 6;
    return has(said, "does not start") && has(said, "ask for fewer workers") && goes_on ? 0 : 1;
  });
  CHECK(result == 0);
}
#endif

// --- Datasets of other kinds

TEST_CASE("a dataset that cannot be copied works without workers or shared") {
  struct Single : datasets::Dataset<Single, int> {
    Single() = default;
    Single(Single&&) = default;
    Single(const Single&) = delete;
    int get(size_t index) override { return static_cast<int>(index); }
    std::optional<size_t> size() const override { return 6; }
  };
  CHECK(epoch(*make_data_loader(Single(), 2)).size() == 3);
  CHECK(has(message([] { make_data_loader(Single(), with_workers(2)); }),
            "use make_shared_dataset(), or workers(0)"));
  auto shared = datasets::make_shared_dataset<Single>();
  CHECK(epoch(*make_data_loader(shared, with_workers(2, 2))).size() == 3);
}

TEST_CASE("each worker has a copy of the dataset of its own") {
  struct Counted : datasets::Dataset<Counted, int> {
    explicit Counted(std::atomic<int>& n) : copies(&n) {}
    Counted(const Counted& other) : Dataset(other), copies(other.copies) { ++*copies; }
    Counted(Counted&& other) noexcept = default;
    int get(size_t) override { return 0; }
    std::optional<size_t> size() const override { return 6; }
    std::atomic<int>* copies;
  };
  for (const int workers : {0, 1, 3}) {
    std::atomic<int> copies = 0;
    make_data_loader(Counted(copies), with_workers(static_cast<size_t>(workers)));
    CHECK(copies == workers);
  }
}

TEST_CASE("a stateful dataset ends its epochs itself") {
  struct Countdown : datasets::StatefulDataset<Countdown, int> {
    std::optional<int> get_batch(size_t) override {
      const std::lock_guard lock(mutex);
      return left > 0 ? std::optional(left--) : std::nullopt;
    }
    std::optional<size_t> size() const override { return {}; }
    void reset() override { left = 10; }
    void save(serialize::OutputArchive&) const override {}
    void load(serialize::InputArchive&) override {}
    int left = 10;
    std::mutex mutex;
  };
  for (const size_t workers : {0, 1, 4}) {
    auto loader = make_data_loader(datasets::make_shared_dataset<Countdown>().map(
                                       transforms::BatchLambda<int>([](int i) { return 2 * i; })),
                                   with_workers(workers));
    for (int e = 0; e < 3; ++e) {
      std::vector<int> seen;
      for (const int i : *loader) seen.push_back(i);
      std::sort(seen.begin(), seen.end());
      CHECK(seen == std::vector<int>{2, 4, 6, 8, 10, 12, 14, 16, 18, 20});
    }
    *loader->begin();  // and left early
    CHECK(std::distance(loader->begin(), loader->end()) == 10);
  }
}

TEST_CASE("a stream is asked for numbers of examples") {
  struct Stream : datasets::StreamDataset<Stream, std::vector<int>> {
    std::vector<int> get_batch(size_t n) override {
      std::vector<int> batch(n);
      std::iota(batch.begin(), batch.end(), at);
      at += static_cast<int>(n);
      return batch;
    }
    std::optional<size_t> size() const override { return {}; }
    int at = 0;
  };
  auto loader = make_data_loader(Stream(), samplers::StreamSampler(10), 4);
  CHECK(epoch(*loader) == Batches{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}});
  CHECK(epoch(*loader).front().front() == 10);
}
