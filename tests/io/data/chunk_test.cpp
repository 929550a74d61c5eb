// ChunkDataset: one order for any number of threads, a position that is restored exactly, and what
// goes wrong.
#include <doctest/doctest.h>

#include <atomic>
#include <numeric>
#include <sstream>

#include <halftape/halftape.h>

#include "halftape/tests/io/data/thread_count.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using namespace halftape::data;
using testing::has;
using testing::message;

namespace {

using Numbers = std::vector<int>;

/// Chunk i has sizes[i] numbers, which go on from chunk to chunk.
struct Reader : datasets::ChunkDataReader<int> {
  Numbers sizes{10, 5, 0, 20, 3};
  int broken = -1;
  std::shared_ptr<std::atomic<int>> resets = std::make_shared<std::atomic<int>>(0);
  Numbers read_chunk(size_t i) override {
    if (static_cast<int>(i) == broken) throw std::runtime_error("the disk is gone");
    Numbers chunk(static_cast<size_t>(sizes[i]));
    const auto at = sizes.begin() + static_cast<std::ptrdiff_t>(i);
    std::iota(chunk.begin(), chunk.end(), std::accumulate(sizes.begin(), at, 0));
    return chunk;
  }
  size_t chunk_count() override { return sizes.size(); }
  void reset() override { ++*resets; }
};

using InOrder =
    datasets::ChunkDataset<Reader, samplers::SequentialSampler, samplers::SequentialSampler>;
using Shuffled = datasets::ChunkDataset<Reader>;

std::vector<Numbers> epoch_of(auto& dataset) {
  std::vector<Numbers> batches;
  while (auto batch = dataset.get_batch()) batches.push_back(*batch);
  return batches;
}
Numbers joined(const std::vector<Numbers>& batches) {
  Numbers all;
  for (const Numbers& b : batches) all.insert(all.end(), b.begin(), b.end());
  return all;
}
Numbers sorted(Numbers all) {
  std::sort(all.begin(), all.end());
  return all;
}
Numbers count_to(int n) {
  Numbers all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::unique_ptr<Shuffled> shuffled(size_t preloaders, size_t together = 2, size_t cache = 8) {
  return std::make_unique<Shuffled>(Reader(), samplers::RandomSampler(5, uint64_t{1}),
                                    samplers::RandomSampler(0, uint64_t{2}),
                                    datasets::ChunkDatasetOptions(preloaders, 7, cache, together));
}

}  // namespace

TEST_CASE("chunks are given in order, batches run over their ends, and the last one is smaller") {
  InOrder dataset(Reader(), samplers::SequentialSampler(0), samplers::SequentialSampler(0),
                  datasets::ChunkDatasetOptions(2, 7));
  for (int epoch = 0; epoch < 3; ++epoch) {
    const auto batches = epoch_of(dataset);
    REQUIRE(batches.size() == 6);
    CHECK(batches[1] == Numbers{7, 8, 9, 10, 11, 12, 13});
    CHECK(batches[5] == Numbers{35, 36, 37});
    CHECK(joined(batches) == count_to(38));
    CHECK_FALSE(dataset.get_batch().has_value());  // until it is reset
    dataset.reset();
  }
}

TEST_CASE("shuffled chunks come in one order, whatever the number of threads and the cache") {
  const auto expected = [] {
    const auto dataset = shuffled(1);
    auto batches = epoch_of(*dataset);
    dataset->reset();
    for (const Numbers& b : epoch_of(*dataset)) batches.push_back(b);
    return batches;
  }();
  const Numbers all = joined(expected);
  const Numbers first(all.begin(), all.begin() + 38), second(all.begin() + 38, all.end());
  CHECK(sorted(first) == count_to(38));
  CHECK(sorted(second) == count_to(38));
  CHECK(first != second);
  CHECK(first != count_to(38));
  for (const size_t threads : {2, 4})
    for (const size_t cache : {7, 1000}) {
      const auto dataset = shuffled(threads, 2, cache);
      auto batches = epoch_of(*dataset);
      dataset->reset();
      for (const Numbers& b : epoch_of(*dataset)) batches.push_back(b);
      CHECK(batches == expected);
    }
}

TEST_CASE("a chunk dataset goes on after any batch where it was saved") {
  const auto expected = [] {
    const auto dataset = shuffled(2);
    auto batches = epoch_of(*dataset);
    dataset->reset();
    for (const Numbers& b : epoch_of(*dataset)) batches.push_back(b);
    return batches;
  }();
  REQUIRE(expected.size() == 12);
  for (size_t stop = 0; stop <= 6; ++stop) {
    CAPTURE(stop);
    std::stringstream saved;
    {
      const auto dataset = shuffled(3);
      for (size_t i = 0; i < stop; ++i) CHECK(dataset->get_batch() == expected[i]);
      save(*dataset, saved);
    }
    const auto resumed = shuffled(2);
    resumed->get_batch();  // of another run
    load(*resumed, saved);
    auto batches = epoch_of(*resumed);
    resumed->reset();
    for (const Numbers& b : epoch_of(*resumed)) batches.push_back(b);
    CHECK(batches == std::vector<Numbers>(expected.begin() + static_cast<std::ptrdiff_t>(stop),
                                          expected.end()));
  }
}

TEST_CASE("a chunk dataset that was saved between epochs goes on with the next one") {
  const auto epochs = [](const std::shared_ptr<Shuffled>& dataset, int count) {
    std::vector<std::vector<Numbers>> all;
    auto loader =
        make_data_loader(datasets::SharedBatchDataset<Shuffled>(dataset), DataLoaderOptions(7));
    for (int epoch = 0; epoch < count; ++epoch)
      for (all.emplace_back(); const Numbers& batch : *loader) all.back().push_back(batch);
    return all;
  };
  const std::shared_ptr<Shuffled> whole = shuffled(2), resumed = shuffled(1);
  auto expected = epochs(whole, 2);
  CHECK(expected[1].size() == 6);
  std::stringstream saved, again;
  save(*whole, saved);
  load(*resumed, saved);
  save(*resumed, again);
  CHECK(again.str() == saved.str());
  expected = epochs(whole, 2);
  CHECK(epochs(resumed, 2) == expected);
}

TEST_CASE("so does one whose samplers draw LibTorch's orders") {
  const RandomState before = get_random_state();
  set_cpu_random_engine(RandomEngine::Mt19937);
  const auto fresh = [](size_t preloaders) {
    return std::make_unique<Shuffled>(Reader(), samplers::RandomSampler(5),
                                      samplers::RandomSampler(0),
                                      datasets::ChunkDatasetOptions(preloaders, 7, 8, 2));
  };
  const auto to_the_end = [](Shuffled& dataset) {
    auto batches = epoch_of(dataset);
    dataset.reset();
    for (const Numbers& b : epoch_of(dataset)) batches.push_back(b);
    return batches;
  };
  manual_seed(6);
  const auto expected = to_the_end(*fresh(2));
  CHECK(sorted(joined(expected)) != joined(expected));
  for (size_t stop = 0; stop <= 6; ++stop) {
    CAPTURE(stop);
    std::stringstream saved;
    manual_seed(6);
    {
      const auto dataset = fresh(3);
      for (size_t i = 0; i < stop; ++i) CHECK(dataset->get_batch() == expected[i]);
      save(*dataset, saved);
    }
    const RandomState state = get_random_state();
    const auto resumed = fresh(2);
    load(*resumed, saved);
    set_random_state(state);
    CHECK(
        to_the_end(*resumed) ==
        std::vector<Numbers>(expected.begin() + static_cast<std::ptrdiff_t>(stop), expected.end()));
  }
  set_random_state(before);
}

TEST_CASE("a loader gives the chunks' examples, with and without workers") {
  for (const size_t workers : {0, 2}) {
    Reader reader;
    auto dataset = datasets::make_shared_dataset<InOrder>(
        reader, samplers::SequentialSampler(0), samplers::SequentialSampler(0),
        datasets::ChunkDatasetOptions(2, 7), [](Numbers& chunk) {
          for (int& x : chunk) x += 100;
        });
    auto loader = make_data_loader(dataset, DataLoaderOptions(7).workers(workers));
    for (int epoch = 0; epoch < 2; ++epoch) {
      Numbers seen;
      for (const Numbers& batch : *loader) seen.insert(seen.end(), batch.begin(), batch.end());
      Numbers expected = count_to(38);
      for (int& x : expected) x += 100;
      CHECK(sorted(seen) == expected);
    }
    CHECK(*reader.resets >= 2);
  }
}

TEST_CASE("a chunk that cannot be read throws where it is needed, and is passed over") {
  Reader reader;
  reader.broken = 1;
  InOrder dataset(reader, samplers::SequentialSampler(0), samplers::SequentialSampler(0),
                  datasets::ChunkDatasetOptions(2, 5));
  CHECK(dataset.get_batch() == Numbers{0, 1, 2, 3, 4});
  CHECK(dataset.get_batch() == Numbers{5, 6, 7, 8, 9});
  CHECK_THROWS_WITH_AS(dataset.get_batch(), "the disk is gone", std::runtime_error);
  CHECK(dataset.get_batch() == Numbers{15, 16, 17, 18, 19});
}

TEST_CASE("a chunk dataset that is given up in the middle ends its threads") {
  const auto give_up = [](int i) {
    const auto dataset = shuffled(4, 1, 7);
    if (i % 2) dataset->get_batch();
    if (i % 3) dataset->reset();
  };
  give_up(1);  // what a process makes once is made
  const int before = halftape::testing::thread_count();
#if defined(__linux__)
  REQUIRE(before > 0);
#endif
  for (int i = 0; i < 20; ++i) give_up(i);
  CHECK(halftape::testing::threads_fall_to(before));
}

TEST_CASE("chunk datasets refuse options and requests that make no sense") {
  const auto made = [](size_t preloaders, size_t batch, size_t cache, size_t together) {
    return message([&] { datasets::ChunkDatasetOptions(preloaders, batch, cache, together); });
  };
  CHECK(has(made(0, 1, 1, 1), "Preloader count is 0"));
  CHECK(has(made(1, 0, 1, 1), "Batch size is 0"));
  CHECK(has(made(1, 1, 0, 1), "Cache size is 0"));
  CHECK(has(made(1, 10, 5, 1), "Cache size is less than batch size"));
  CHECK(has(made(~size_t{0}, 1, 1, 1), "ChunkDataset: preloader_count is 18446744073709551615"));
  CHECK(has(made(1, 1, 1, 0), "cross_chunk_shuffle_count needs to be greater than 0"));
  const auto dataset = shuffled(1);
  CHECK(
      has(message([&] { dataset->get_batch(6); }), "requested batch size is 6, while the dataset"));
  CHECK_FALSE(dataset->size().has_value());
  std::stringstream wrong("index 99\n");
  CHECK(message([&] { load(*dataset, wrong); }) != "");
  CHECK(dataset->get_batch(7).has_value());
}

TEST_CASE("what was left before a broken chunk comes first, in a smaller batch") {
  for (const int broken : {1, 3}) {
    Reader reader;
    reader.broken = broken;
    InOrder dataset(reader, samplers::SequentialSampler(0), samplers::SequentialSampler(0),
                    datasets::ChunkDatasetOptions(2, 7));
    Numbers all;
    int errors = 0;
    for (bool more = true; more;) {
      std::stringstream position;
      save(dataset, position);  // wherever it stands, nothing is forgotten
      load(dataset, position);
      try {
        const auto batch = dataset.get_batch();
        if ((more = batch.has_value())) all.insert(all.end(), batch->begin(), batch->end());
      } catch (const std::runtime_error&) {
        ++errors;
        reader.broken = -1;
      }
      if (errors > 1) break;
    }
    Numbers expected = count_to(38);
    const int begin = broken == 1 ? 10 : 15, size = broken == 1 ? 5 : 20;
    expected.erase(expected.begin() + begin, expected.begin() + begin + size);
    CHECK(errors == 1);
    CHECK(all == expected);
  }
}

TEST_CASE("a chunk dataset that refuses a state goes on where it was") {
  Reader reader;
  InOrder dataset(reader, samplers::SequentialSampler(0), samplers::SequentialSampler(0),
                  datasets::ChunkDatasetOptions(1, 4));
  CHECK(dataset.get_batch() == Numbers{0, 1, 2, 3});
  std::stringstream wrong("index 99\n");
  CHECK(message([&] { load(dataset, wrong); }) != "");
  CHECK(dataset.get_batch() == Numbers{4, 5, 6, 7});
  // A position that was just loaded is the one that is saved.
  std::stringstream one, two;
  save(dataset, one);
  InOrder other(reader, samplers::SequentialSampler(0), samplers::SequentialSampler(0),
                datasets::ChunkDatasetOptions(1, 4));
  std::stringstream again(one.str());
  load(other, again);
  save(other, two);
  CHECK(one.str() == two.str());
  CHECK(other.get_batch() == Numbers{8, 9, 10, 11});
}

TEST_CASE("a chunk dataset whose reader cannot begin an epoch can be asked again") {
  struct Late : Reader {
    std::shared_ptr<int> failures = std::make_shared<int>(1);
    void reset() override {
      if ((*failures)-- > 0) throw std::runtime_error("not mounted yet");
    }
  };
  datasets::ChunkDataset<Late, samplers::SequentialSampler, samplers::SequentialSampler> dataset(
      Late(), samplers::SequentialSampler(0), samplers::SequentialSampler(0),
      datasets::ChunkDatasetOptions(1, 38));
  CHECK_THROWS_WITH_AS(dataset.get_batch(), "not mounted yet", std::runtime_error);
  CHECK(dataset.get_batch() == count_to(38));
}
